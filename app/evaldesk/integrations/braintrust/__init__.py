"""Logs of Braintrust."""
