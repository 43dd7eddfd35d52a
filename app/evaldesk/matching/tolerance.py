"""Tolerances of an expected argument: allowed values, patterns, numeric bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

from evaldesk.errors import MetricError, UsageError
from evaldesk.matching.json_equality import json_equal
from evaldesk.model import JsonValue


@dataclass(frozen=True)
class Tolerance:
    """Values of top-level arguments that are accepted beside the expected one.

    Each mapping goes by the name of an argument, or by `tool/argument` for one tool only, which comes first.
    `any_of` lists values, `patterns` are regular expressions that match a whole text, `tolerances` say how far a
    number may be from the expected one. Raises UsageError for a pattern or a tolerance that cannot be.
    """

    any_of: Mapping[str, Sequence[JsonValue]] = field(default_factory=dict)
    patterns: Mapping[str, str] = field(default_factory=dict)
    tolerances: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, pattern in self.patterns.items():
            check_pattern(pattern, f"the pattern of {key}", field="patterns")
        for key, tolerance in self.tolerances.items():
            if not math.isfinite(tolerance) or tolerance < 0:
                raise UsageError(
                    f"the tolerance of {key} must be a number from 0 up, got {tolerance:g}", field="tolerances"
                )

    def __bool__(self) -> bool:
        return bool(self.any_of or self.patterns or self.tolerances)

    def reason(self, tool: str, key: str, expected: JsonValue, actual: JsonValue) -> str:
        """Why `actual` is accepted in the place of `expected`; empty when it is not. Raises MetricError."""
        place = f"{tool}/{key}"
        values = self.any_of.get(place, self.any_of.get(key, ()))
        if any(json_equal(value, actual) for value in values):
            return "is an allowed value"
        pattern = self.patterns.get(place, self.patterns.get(key))
        if pattern is not None and isinstance(actual, str) and has_match(pattern, actual, is_whole=True):
            return "matches its pattern"
        tolerance = self.tolerances.get(place, self.tolerances.get(key))
        if tolerance is not None and _is_near(expected, actual, tolerance):
            return f"is within {tolerance:g}"
        return ""


def _is_near(expected: JsonValue, actual: JsonValue, tolerance: float) -> bool:
    """Whether two numbers are at most `tolerance` apart, as they are written: 0.3 is within 0.1 of 0.2."""
    if not (_is_number(expected) and _is_number(actual)):
        return False
    return abs(_exact(expected) - _exact(actual)) <= _exact(tolerance)


def _is_number(value: JsonValue) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _exact(value: JsonValue) -> Fraction:
    return Fraction(value if isinstance(value, int) else repr(value))


MAX_PATTERN = 1_000
MAX_TEXT = 1_000_000
LIMIT_S = 1.0


def check_pattern(pattern: str, what: str, *, field: str) -> None:
    """Raise UsageError, about `what` and naming the `field`, for a regular expression that is too long or wrong."""
    import regex

    if len(pattern) > MAX_PATTERN:
        raise UsageError(f"{what} has {len(pattern):,} characters; {MAX_PATTERN:,} are allowed", field=field)
    try:
        _compile(pattern)
    except regex.error as error:
        raise UsageError(f"{what} is not a regular expression: {error}", field=field) from error


def has_match(pattern: str, text: str, *, is_whole: bool = False) -> bool:
    """Whether `pattern` is found in `text`, or matches all of it. Raises MetricError after a second.

    Nested repetitions such as `(a+)+b` may take ages on some text; the package `regex` can be stopped, `re` cannot.
    """
    if len(text) > MAX_TEXT:
        raise MetricError(f"{len(text):,} characters are more than a regular expression may search: {MAX_TEXT:,}")
    compiled = _compile(pattern)
    search = compiled.fullmatch if is_whole else compiled.search
    try:
        return search(text, timeout=LIMIT_S, concurrent=True) is not None
    except TimeoutError:
        raise MetricError(
            f"the regular expression {pattern!r:.100} takes more than {LIMIT_S:g} s on this text; "
            "write it without repetitions inside repetitions"
        ) from None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Any:
    import regex

    return regex.compile(pattern)


def distance(expected: JsonValue, actual: JsonValue) -> float | None:
    """The smallest tolerance that accepts the actual number; None without one."""
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in (expected, actual)):
        return None
    try:
        far = abs(Fraction(repr(expected)) - Fraction(repr(actual)))
        near = float(far)
    except (OverflowError, ValueError):  # no finite number, or one that is farther than any
        return None
    return near if Fraction(repr(near)) >= far else math.nextafter(near, math.inf)
