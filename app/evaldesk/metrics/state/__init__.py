"""Metrics of the session state."""
