"""Eval sets and their cases."""
