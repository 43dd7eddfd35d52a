"""Metrics of the answers of an agent."""
