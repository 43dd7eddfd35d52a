"""How values are written on pages: times, sizes, numbers. One filter each.

The reports are imported by those that need them, after the first page, which does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from evaldesk.model import AskedBy
from evaldesk.model.json_text import json_line
from evaldesk.model.transcript import MAX_NUMBER
from evaldesk.wording.json_layout import as_json

if TYPE_CHECKING:
    from evaldesk.model.conclusion import Interval


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago `moment` was, in words; a dash for None."""
    if moment is None:
        return "–"
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if seconds < 60:
        return "just now"
    for unit, size, limit in (("min", 60, 3600), ("h", 3600, 86400), ("day", 86400, 86400 * 30)):
        if seconds < limit:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''} ago"
    return day(moment)


def duration(ms: float | None) -> str:
    """Milliseconds in the unit a person would use; a dash for None, and for a time that cannot be."""
    if ms is None or not 0 <= ms <= MAX_NUMBER:
        return "–"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(int(ms // 1000), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def score(value: float | None, digits: int = 2) -> str:
    """A score with fixed digits, whole from 100 on; a dash where there is none."""
    if value is None:
        return "–"
    if abs(value) < 99.995:
        return f"{value:.{digits}f}"
    from evaldesk.wording.words import number_words

    return number_words(value)


def dollars(cost: float | None) -> str:
    """US dollars with as many digits as small sums need; a dash where the price is unknown."""
    if cost is None:
        return "–"
    from evaldesk.wording.words import cost_words

    return cost_words(cost)


def count(number: int) -> str:
    """A whole number with separators; thousands shortened from 10,000 on."""
    return f"{number:,}" if number < 10_000 else f"{number / 1000:,.1f}k"


def plural(number: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rate_label(rate: float, low: float, high: float) -> str:
    """The text of a rate's bar for people who cannot see it."""
    from evaldesk.model.conclusion import Interval
    from evaldesk.wording.words import rate_words

    return rate_words(rate, Interval(low, high))


def passed_words(passed: int, scored: int) -> str:
    """How many passed of those that were scored."""
    from evaldesk.wording import words as sentences

    return sentences.passed_words(passed, scored)


def size(n_bytes: int) -> str:
    """A number of bytes in the unit a person would use."""
    from evaldesk.wording.words import size_words

    return size_words(n_bytes)


def day(moment: datetime) -> str:
    """The date of a moment."""
    return moment.strftime("%-d %b %Y")


def share_range(interval: Interval | None) -> str:
    """Both ends of an interval of a number that is shown as 0 to 1."""
    from evaldesk.wording import words as sentences

    return sentences.share_range(interval)


def speaker(asked_by: AskedBy | None) -> str:
    """The author of the message of a turn."""
    return {"person": "You", "simulated": "Simulated user", "scripted": "Scripted user"}.get(asked_by or "", "User")


FILTERS: Mapping[str, Callable[..., str]] = {
    "ago": ago,
    "duration": duration,
    "score": score,
    "dollars": dollars,
    "count": count,
    "size": size,
    "day": day,
    "as_json": as_json,
    "as_line": json_line,
    "plural": plural,
    "speaker": speaker,
    "passed_words": passed_words,
    "rate_label": rate_label,
    "share_range": share_range,
}
