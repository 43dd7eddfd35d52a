"""Runs on a cluster of Ray. Nothing here imports ray before a run of the kind is opened."""
