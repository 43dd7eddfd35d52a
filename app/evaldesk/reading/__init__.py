"""Floor 1: JSON of strangers, read strictly: every value with its place, every refusal with line and path."""
