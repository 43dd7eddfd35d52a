"""The dice roller of ADK's documentation."""
