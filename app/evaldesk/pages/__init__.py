"""Floor 5: read models of pages, of `run info` and of report files."""
