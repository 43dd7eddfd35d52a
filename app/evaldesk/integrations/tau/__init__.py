"""Tasks and results of tau-bench and tau2-bench."""
