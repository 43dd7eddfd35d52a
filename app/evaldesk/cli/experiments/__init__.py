"""`evaldesk experiment` and experiments of `evaldesk eval`."""
