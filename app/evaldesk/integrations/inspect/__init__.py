"""Logs of Inspect."""
