"""The time of day and what has passed of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def utc_now() -> datetime:
    """This moment in UTC."""
    return datetime.now(UTC)


def ms_since(moment: datetime | None, now: datetime) -> float:
    """Milliseconds from `moment` to `now`; 0 without a moment, and when the clock was set back."""
    return max((now - moment) / timedelta(milliseconds=1), 0.0) if moment else 0.0
