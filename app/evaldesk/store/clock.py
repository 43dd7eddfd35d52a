"""The time of day, and the time that runs take."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


def utc_now() -> datetime:
    """This moment in UTC."""
    return datetime.now(UTC)


class Clock:
    """Tells this moment, and how long the runs of this process go on.

    That is not read off the time of day, which people set and which goes on while the machine sleeps: `seconds` says
    how much has passed. A run's time is written down again and again, together with the moment.
    """

    def __init__(self, now: Callable[[], datetime], seconds: Callable[[], float]) -> None:
        self._now = now
        self._seconds = seconds
        self._laps: dict[int, dict[datetime, float]] = {}

    def __call__(self) -> datetime:
        """This moment in UTC."""
        return self._now()

    def lap(self, run_id: int, was: datetime | None, now: datetime) -> float | None:
        """Milliseconds since `was`, when the run's time was last written down; the next lap begins `now`.

        0 for a run that begins and has no such moment; None where another process wrote it down. A lap that could not
        be written after all is asked for again, with the moment that still stands.
        """
        seconds = self._seconds()
        known = self._laps.get(run_id, {})
        begun = seconds if was is None else known.get(was)
        if begun is None:
            return None
        self._laps[run_id] = {moment: at for moment, at in known.items() if moment == was} | {now: seconds}
        return (seconds - begun) * 1000

    def ms_since(self, run_id: int, was: datetime | None) -> float:
        """Milliseconds since `was`, by the time of day where another process wrote it; 0 without such a moment."""
        if was is None:
            return 0.0
        begun = self._laps.get(run_id, {}).get(was)
        if begun is None:
            return max((self() - was) / timedelta(milliseconds=1), 0.0)
        return (self._seconds() - begun) * 1000
