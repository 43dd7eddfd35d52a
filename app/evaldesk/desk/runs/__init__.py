"""Runs: planned, played, stopped, resumed, scored again."""
