"""Data sets and results of Osmosis."""
