"""Statistics and states in words, the same on pages and on the command line."""
