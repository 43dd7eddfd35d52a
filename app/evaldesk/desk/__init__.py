"""Floor 4: the only door for the three front ends; wires store, engine and settings together."""
