"""Checks of the numbers of a trial's result, which a worker process sent."""

from __future__ import annotations

from collections.abc import Iterator

from evaldesk.errors import VALUE_LIMIT, BadNumberError
from evaldesk.model.prompts import Prompts
from evaldesk.model.run import TrialResult
from evaldesk.model.transcript import check_turn, checked_amount, checked_count, is_score


def check_result(result: TrialResult) -> None:
    """Raise BadNumberError for a number of the result that cannot be, its totals included.

    The numbers of its usages were checked when they were made.
    """
    checked_amount("duration_ms", result.duration_ms)
    for name, total in _totals(result):
        checked_amount(name, total)
    for turn in result.transcript.turns:
        check_turn(turn)
    for score in result.scores:
        if score.value is not None and not is_score(score.value):
            raise BadNumberError(
                f"score.value must be a number from -2**53 to 2**53, got {str(score.value)[:VALUE_LIMIT]}"
            )
        if score.turn is not None:
            checked_count("score.turn", score.turn)
    check_prompts(result.prompts)


def check_prompts(prompts: Prompts | None) -> None:
    """Raise BadNumberError for a number of a call that cannot be."""
    for call in prompts.calls if prompts else ():
        for name in ("turn", "tokens_in", "tokens_out"):
            checked_count(f"prompt.{name}", getattr(call, name))
        for name in ("at_ms", "duration_ms"):
            checked_amount(f"prompt.{name}", getattr(call, name))


def _totals(result: TrialResult) -> Iterator[tuple[str, float]]:
    yield "the sum of usage.tokens_in", sum(usage.tokens_in for usage in result.usages)
    yield "the sum of usage.tokens_out", sum(usage.tokens_out for usage in result.usages)
    yield "the sum of usage.cost", sum(usage.cost or 0.0 for usage in result.usages)
