"""Agents of smolagents."""
