"""Functions of the user as metrics."""
