"""The scores of live traffic: its share by day and release, one release against another, and the alarm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, TypeAlias

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import newcombe
from evaldesk.statistics.rate_alarm import RateAlarm
from evaldesk.statistics.weighted_share import ReadStratum, weighted_share

Origin: TypeAlias = Literal["sample", "forced"]
"""Why a conversation was scored: the hash sampled it, or only its error forced it."""


@dataclass(frozen=True, slots=True)
class LiveScore:
    """The verdict on a conversation of live traffic."""

    began_at: datetime
    release: str
    has_error: bool
    origin: Origin
    is_passed: bool


@dataclass(frozen=True, slots=True)
class LiveDay:
    """The scored traffic of a release in a day of UTC; `n_passed` of `n_scored` are counted without weights.

    `share` passed, 0 to 1, weighted by all conversations of the day; None where a part of them was not scored at all.
    """

    day: date
    release: str
    n_passed: int
    n_scored: int
    share: float | None
    interval: Interval | None


def live_days(scores: Iterable[LiveScore], n_all: Mapping[tuple[date, str, bool], int]) -> tuple[LiveDay, ...]:
    """The share passed a day and release, oldest first; `n_all` counts all conversations by day, release and error.

    Conversations with an error are a stratum of their own where errors were forced: more of them were scored.
    """
    by_day: dict[tuple[date, str], list[LiveScore]] = {}
    for score in scores:
        by_day.setdefault((score.began_at.date(), score.release), []).append(score)
    return tuple(_live_day(key, by_day[key], n_all) for key in sorted(by_day))


def _live_day(
    key: tuple[date, str], scores: Sequence[LiveScore], n_all: Mapping[tuple[date, str, bool], int]
) -> LiveDay:
    strata = []
    for has_error in (False, True):
        own = [score for score in scores if score.has_error is has_error]
        n_failed = sum(not score.is_passed for score in own)
        strata.append(ReadStratum(max(len(own), n_all.get((*key, has_error), 0)), len(own), n_failed))
    if not any(score.origin == "forced" for score in scores):
        # One sample of both: each conversation had the same chance.
        sizes, n_scored = (sum(each.size for each in strata), sum(each.n_read for each in strata))
        strata = [ReadStratum(sizes, n_scored, sum(each.n_failed for each in strata))]
    failed_share = weighted_share(strata)
    n_passed = sum(score.is_passed for score in scores)
    if failed_share is None:
        return LiveDay(*key, n_passed, len(scores), None, None)
    interval = Interval(1 - failed_share.interval.high, 1 - failed_share.interval.low)
    return LiveDay(*key, n_passed, len(scores), 1 - failed_share.share, interval)


@dataclass(frozen=True, slots=True)
class ReleaseChange:
    """The pass rates of two releases among sampled conversations, and the difference with its 95 % interval."""

    before: str
    after: str
    n_passed: tuple[int, int]
    n_scored: tuple[int, int]
    difference: float
    interval: Interval

    @property
    def could_be_chance(self) -> bool:
        """Whether no difference lies in the interval."""
        return self.interval.low <= 0 <= self.interval.high


def release_change(scores: Sequence[LiveScore], before: str, after: str) -> ReleaseChange | None:
    """The newer release against the older one; None while one of them has no sampled conversation."""
    counts = [_passes(scores, release) for release in (before, after)]
    if not all(n for _, n in counts):
        return None
    (n_passed_before, n_before), (n_passed_after, n_after) = counts
    return ReleaseChange(
        before,
        after,
        (n_passed_before, n_passed_after),
        (n_before, n_after),
        n_passed_after / n_after - n_passed_before / n_before,
        newcombe(n_passed_after, n_after, n_passed_before, n_before),
    )


def _passes(scores: Sequence[LiveScore], release: str) -> tuple[int, int]:
    sampled_scores = [score for score in scores if score.release == release and score.origin == "sample"]
    return sum(score.is_passed for score in sampled_scores), len(sampled_scores)


@dataclass(frozen=True, slots=True)
class AlarmState:
    """The alarms of a sequence of scores, by their places from 1, and the evidence since the last one.

    `evidence` is on a scale of logarithms, from 0: at 1 it rings, and begins again. `curve` has it after each score.
    """

    rings: tuple[int, ...]
    evidence: float
    n_scored: int
    curve: tuple[float, ...] = ()


def alarm_state(scores: Iterable[LiveScore], bar: float, alpha: float) -> AlarmState:
    """The state of the alarm after these scores, in the order of scoring; forced ones are left out, as no sample.

    Raises ValueError for a bar or an alpha that is not between 0 and 1.
    """
    alarm = RateAlarm(bar, alpha)
    rings: list[int] = []
    curve: list[float] = []
    n_scored = 0
    for score in scores:
        if score.origin == "sample":
            n_scored += 1
            if alarm.add(score.is_passed):
                rings.append(n_scored)
            curve.append(max(0.0, alarm.evidence))
    is_new = bool(rings) and rings[-1] == n_scored
    return AlarmState(tuple(rings), 0.0 if is_new or not n_scored else max(0.0, alarm.evidence), n_scored, tuple(curve))
