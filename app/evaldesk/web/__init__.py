"""The pages. Thin: parse the request, call the desk, show the result."""
