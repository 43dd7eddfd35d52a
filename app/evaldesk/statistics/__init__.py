"""Statistics of trials: intervals, exact tests, pass@k, agreement, noise."""
