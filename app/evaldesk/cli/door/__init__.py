"""Commands with the same answers as the tools of the door for coding agents."""
