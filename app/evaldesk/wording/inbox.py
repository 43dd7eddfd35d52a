"""Sentences about the conversations of running agents."""

from __future__ import annotations

from evaldesk.model.conclusion import Interval


def alarm_sentence(release: str, passed: str, bar: str) -> str:
    """`Below 85 %, release 1.5: 104 of 140 passed`, where the alarm rang; else `Release 1.5: 104 of 140 passed`."""
    if bar:
        return f"Below {bar}, release {release}: {passed}" if release else f"Below {bar}: {passed}"
    return f"Release {release}: {passed}" if release else f"No release: {passed}"


def release_change_sentence(release: str, difference: float, interval: Interval) -> str:
    """`18 points less than release 1.4, could be 12 to 26.`, or `... could be chance.`: a newer release against it."""
    points, way = abs(round(100 * difference)), "more" if difference > 0 else "less"
    name = f"release {release}" if release else "conversations without a release"
    if interval.low <= 0 <= interval.high:
        return f"{points} points {way} than {name}, could be chance."
    low, high = sorted(abs(round(100 * end)) for end in (interval.low, interval.high))
    return f"{points} points {way} than {name}, could be {low} to {high}."
