"""What coding agents read through the door, and commands print with `--json`: one function for both."""
