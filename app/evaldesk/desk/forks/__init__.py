"""Verbs for forks: trials that are played on from one of their turns."""
