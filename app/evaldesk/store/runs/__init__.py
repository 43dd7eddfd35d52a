"""Runs and their trials in tables: planned, recorded, asked."""
