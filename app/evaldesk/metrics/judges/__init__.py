"""Metrics that a model judges: the prompt, the reading of replies, and the score from several of them."""
