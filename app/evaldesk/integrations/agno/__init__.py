"""Agents and teams of Agno."""
