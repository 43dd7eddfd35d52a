"""Differences between what was expected and what happened."""
