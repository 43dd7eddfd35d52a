"""Conversations of running agents, scored as `[inbox.score]` says, and the alarm of their pass rate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from evaldesk.desk.criteria.criteria import criteria_of
from evaldesk.desk.inbox.notices import AlarmNotice, FreshScores, emit_scores, last_notice, send_notice
from evaldesk.desk.inbox.sampling import is_sampled
from evaldesk.desk.inbox.scoring import (
    AlarmState,
    LiveDay,
    LiveScore,
    Origin,
    ReleaseChange,
    alarm_state,
    live_days,
    release_change,
)
from evaldesk.errors import UsageError
from evaldesk.metrics.metric import is_function, metric_info
from evaldesk.metrics.scoring import check_criteria, grade_trial
from evaldesk.model import Case, Criterion, Score, TrialResult, Turn, trial_verdict
from evaldesk.model.client_budget import Budget
from evaldesk.model.conclusion import Interval
from evaldesk.model.inbox import ABOUT, JUDGE_COST, VERDICT, Conversation, InboxScore, ScoredConversation
from evaldesk.settings import InboxScoring, Settings
from evaldesk.statistics.intervals import wilson
from evaldesk.store import Store

AT_ONCE = 200
"""Conversations that one step scores and stores."""
SAMPLE: Origin = "sample"
FORCED: Origin = "forced"
LEFT_OUT = ""
"""The stratum of conversations that no judge saw, as they are not in the sample."""
MOST_IN_ALARM = 20_000
"""The newest scored conversations that the alarm looks at."""
SCORING_HOLD = "inbox-score"
WINDOW = timedelta(days=14)
"""The scores of so long ago are rated, and conversations that began since then are scored."""


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """Criteria without a model, which score all conversations, and `judged` ones, which score a sample.

    `sample` is a share from 0 to 1; `has_forced_errors` adds the conversations with an error. Judges stop for the day
    of UTC once they cost `usd_a_day`.
    """

    criteria: tuple[Criterion, ...]
    judged: tuple[Criterion, ...] = ()
    sample: float = 1.0
    has_forced_errors: bool = False
    usd_a_day: float = 0.0

    @property
    def all_criteria(self) -> tuple[Criterion, ...]:
        """All criteria, those without a model first."""
        return (*self.criteria, *self.judged)

    def origin(self, conversation: Conversation) -> Origin | None:
        """Why all criteria score a conversation; None where judges leave it out."""
        if not self.judged or is_sampled(conversation.name, self.sample):
            return SAMPLE
        return FORCED if self.has_forced_errors and conversation.has_error else None


def scoring_plan(criteria: Sequence[Criterion], scoring: InboxScoring | None = None) -> ScoringPlan:
    """How conversations are scored by these criteria, of `[inbox.score]` where it is there.

    Raises UsageError for a function of the user, and for a judge without a budget.
    """
    check_criteria(criteria)
    if function := next((each for each in criteria if is_function(each)), None):
        raise UsageError(
            f"{function.metric}: it is code of this folder; the inbox is scored by metrics of Evaldesk",
            field="criterion",
        )
    judged = tuple(each for each in criteria if metric_info(each.metric).has_judge)
    if judged and not (scoring and scoring.judge_budget):
        raise UsageError(
            f"{judged[0].metric}: a model judges it, so [inbox.score] of evaldesk.toml needs a budget, such as "
            'judge_budget = "2usd/day"',
            field="criterion",
        )
    cheap = tuple(each for each in criteria if each not in judged)
    if scoring is None:
        return ScoringPlan(cheap)
    usd = Budget.read(scoring.judge_budget).usd if scoring.judge_budget else 0.0
    return ScoringPlan(cheap, judged, scoring.sample, scoring.errors, usd)


@dataclass(frozen=True, slots=True)
class ReleaseRate:
    """The scored conversations of a release; empty where their traces name none."""

    release: str
    n_passed: int
    n_scored: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class LiveRates:
    """The pass rates of releases, oldest first, the newest against the one before, each day, and the alarm.

    `alarms` are the conversations after which it rang, with the times of their scores. `release_starts` are the places
    from 1 of the first score of each release in the order of scoring.
    """

    releases: tuple[ReleaseRate, ...]
    change: ReleaseChange | None
    alarm: AlarmState
    alarms: tuple[tuple[int, datetime], ...]
    days: tuple[LiveDay, ...] = ()
    release_starts: tuple[tuple[str, int], ...] = ()


class LiveDesk:
    """The scores of the conversations of a workspace. Works on the database: from pages, call it in a thread."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store

    def score(self, plan: ScoringPlan, since: datetime, *, is_sent: bool = False) -> int:
        """Score the ended conversations since then that have no score; gives their number.

        With `is_sent`, for a trusted folder alone, they go to the address `emit` too. Another process that scores goes
        on alone; once the budget of judges is spent, the others wait for the next day. A judge of unknown price takes
        all that is left of the budget.
        """
        end_hold = self._store.try_hold(SCORING_HOLD)
        if end_hold is None:
            return 0
        try:
            return self._score(plan, since, emit=self._settings.inbox.emit if is_sent else "")
        finally:
            end_hold()

    def _score(self, plan: ScoringPlan, since: datetime, *, emit: str) -> int:
        n_scored, is_spent = 0, False
        # Judges take seconds each: fewer at once, so that little is lost when the process ends.
        at_once = 10 if plan.judged else AT_ONCE
        while not is_spent and (ids := self._store.inbox.unscored(since, at_once)):
            conversations = self._store.inbox.many(ids)
            usd_left = self._usd_left(plan) if plan.judged else 0.0
            batch: list[FreshScores] = []
            rows: dict[int, list[InboxScore]] = {}
            for number in ids:
                if number not in conversations:  # it was removed meanwhile
                    continue
                conversation = conversations[number]
                origin = plan.origin(conversation)
                if plan.judged and origin and usd_left <= 0:
                    is_spent = True
                    break
                rows[number], usd = _scores_of(self._store.inbox.content(number), plan, origin)
                if usd is None:
                    usd, is_spent = max(usd_left, 0.0), True
                if plan.judged and origin:
                    rows[number].append(InboxScore(JUDGE_COST, usd, None, "", origin))
                usd_left -= usd
                scores = tuple(each for each in rows[number] if each.metric not in ABOUT)
                batch.append(FreshScores(conversation, scores))
                if is_spent:
                    break
            self._store.inbox.record_scores(rows)
            n_scored += len(rows)
            if emit and batch:
                emit_scores(emit, batch, self._store.now())
            if not rows:
                break
        return n_scored

    def _usd_left(self, plan: ScoringPlan) -> float:
        begin = datetime.combine(self._store.now().astimezone(UTC).date(), time(), UTC)
        return plan.usd_a_day - self._store.inbox.judge_cost(begin, begin + timedelta(days=1))

    def rates(self, since: datetime, bar: float, alpha: float) -> LiveRates:
        """The rates and the alarm of conversations that were scored since then. Raises UsageError."""
        if not (0 < bar < 1 and 0 < alpha < 1):
            raise UsageError(f"bar and alpha lie between 0 and 1, got {bar:g} and {alpha:g}", field="bar")
        rows = self._store.inbox.scored_conversations(since, MOST_IN_ALARM)
        scores = [*map(_live_score, rows)]
        sampled_rows = [row for row in rows if row.stratum != FORCED]
        releases = [*dict.fromkeys(score.release for score in sorted(scores, key=lambda score: score.began_at))]
        rates = []
        for release in releases:
            verdicts = [score.is_passed for score in scores if score.release == release and score.origin == SAMPLE]
            n_passed, n = sum(verdicts), len(verdicts)
            if n:
                rates.append(ReleaseRate(release, n_passed, n, wilson(n_passed, n)))
        alarm = alarm_state(scores, bar, alpha)
        alarms = tuple((sampled_rows[place - 1].id, sampled_rows[place - 1].scored_at) for place in alarm.rings)
        change = release_change(scores, rates[-2].release, rates[-1].release) if rates[1:] else None
        starts: dict[str, int] = {}
        for place, row in enumerate(sampled_rows, start=1):
            starts.setdefault(row.release, place)
        days = live_days(scores, self._n_all(scores))
        return LiveRates(tuple(rates), change, alarm, alarms, days, tuple(starts.items()))

    def has_scores(self, since: datetime) -> bool:
        """Whether a conversation got a verdict since then."""
        return bool(self._store.inbox.scored_conversations(since, 1))

    def recent_rates(self) -> LiveRates:
        """The rates and the alarm of the last days, with the bar of `[inbox.score]`."""
        scoring = self._settings.inbox.score or InboxScoring()
        return self.rates(self._store.now() - WINDOW, scoring.bar, scoring.alpha)

    def score_by_settings(self, scoring: InboxScoring, *, is_trusted: bool) -> int:
        """Score new conversations, send their scores and tell of a new alarm; gives the number of scored ones.

        In a folder that nobody trusts only criteria without a model score: nothing is asked, started or sent. Raises
        UsageError for criteria that cannot be.
        """
        plan = scoring_plan(criteria_of(scoring.criteria), scoring)
        if plan.judged and not is_trusted:
            return 0
        since = self._store.now() - WINDOW
        n_scored = self.score(plan, since, is_sent=is_trusted)
        if is_trusted and (self._settings.inbox.on_alarm or self._settings.inbox.emit):
            self.tell_alarm(self.rates(since, scoring.bar, scoring.alpha), since, scoring.bar, scoring.alpha)
        return n_scored

    def tell_alarm(self, rates: LiveRates, since: datetime, bar: float, alpha: float) -> bool:
        """Start `on_alarm` and send an event for the newest alarm, once for each; whether there was a new one.

        It counts from the last alarm that was told of, since those of `rates` move when old scores leave the window.
        Only for a trusted folder.
        """
        if not rates.alarms:
            return False
        last = last_notice(self._settings)
        scored = self._store.inbox.scored_conversations(max(since, last[0]), MOST_IN_ALARM)
        rows = [row for row in scored if row.stratum != FORCED and (row.scored_at, row.id) > last]
        rings = alarm_state(map(_live_score, rows), bar, alpha).rings
        if not rings:
            return False
        row, newest = rows[rings[-1] - 1], rates.releases[-1]
        notice = AlarmNotice(row.id, row.scored_at, bar, newest.release, newest.n_passed, newest.n_scored)
        return send_notice(self._settings, self._store, notice)

    def _n_all(self, scores: Sequence[LiveScore]) -> Mapping[tuple[date, str, bool], int]:
        """All ended conversations of the scored days, by day of UTC, release and error."""
        n_all: dict[tuple[date, str, bool], int] = {}
        for day in sorted({score.began_at.astimezone(UTC).date() for score in scores}):
            begin = datetime.combine(day, time(), UTC)
            counts = self._store.inbox.counts_of_day(begin, begin + timedelta(days=1))
            n_all |= {(day, release, has_error): n for (release, has_error), n in counts.items()}
        return n_all


def _live_score(row: ScoredConversation) -> LiveScore:
    origin: Origin = FORCED if row.stratum == FORCED else SAMPLE
    return LiveScore(row.began_at, row.release, row.has_error, origin, row.passed)


def _scores_of(result: TrialResult, plan: ScoringPlan, origin: Origin | None) -> tuple[list[InboxScore], float | None]:
    """The verdict and the scores over the whole conversation, which expects nothing, and the dollars of its judges.

    The dollars are None where a price is unknown. A conversation that judges leave out has the scores of the other
    criteria and no verdict.
    """
    criteria = plan.all_criteria if origin else plan.criteria
    stratum = origin or LEFT_OUT
    case = Case("conversation", tuple(Turn(turn.query) for turn in result.transcript.turns))
    grading = asyncio.run(grade_trial(result.transcript, case, criteria))
    whole_scores = {score.metric: score for score in grading.scores if score.turn is None}
    passed = {"passed": True, "failed": False}.get(trial_verdict(grading.scores, criteria, None)) if origin else None
    own = [_inbox_score(criterion.metric, whole_scores.get(criterion.metric), stratum) for criterion in criteria]
    verdict = InboxScore(VERDICT, None, passed, "" if origin else "It is not in the sample.", stratum)
    if not (origin and plan.judged):
        return [verdict, *own], 0.0
    costs = [usage.cost for usage in grading.usages if not usage.is_replayed]
    return [verdict, *own], None if None in costs else sum(cost or 0.0 for cost in costs)


def _inbox_score(metric: str, score: Score | None, stratum: str) -> InboxScore:
    if score is None:
        return InboxScore(metric, None, None, "It has no score.", stratum)
    reason = score.error.message if score.error else score.reason
    return InboxScore(metric, score.value, score.passed, reason, stratum)
