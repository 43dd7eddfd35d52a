"""Differences between expected and actual."""
