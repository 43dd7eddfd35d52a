"""Files of ADK: eval sets, sessions, results."""
