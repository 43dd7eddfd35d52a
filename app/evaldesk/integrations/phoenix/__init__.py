"""Spans of Phoenix."""
