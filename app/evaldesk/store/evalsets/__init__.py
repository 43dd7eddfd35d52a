"""Eval set files: found, named, saved, trashed."""
