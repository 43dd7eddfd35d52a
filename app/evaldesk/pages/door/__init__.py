"""Answers for coding agents, which commands print with `--json`: one function for both."""
