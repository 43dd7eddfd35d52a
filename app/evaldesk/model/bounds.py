"""What a number that comes from outside can be: finite, from 0 to 2**53 where it counts or measures something."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, TypeGuard

from evaldesk.errors import BadNumberError

if TYPE_CHECKING:
    from evaldesk.model.conclusion import Score
    from evaldesk.model.run import TrialResult
    from evaldesk.model.transcript import Event, TurnRecord

MAX_NUMBER = 2**53
"""The largest number of tokens, dollars or milliseconds: what a float still counts by ones."""


def checked_amount(name: str, value: object) -> float:
    """The number, from 0 to 2**53, of whatever type it is. Raises BadNumberError naming the field."""
    number = value if type(value) in {int, float} else _number(value)
    if not isinstance(number, int | float) or not 0 <= number <= MAX_NUMBER:
        shown = value if isinstance(value, int | float) else f"{type(value).__name__} {str(value)[:40]!r}"
        raise BadNumberError(f"{name} must be a number from 0 to 2**53, got {str(shown)[:80]}")
    return number


def checked_count(name: str, value: object) -> int:
    """As `checked_amount`, for a whole number."""
    number = checked_amount(name, value)
    if number != int(number):
        raise BadNumberError(f"{name} must be a whole number, got {number}")
    return int(number)


def is_score(value: object) -> TypeGuard[float]:
    """Whether a score can have that value: a number, not a truth value, from -2**53 to 2**53."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def check_turn(turn: TurnRecord) -> None:
    """Raise BadNumberError for a time of the turn or of one of its events that cannot be."""
    checked_amount("turn.duration_ms", turn.duration_ms)
    for event in turn.events:
        check_event(event)


def check_event(event: Event) -> None:
    """Raise BadNumberError for a time of the event that cannot be."""
    checked_amount("event.at_ms", event.at_ms)
    if event.duration_ms is not None:
        checked_amount("event.duration_ms", event.duration_ms)


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
        _check_score(score)


def _totals(result: TrialResult) -> Iterator[tuple[str, float]]:
    yield "the sum of usage.tokens_in", sum(usage.tokens_in for usage in result.usages)
    yield "the sum of usage.tokens_out", sum(usage.tokens_out for usage in result.usages)
    yield "the sum of usage.cost", sum(usage.cost or 0.0 for usage in result.usages)


def _check_score(score: Score) -> None:
    if score.value is not None and not is_score(score.value):
        raise BadNumberError(f"score.value must be a number from -2**53 to 2**53, got {str(score.value)[:80]}")
    if score.turn is not None:
        checked_count("score.turn", score.turn)


def _number(value: object) -> float | None:
    """A number of another library as a float; None for what is none, a truth value among them."""
    is_number = isinstance(value, Real | Decimal) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type] # both can be made a float
