"""`response_number`: the last number of the answer is that of the reference."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import ClassVar

from evaldesk.errors import UsageError
from evaldesk.metrics.metric import Judgement, MetricInfo, score_turns
from evaldesk.metrics.option import option
from evaldesk.model import Case, Expected, Score, Transcript, TurnRecord

_SEPARATORS = ",'’_\u00a0\u2009\u202f"
_NUMBER = re.compile(
    rf"(?P<sign>(?<!\w)[-\u2212][$€£¥]?)?"
    rf"(?P<digits>(?:[0-9]{{1,3}}(?P<mark>[{_SEPARATORS}])[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*(?![0-9])|[0-9]+)"
    rf"(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
    rf"(?P<exponent>[eE][+-]?[0-9]{{1,3}}(?![0-9]))?"
)
_UNMARKED = str.maketrans("", "", _SEPARATORS)
_MAX_DIGITS = 40


@dataclass(frozen=True, slots=True)
class ResponseNumber:
    """1 for each turn whose answer ends on the number its reference ends on, at most `tolerance` apart.

    Commas, apostrophes and fixed spaces part thousands, a point parts decimals. Numbers are compared in decimal, so
    that a tolerance of 0.1 takes 0.3 for 0.2. A turn whose reference has no number is left out of the mean.
    """

    tolerance: float = option(
        0.0, "number", "Tolerance", "How far the number may be from that of the reference.", low=0
    )

    info: ClassVar[MetricInfo] = MetricInfo(
        "response_number",
        "Response, number",
        "Share of turns whose last number is that of the reference.",
        needs="reference_number",
    )

    def __post_init__(self) -> None:
        if not math.isfinite(self.tolerance) or self.tolerance < 0:
            raise UsageError(f"tolerance must be a number from 0 up, got {self.tolerance:g}")

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """1 or 0 for each turn whose reference has a number, and their mean."""
        return score_turns(self.info.name, transcript, case, is_number_reference, self._judge)

    def _judge(self, expected: Expected, record: TurnRecord) -> Judgement:
        expected_number, actual_number = last_number(expected.reference or ""), last_number(record.answer)
        if not record.answer.strip():
            return 0.0, "The agent gave no answer.", {}
        if actual_number is None or expected_number is None:
            return 0.0, "The answer has no number.", {}
        details = {"expected": _short_number(expected_number), "given": _short_number(actual_number)}
        is_near = _distance(expected_number, actual_number) <= Decimal(repr(self.tolerance))
        words = f"The last number is {_short_number(actual_number)}"
        if expected_number == actual_number:
            return 1.0, f"{words}, as expected.", details
        within = f"{'' if is_near else 'not '}within {self.tolerance:g} of it" if self.tolerance else ""
        return (
            float(is_near),
            f"{words}, expected {_short_number(expected_number)}{f': {within}' if within else ''}.",
            details,
        )


def is_number_reference(expected: Expected) -> bool:
    """Whether the turn has a reference with a number in it."""
    return _NUMBER.search(expected.reference or "") is not None


def last_number(text: str) -> Decimal | None:
    """The last number in `text`, without its thousands separators; None when there is none."""
    match = None
    for match in _NUMBER.finditer(text):  # noqa: B007
        pass
    if match is None:
        return None
    sign = "-" if match["sign"] else ""
    return Decimal(f"{sign}{match['digits'].translate(_UNMARKED)}{match['exponent'] or ''}")


def _distance(a: Decimal, b: Decimal) -> Decimal:
    """Exact at any length: exponents have three digits, so this many places hold every sum."""
    n_places = len(a.as_tuple().digits) + len(b.as_tuple().digits) + 2_100
    exact = Context(prec=n_places, Emax=MAX_EMAX, Emin=MIN_EMIN)
    return exact.abs(exact.subtract(a, b))


def _short_number(number: Decimal) -> str:
    text = str(number)
    return text if len(text) <= _MAX_DIGITS else f"{text[:_MAX_DIGITS]}…"
