"""Experiments: variants of a run, planned, played in turn and analysed."""
