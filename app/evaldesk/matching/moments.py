"""Times as agents write them: numbers since 1970 in seconds to nanoseconds, ISO 8601, and common texts."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from evaldesk.backports import UTC
from evaldesk.model import JsonValue

_UNITS = (1.0, 1e3, 1e6, 1e9)
_FIRST_S, _LAST_S = 1e9, 4.2e9  # 2001 and 2103: the ranges of the units do not overlap
_FORMATS = (
    "%a %b %d %H:%M:%S %Y",
    "%Y/%m/%d %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
    "%B %d, %Y",
    "%d %B %Y",
)
_LONGEST = 64
CLOCK_SKEW_S = 5.0
"""How far the clock of an agent may stand behind that of its player, a cut fraction of a second included."""
_ZONE_S = 14 * 3600.0
_DAY_S = 24 * 3600.0
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?(?: ?([APap][Mm]))?")
_HAS_SECONDS = re.compile(r":\d{2}:\d{2}|T\d{6}")
_HAS_FRACTION = re.compile(r":\d{2}[.,]\d|T\d{6}[.,]\d")
_YEAR = re.compile(r"(?<!\d)(?:20|21)\d\d(?!\d)|(?<!\d)(?:20|21)\d{6}T")


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time in seconds since 1970.

    `is_day` says that only a day is written, `is_text` that a text is, `has_zone` that it names its zone or needs none.
    """

    seconds: float
    is_day: bool = False
    is_text: bool = False
    has_zone: bool = True


def moment_of(value: JsonValue) -> Moment | None:
    """The time that the value looks like, between 2001 and 2103; None where it looks like none. A text without a zone
    counts as UTC.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _of_number(value)
    if not isinstance(value, str) or not 8 <= len(value) <= _LONGEST:
        return None
    text = value.strip()
    if text.replace(".", "", 1).isdecimal():
        instant = _of_number(float(text)) if len(text.partition(".")[0]) >= 10 else None
        return Moment(instant.seconds, is_text=True) if instant else None
    moment_text = _of_text(text)
    if moment_text is None:
        return None
    seconds = (moment_text if moment_text.tzinfo else moment_text.replace(tzinfo=UTC)).timestamp()
    is_day = ":" not in text and "T" not in text
    has_zone = moment_text.tzinfo is not None
    return Moment(seconds, is_day, is_text=True, has_zone=has_zone) if _FIRST_S <= seconds <= _LAST_S else None


def clock_seconds(text: str) -> int | None:
    """The seconds since midnight of a clock such as `9:05`, `21:05:30` or `9:05 pm`; None for another text."""
    parts = _CLOCK.fullmatch(text)
    if parts is None:
        return None
    hour, minute, second = (int(each or 0) for each in parts.group(1, 2, 3))
    if half := (parts.group(4) or "").lower():
        hour = hour % 12 + (12 if half == "pm" else 0)
    return hour * 3600 + minute * 60 + second


def step_of(value: JsonValue) -> float:
    """The step in seconds in which a time is written: a day, a minute, a second, or 0 for a smaller one."""
    if isinstance(value, str) and not value.strip().replace(".", "", 1).isdecimal():
        moment_text = moment_of(value)
        if moment_text and moment_text.is_day:
            return _DAY_S
        if _HAS_FRACTION.search(value):
            return 0.0
        return 1.0 if _HAS_SECONDS.search(value) else 60.0
    number = float(value) if isinstance(value, str | int | float) else 0.0
    return 1.0 if _FIRST_S <= number <= _LAST_S and number.is_integer() else 0.0


def is_later(expected: JsonValue, actual: JsonValue) -> bool:
    """Whether both are times that are written alike, and `actual` is not before `expected`."""
    if isinstance(expected, str) is not isinstance(actual, str):
        return False
    first, second = moment_of(expected), moment_of(actual)
    return (
        first is not None and second is not None and first.is_day == second.is_day and second.seconds >= first.seconds
    )


def is_after_start(expected: JsonValue, actual: JsonValue, start_time: float | None) -> bool:
    """Whether both are times that are written alike, and `actual` is not before the start of the trial.

    `start_time` is in seconds since 1970; without it the expected time takes its place. A text without a zone may be of
    any zone, and a day lasts until its end.
    """
    if start_time is None:
        return is_later(expected, actual)
    if isinstance(expected, str) is not isinstance(actual, str):
        return False
    first, second = moment_of(expected), moment_of(actual)
    if first is None or second is None or first.is_day != second.is_day:
        return False
    latest = second.seconds + (_DAY_S if second.is_day else 0.0) + (0.0 if second.has_zone else _ZONE_S)
    return latest >= start_time - CLOCK_SKEW_S


def _of_number(value: float) -> Moment | None:
    if not math.isfinite(value):
        return None
    seconds = (value / unit for unit in _UNITS if _FIRST_S <= value / unit <= _LAST_S)
    return next((Moment(each) for each in seconds), None)


def _of_text(text: str) -> datetime | None:
    if not _YEAR.search(text):  # each try of a format costs as much as a page of other texts
        return None
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    for form in _FORMATS:
        with suppress(ValueError):
            return datetime.strptime(text, form)
    with suppress(ValueError, IndexError, TypeError):
        return parsedate_to_datetime(text)
    return None
