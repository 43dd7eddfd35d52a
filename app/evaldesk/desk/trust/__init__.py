"""Whether the code of a folder may run: the answers of a person, and the question."""
