"""Benchmarks of OpenHands: their agents, output, logs, stand-ins and commands."""
