"""The case editor: drafts, checks, lists."""
