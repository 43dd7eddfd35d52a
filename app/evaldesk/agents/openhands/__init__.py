"""Benchmarks of OpenHands: `process_instance` and its output."""
