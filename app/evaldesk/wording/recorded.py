"""Sentences about imported runs: planned trials, trials in the file, and the end of the run."""

from __future__ import annotations

from evaldesk.model import Counts, EarlierResult, RecordedPlan
from evaldesk.wording.words import counted_words


def absent_words(counts: Counts) -> str:
    """`7 of 10 planned trials are not in the file`."""
    n = counts.unplayed
    return f"{counted_words(n, counts.planned, 'planned trial')} {'is' if n == 1 else 'are'} not in the file"


def plan_sentence(plan: RecordedPlan, n_present: int) -> str:
    """`10 trials planned, 3 in the file; the run broke off`."""
    if plan.n_planned is None:
        counts = f"the file does not tell how many trials were planned; {n_present:,} are in it"
    else:
        counts = f"{max(plan.n_planned, n_present):,} planned, {n_present:,} in the file"
    return "; ".join(filter(None, (counts, plan.ending)))


def earlier_sentence(result: EarlierResult) -> str:
    """`An earlier result of this trial in the file does not count: errored, 502 Server Error.`"""
    values = ", ".join(f"{name} {value:g}" for name, value in result.scores.items() if value is not None)
    details = ", ".join(filter(None, (result.verdict, values, result.reason.rstrip("."))))
    return f"An earlier result of this trial in the file does not count: {details}."
