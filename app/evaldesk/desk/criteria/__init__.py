"""Criteria and rubrics as people give them."""
