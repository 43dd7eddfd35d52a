"""Output of OpenHands."""
