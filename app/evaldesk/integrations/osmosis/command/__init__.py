"""The commands that are spelled as those of Osmosis."""
