"""Criteria on forms."""
