"""Agents and crews of CrewAI."""
