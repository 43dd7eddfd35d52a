"""Sentences about forks: cost and tools before they are played, edits, and counts after."""

from __future__ import annotations

from collections.abc import Sequence

from evaldesk.model.conclusion import counted
from evaldesk.model.fork import ForkPart, edit_words
from evaldesk.wording.words import cost_words, named_words


def cost_sentence(n: int, n_turns: int, cost_each: float | None, n_earlier: int) -> str:
    """`10 trials with 3 turns left each, about 0.02 $ each and 0.20 $ together, by 5 earlier trials.`"""
    plan = f"{counted(n, 'trial')} with {counted(n_turns, 'turn')} left each"
    if cost_each is None:
        return f"{plan}; no earlier trial tells the cost of these turns."
    each, total = cost_words(cost_each), cost_words(cost_each * n)
    together = f" and {total} together" if n > 1 else ""
    return f"{plan}, about {each} each{together}, by {counted(n_earlier, 'earlier trial')}."


def each_sentence(n_turns: int, cost_each: float | None, n_earlier: int) -> str:
    """`Each trial has 3 turns left, about 0.02 $ by 5 earlier trials.`, for a form whose number is still open."""
    plan = f"Each trial has {counted(n_turns, 'turn')} left"
    if cost_each is None:
        return f"{plan}; no earlier trial tells the cost of these turns."
    return f"{plan}, about {cost_words(cost_each)} by {counted(n_earlier, 'earlier trial')}."


def tools_sentence(real_tools: Sequence[str], doubled_tools: Sequence[str]) -> str:
    """`These tools run for real: book, pay.`, and the tools that doubles answer."""
    real = f"These tools run for real: {named_words(real_tools)}." if real_tools else "No known tool runs for real."
    return f"{real} Doubles answer {named_words(doubled_tools)}." if doubled_tools else real


def changed_sentence(parent_id: int) -> str:
    """The agent is another one than the one of the parent."""
    return f"The agent has changed since run {parent_id}: the fork answers for the agent as it is now."


def earlier_sentence(run_ids: Sequence[int], n_passed: int, n_scored: int) -> str:
    """`The same fork was played before: run 14, 3 of 10 passed.`; empty without one."""
    if not run_ids:
        return ""
    runs = ", ".join(f"run {run_id}" for run_id in run_ids[-3:])
    return f"The same fork was played before: {runs}; {n_passed:,} of {n_scored:,} passed."


def edits_words(part: ForkPart) -> str:
    """The edits in one line; `again from here` for none. A point inside the turn stands first."""
    words = "; ".join(map(edit_words, part.edits)) or "again from here"
    return f"before call {part.point.call}: {words}" if part.point.call else words
