"""Floor 5: the pages. Thin: parse the request, call the desk, show what it says."""
