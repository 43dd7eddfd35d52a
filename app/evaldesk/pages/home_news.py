"""The changes since the last visit of a person: cases and sets that got worse by a test, and the events.

Only tests that the other pages make tell a change: the change points of a trend, the rule `likely` for a newest run,
and Fisher's test of a case. Each is corrected once more for the trends that are tested for this page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlencode

from evaldesk.desk.desk import Desk
from evaldesk.model.conclusion import Interval, counted
from evaldesk.model.set_trend import TrendRun
from evaldesk.model.stored import EvalSetFile, RunSummary
from evaldesk.pages.gates import GateRow, read_gate_flips
from evaldesk.pages.set_trend import CaseTrend, TrendChart, TrendPage, change_words, trend_page
from evaldesk.statistics.comparison import holm
from evaldesk.statistics.history.build_tests import SUITE_LEVEL
from evaldesk.statistics.intervals import wilson
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wording.words import share_words

MOST_TESTED = 6
"""Trends that are tested, those with the newest runs."""
N_TREND_RUNS = 120
MOST_CASES = 200
"""A set with more cases is judged as a whole only."""
MOST_CARDS = 4
MOST_FLIPS = 2
MOST_EVENTS = 12
MOST_RUNS = 50
LEVEL = 0.05
WIDTH, LEFT, RIGHT, AXIS = 1376.0, 10.0, 1366.0, 40.0
CHARACTER = 6.4
"""The width of a character of a label, in the units of the picture."""
NOW_WIDTH = 34
"""The room of the word at the end of the line, which stands below it."""
LABEL_GAP = 12.0
CASE_TOP, CASE_BASE = 8.0, 90.0


@dataclass(frozen=True, slots=True)
class CasePair:
    """Pass rates of a case before and after, drawn between CASE_TOP and CASE_BASE: (y, top, base of its interval)."""

    before: tuple[float, float, float]
    after: tuple[float, float, float]
    before_words: str
    after_words: str
    columns: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Worse:
    """A set or a case that got worse: its rate now and before, one picture, and the reason in a few words.

    `run_ids` are the runs in which a set was worse, the newest last.
    """

    title: str
    address: str
    now: str
    was: str
    reason: str
    chart: TrendChart | None = None
    pair: CasePair | None = None
    run_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HappenedEvent:
    """Something that happened at `at`, on the time line at `x`; its label is above or below the line, or left out."""

    at: datetime
    words: str
    address: str
    is_bad: bool = False
    x: float = 0.0
    row: str = ""
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class News:
    """The changes since a time. `n_told` of the `n_tested` trends have enough runs for a test to tell anything."""

    since: datetime
    worse: tuple[Worse, ...]
    events: tuple[HappenedEvent, ...]
    n_runs: int
    n_tested: int
    n_told: int
    n_more: int = 0
    flips: tuple[GateRow, ...] = ()
    """The gates that answered differently for the same agent, one of the new runs among them."""

    @property
    def summary(self) -> str:
        """The number of changes beyond chance, and of gates that flip."""
        n_worse, n_flips = len(self.worse) + self.n_more, len(self.flips)
        gates = f"{counted(n_flips, 'gate')} that {'flips' if n_flips == 1 else 'flip'}" if n_flips else ""
        return " and ".join(filter(None, (f"{n_worse} beyond chance" if n_worse else "", gates)))

    @property
    def sentence(self) -> tuple[str, str]:
        """The answer, and its rest; both empty where no run ended."""
        if self.worse:
            first, n_others = self.worse[0], len(self.worse) + self.n_more - 1
            return f"{first.title} fell from {first.was} to {first.now}", f"and {n_others} more" if n_others else ""
        if not self.n_runs:
            return "", ""
        if self.flips:
            gates = counted(len(self.flips), "gate")
            rest = (
                "no set got worse beyond chance" if self.n_told else "too few comparable runs before to tell a change"
            )
            return f"{gates} held and failed for the same agent", rest
        runs = f"{counted(self.n_runs, 'run')} ended"
        if not self.n_told:
            return runs, "too few comparable runs before to tell a change"
        return "Nothing got worse beyond chance", runs

    @property
    def doubt(self) -> str:
        """The tests behind the answer."""
        return (
            f"Tested: {counted(self.n_tested, 'trend')} with a new run, {self.n_told:,} of them with enough runs "
            "before. A set is worse where its trend has a change point, or where its newest run passed fewer trials "
            "than its last 10 allow (the rule likely); a case by Fisher's test. All of them after Holm, over these "
            "trends as well. What cannot be told is not shown as worse. A gate flips where it held and failed with the "
            "same agent, eval set and settings, so the difference is chance."
        )


def read_news(desk: Desk, since: datetime, files: Sequence[EvalSetFile], now: datetime) -> News:
    """The changes from `since` to `now`, from the newest runs; reads the trends of the sets that were run."""
    runs = [run for run in desk.store.runs.list(limit=MOST_RUNS) if _end_of(run) > since and run.status == "finished"]
    names = {file.id: file.name for file in files if not file.error}
    newest: dict[tuple[str, str], RunSummary] = {}
    for run in runs:
        if run.config.evalset_id in names:
            newest.setdefault((run.config.evalset_id, _agent(run)), run)
    tested = list(newest.items())[:MOST_TESTED]
    trends = [trend_page(desk, *pair, is_strip=run.n_cases > MOST_CASES, n_runs=N_TREND_RUNS) for pair, run in tested]
    all_worse = _worse(trends, [pair[0] for pair, _ in tested], names, since)
    flips = read_gate_flips(desk.store.runs, {run.id for run in runs})[:MOST_FLIPS]
    worse = all_worse[: MOST_CARDS - len(flips)]
    bad_ids = {run_id for each in all_worse for run_id in each.run_ids}
    return News(
        since,
        tuple(worse),
        _placed(_events(desk, runs, bad_ids, since, names), since, now),
        n_runs=len(runs),
        n_tested=len(trends),
        n_told=sum(len(trend.compared) >= 8 or trend.alarm is not None for trend in trends),
        n_more=len(all_worse) - len(worse),
        flips=tuple(flips),
    )


def _end_of(run: RunSummary) -> datetime:
    return run.finished_at or run.created_at


def _agent(run: RunSummary) -> str:
    """The agent as a trend names it."""
    return f"{run.config.agent.id} (imported)" if is_imported(run.config) else run.config.agent.id


def _worse(trends: Sequence[TrendPage], set_ids: Sequence[str], names: dict[str, str], since: datetime) -> list[Worse]:
    """The sets that got worse and then the cases, each by its test after Holm over all trends."""
    steps = holm([trend.changes[-1].p if _has_new_fall(trend, since) else 1.0 for trend in trends])
    alarms = holm([trend.alarm.chance if trend.alarm else 1.0 for trend in trends])
    sets, cases = [], []
    for trend, evalset_id, step, alarm in zip(trends, set_ids, steps, alarms, strict=False):
        name = names[evalset_id]
        address = f"/evalsets/{evalset_id}/trend?{urlencode({'agent': trend.choice})}"
        is_new = _has_new_change(trend, since)
        if step <= LEVEL and _has_new_fall(trend, since):
            point = trend.changes[-1]
            after = trend.compared[point.at + 1 : point.end]
            reason = change_words(trend.compared, trend.changes)[1] or f"after run {trend.compared[point.at].id}"
            sets.append(_set(name, address, share_words(point.after), share_words(point.before), reason, trend, after))
        elif alarm <= SUITE_LEVEL and trend.alarm and trend.compared:
            before = trend.compared[:-1][-10:]
            was = sum(run.n_passed for run in before) / sum(run.n_scored for run in before)
            low, high = trend.alarm.usual
            reason = f"{trend.alarm.passed:,} of {trend.alarm.scored:,}; its last runs allow {low:,} to {high:,}"
            newest = trend.compared[-1:]
            sets.append(_set(name, address, share_words(newest[0].rate), share_words(was), reason, trend, newest))
        if is_new:
            cases += [
                _case(name, address, case, trend.columns)
                for case in trend.cases
                if case.way == "worse" and case.p is not None and case.p * len(trends) <= LEVEL
            ]
    return [*sets, *cases]


def _has_new_change(trend: TrendPage, since: datetime) -> bool:
    """Whether the cases are compared at a run that came after `since`."""
    if not trend.changes:
        return True
    return trend.compared[trend.changes[-1].at + 1].created_at > since


def _has_new_fall(trend: TrendPage, since: datetime) -> bool:
    return bool(trend.changes) and trend.changes[-1].after < trend.changes[-1].before and _has_new_change(trend, since)


def _set(
    name: str, address: str, now: str, was: str, reason: str, trend: TrendPage, after: Sequence[TrendRun]
) -> Worse:
    return Worse(name, address, now, was, reason, trend.chart, run_ids=tuple(run.id for run in after))


def _case(name: str, address: str, case: CaseTrend, columns: tuple[str, str]) -> Worse:
    sides = [(passed, n) for passed, n in (case.before, case.after)]
    rates = [passed / n for passed, n in sides]
    places = [_place(rate, wilson(*side)) for rate, side in zip(rates, sides, strict=True)]
    words = [f"{passed:,} of {n:,}" for passed, n in sides]
    pair = CasePair(places[0], places[1], words[0], words[1], columns)
    now, was = share_words(rates[1]), share_words(rates[0])
    return Worse(case.case_id, case.address or address, now, was, f"a case of {name}", pair=pair)


def _place(rate: float, interval: Interval | None) -> tuple[float, float, float]:
    def y(share: float) -> float:
        return CASE_BASE - share * (CASE_BASE - CASE_TOP)

    return y(rate), y(interval.high if interval else rate), y(interval.low if interval else rate)


def _events(
    desk: Desk, runs: Sequence[RunSummary], bad_ids: Collection[int], since: datetime, names: dict[str, str]
) -> list[HappenedEvent]:
    """Runs that ended, proposals, and versions of sets since a time, the oldest first."""
    events = []
    for run in runs[:MOST_EVENTS]:
        counts = run.counts
        words = f"run {run.id}: {counts.passed:,} of {counts.scored:,}" if counts.scored else f"run {run.id}"
        events.append(HappenedEvent(_end_of(run), words, f"/runs/{run.id}", run.id in bad_ids))
    proposals = [each for each in desk.store.client_proposals.list() if each.made_at > since]
    if proposals:
        at = max(each.made_at for each in proposals)
        events.append(HappenedEvent(at, counted(len(proposals), "proposal"), "/proposals"))
    for evalset_id in [run.config.evalset_id for run in runs[:MOST_EVENTS]] or list(names)[:MOST_EVENTS]:
        if evalset_id not in names:
            continue
        for version in desk.store.set_versions.list(evalset_id, limit=3):
            n_by_step = [
                (version.n_added, "added"),
                (version.n_changed, "changed"),
                (version.n_removed, "removed"),
            ]
            words = next((f"{counted(n, 'case')} {word}" for n, word in n_by_step if n), "")
            if version.noted_at > since and version.origin in ("desk", "outside") and words:
                address = f"/evalsets/{quote(evalset_id)}/versions"
                events.append(HappenedEvent(version.noted_at, words, address))
    return sorted(dict.fromkeys(events), key=lambda event: event.at)[-MOST_EVENTS:]


def _placed(events: Iterable[HappenedEvent], since: datetime, now: datetime) -> tuple[HappenedEvent, ...]:
    """The events on the line; a label that would touch one of a bad or newer event is left out, its point stays."""
    length_s = max(1.0, (now - since).total_seconds())
    labels = {"above": [(LEFT, LEFT + 90)], "below": [(RIGHT - NOW_WIDTH, RIGHT)]}
    placed = []
    for event in sorted(events, key=lambda each: (each.is_bad, each.at), reverse=True):
        share = min(1.0, max(0.0, (event.at - since).total_seconds() / length_s))
        x = LEFT + share * (RIGHT - LEFT)
        width = CHARACTER * len(event.words)
        anchor = "start" if x - width / 2 < LEFT else "end" if x + width / 2 > RIGHT else "middle"
        start = {"start": x, "end": x - width, "middle": x - width / 2}[anchor]
        row = next((row for row, others in labels.items() if _has_room(start, start + width, others)), "")
        if row:
            labels[row].append((start, start + width))
        placed.append(HappenedEvent(event.at, event.words, event.address, event.is_bad, x, row, anchor))
    return tuple(sorted(placed, key=lambda each: each.at))


def _has_room(start: float, end: float, others: Sequence[tuple[float, float]]) -> bool:
    return all(end + LABEL_GAP <= left or start >= right + LABEL_GAP for left, right in others)
