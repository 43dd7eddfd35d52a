"""Output of OpenHands."""

ERRORS = "output_errors.jsonl"
"""The rows with an error, which OpenHands' benchmarks on its SDK leave out of `output.jsonl`."""
ERRORS_FOLLOW = {"evaldesk": ERRORS}
"""The line after which the rows of that file follow: each instance counts, once, that no row before it is about."""
