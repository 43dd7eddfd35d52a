"""A trip planner that reads and writes the session state."""
