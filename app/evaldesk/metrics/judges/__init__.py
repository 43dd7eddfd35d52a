"""Metrics that a model judges: what it is asked, how its replies are read, and how several of them become a score."""
