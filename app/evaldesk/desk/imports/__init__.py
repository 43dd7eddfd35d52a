"""Files of other tools taken in."""
