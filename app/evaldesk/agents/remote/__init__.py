"""Agents behind an address or a command."""
