"""`evaldesk eval`."""
