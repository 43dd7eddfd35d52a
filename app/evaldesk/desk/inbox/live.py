"""Conversations of running agents, scored by criteria that need no model and no code of the user."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evaldesk.desk.inbox.scoring import AlarmState, LiveScore, ReleaseChange, alarm_state, release_change
from evaldesk.errors import UsageError
from evaldesk.metrics.metric import is_function, metric_info
from evaldesk.metrics.scoring import check_criteria, grade_trial
from evaldesk.model import Case, Criterion, Score, TrialResult, Turn, trial_verdict
from evaldesk.model.conclusion import Interval
from evaldesk.model.inbox import VERDICT, InboxScore
from evaldesk.statistics.intervals import wilson
from evaldesk.store import Store

AT_ONCE = 200
"""Conversations that one step scores and stores."""
SAMPLE = "sample"


@dataclass(frozen=True, slots=True)
class ReleaseRate:
    """The scored conversations of a release; empty where their traces name none."""

    release: str
    n_passed: int
    n_scored: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class LiveRates:
    """The pass rates of releases, oldest first, the newest against the one before, and the alarm.

    `alarms` are the conversations after which it rang, with the times of their scores.
    """

    releases: tuple[ReleaseRate, ...]
    change: ReleaseChange | None
    alarm: AlarmState
    alarms: tuple[tuple[int, datetime], ...]


class LiveDesk:
    """The scores of the conversations of a workspace. Works on the database: from pages, call it in a thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def score(self, criteria: Sequence[Criterion], since: datetime) -> int:
        """Score the ended conversations since then that have no score; gives their number.

        Raises UsageError for a criterion that a model judges, or that is a function of the user.
        """
        check_criteria(criteria)
        for criterion in criteria:
            if is_function(criterion) or metric_info(criterion.metric).has_judge:
                raise UsageError(
                    f"{criterion.metric}: a model or a function judges it; the inbox is scored by criteria without one",
                    field="criterion",
                )
        n_scored = 0
        while ids := self._store.inbox.unscored(since, AT_ONCE):
            scores = {number: _scores_of(self._store.inbox.content(number), criteria) for number in ids}
            self._store.inbox.record_scores(scores)
            n_scored += len(ids)
        return n_scored

    def rates(self, since: datetime, bar: float, alpha: float) -> LiveRates:
        """The rates and the alarm of conversations that were scored since then. Raises UsageError."""
        if not (0 < bar < 1 and 0 < alpha < 1):
            raise UsageError(f"bar and alpha lie between 0 and 1, got {bar:g} and {alpha:g}", field="bar")
        rows = self._store.inbox.scored_conversations(since)
        scores = [LiveScore(row.began_at, row.release, False, "sample", row.passed) for row in rows]
        releases = [*dict.fromkeys(score.release for score in sorted(scores, key=lambda score: score.began_at))]
        rates = []
        for release in releases:
            verdicts = [score.is_passed for score in scores if score.release == release]
            n_passed, n = sum(verdicts), len(verdicts)
            rates.append(ReleaseRate(release, n_passed, n, wilson(n_passed, n)))
        alarm = alarm_state(scores, bar, alpha)
        alarms = tuple((rows[place - 1].id, rows[place - 1].scored_at) for place in alarm.rings)
        change = release_change(scores, *releases[-2:]) if releases[1:] else None
        return LiveRates(tuple(rates), change, alarm, alarms)


def _scores_of(result: TrialResult, criteria: Sequence[Criterion]) -> list[InboxScore]:
    """The verdict and the scores of all criteria over the whole conversation, which expects nothing."""
    case = Case("conversation", tuple(Turn(turn.query) for turn in result.transcript.turns))
    grading = asyncio.run(grade_trial(result.transcript, case, criteria))
    whole_scores = {score.metric: score for score in grading.scores if score.turn is None}
    passed = {"passed": True, "failed": False}.get(trial_verdict(grading.scores, criteria, None))
    own = (_inbox_score(criterion.metric, whole_scores.get(criterion.metric)) for criterion in criteria)
    return [InboxScore(VERDICT, None, passed, "", SAMPLE), *own]


def _inbox_score(metric: str, score: Score | None) -> InboxScore:
    if score is None:
        return InboxScore(metric, None, None, "It has no score.", SAMPLE)
    reason = score.error.message if score.error else score.reason
    return InboxScore(metric, score.value, score.passed, reason, SAMPLE)
