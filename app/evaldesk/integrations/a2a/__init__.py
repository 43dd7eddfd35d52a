"""Agents that speak the Agent2Agent protocol."""
