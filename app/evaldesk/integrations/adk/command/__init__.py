"""Commands that are spelled as those of google-adk."""
