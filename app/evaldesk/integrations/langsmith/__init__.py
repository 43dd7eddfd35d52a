"""Runs of LangSmith."""
