"""`evaldesk run`."""
