"""The parts of a run's page that other pages show, too: its reliability, its scorings, a bar, a cost. No SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from evaldesk.desk.runs.charts import pass_figure
from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.desk.runs.gates.conclusion import any_stop_point, may_be_stopped, sure_interval, these_interval
from evaldesk.desk.runs.stored_runs import StoredRuns, metric_interval
from evaldesk.errors import NotFoundError
from evaldesk.model import Conclusion, Criterion, GateOutcome, Outcome, RunStatus
from evaldesk.model.conclusion import WITHOUT, Interval
from evaldesk.model.run import LIVE
from evaldesk.model.stored import CaseFilter, CaseRow, CaseSort, MetricRow, RunSummary, TrialKey
from evaldesk.pages.pass_chart import PassChart, pass_chart
from evaldesk.statistics.intervals import (
    CurvePoint,
    pass_curve,
    point_at,
    sure_curve,
    wilson,
)
from evaldesk.store import RunStore
from evaldesk.wording.noise import stop_sentence
from evaldesk.wording.places import shared_globals_sentence
from evaldesk.wording.words import (
    FEW_TRIALS,
    any_stop_words,
    basis_sentence,
    basis_why,
    cost_words,
    curve_note,
    curve_sentence,
    doubt_words,
    folded_points,
    least_words,
    needs_words,
    range_words,
    short_title,
    uneven_sentence,
)

STATUS_OF = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored", "r": "running", ".": "queued"}
BADGES: Mapping[RunStatus, tuple[str, str]] = {
    "pending": ("queued", "waiting"),
    "running": ("running", "running"),
    "stopping": ("running", "stopping"),
    "stopped": ("stopped", "stopped"),
    "finished": ("", "finished"),
    "failed": ("errored", "aborted"),
}
OUTCOME_BADGES: Mapping[Outcome, str] = {
    "passed": "passed",
    "failed": "failed",
    "neutral": "unscored",
    "undecided": "unscored",
    "interrupted": "stopped",
}
SORTS: tuple[tuple[CaseSort, str], ...] = (
    ("worst", "Worst"),
    ("flaky", "Flakiest"),
    ("slow", "Slowest"),
    ("cost", "Most expensive"),
    ("file", "File order"),
)
PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which cases of a run a page shows, in which order; `sort` None leaves the choice to the page."""

    sort: CaseSort | None = None
    only: CaseFilter | None = None
    after: str = ""

    def href(self, run_id: int, *, events: bool = False, **changes: str | None) -> str:
        """The address of the run with this query, changed by `changes`; None leaves a part out."""
        parts = {"sort": self.sort, "only": self.only, "after": self.after} | changes
        query = urlencode({name: value for name, value in parts.items() if value})
        return f"/runs/{run_id}{'/events' if events else ''}" + (f"?{query}" if query else "")


@dataclass(frozen=True, slots=True)
class Filter:
    """One of a row of alternatives; without `href` it only counts, without `n` it only leads there."""

    text: str
    n: int | None
    status: str = ""
    href: str = ""
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A rate with its interval, 0 to 1; `least` is the threshold of a gate on it."""

    rate: float
    low: float
    high: float
    least: float | None = None


@dataclass(frozen=True, slots=True)
class Square:
    """One trial in the matrix; `number` counts from 1, `words` are its first divergence."""

    number: int
    status: str
    href: str
    words: str = ""


def window(at: int, n: int, most: int) -> range:
    """The window of at most `most` of `n` places around `at`."""
    start = max(0, min(at - most // 2, n - most))
    return range(start, min(n, start + most))


def trial_href(run_id: int, key: TrialKey) -> str:
    """The page of a trial; its indexes count from 0."""
    return f"/runs/{run_id}/cases/{key[0]}/trials/{key[1]}"


def requested_gates(summary: RunSummary, conclusion: Conclusion | None) -> tuple[GateOutcome, ...]:
    """The answers of all requested gates of a run, held ones included; empty while it goes on.

    The cases in quarantine are told in any case.
    """
    if conclusion is None:
        return ()
    if summary.config.gates.asks_nothing:
        return tuple(gate for gate in conclusion.gates if gate.name == WITHOUT)
    return conclusion.gates


def run_badge(status: RunStatus, conclusion: Conclusion | None) -> tuple[str, str]:
    """The badge of a run and its word: the outcome of a finished run, else its status."""
    if conclusion is None or status != "finished":
        return BADGES[status]
    return OUTCOME_BADGES[conclusion.outcome], conclusion.outcome


def bar(
    n_passed: int,
    n_scored: int,
    interval: Interval | None = None,
    least: float | None = None,
    case_rate: float | None = None,
) -> Bar | None:
    """A rate to draw; None where too few trials were scored to name one. `case_rate` is the mean of uneven cases."""
    if n_scored < FEW_TRIALS:
        return None
    interval = interval or wilson(n_passed, n_scored)
    rate = n_passed / n_scored if case_rate is None else case_rate
    return Bar(rate, interval.low, interval.high, least)


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars as far as they are known, None where nothing is; some trials cost more where it `is_least`."""

    dollars: float | None
    is_least: bool

    @property
    def words(self) -> str:
        """`$0.50`, `at least $0.50`, a dash."""
        return "–" if self.dollars is None else least_words(cost_words(self.dollars), self.is_least)


def known_cost(summary: RunSummary, sums: RunSummary | CaseRow) -> Cost:
    """The cost of a run or of one of its cases; not known where the run called no model, or nothing is done."""
    return Cost(summary.known_cost(sums) if sums.counts.done else None, sums.is_cost_unknown)


ANY_STOP_NOTE = "After a stop only the pass rate has an interval that holds."


def columns_k(n: int) -> int:
    """The k of the matrix columns; 0 when a case has one trial and there is nothing to repeat."""
    return min(n, 3) if n > 1 else 0


@lru_cache(maxsize=4_096)
@lru_cache(maxsize=4_096)
def first_problem(verdicts: str) -> int:
    """The trial that a case's name leads to: the first that did not pass, else the first."""
    return next((at for at, letter in enumerate(verdicts) if letter in "feu"), 0)


@dataclass(frozen=True, slots=True)
class Reliability:
    """The rate with its interval, and pass@k and pass^k by k.

    `chart` is drawn by the page, `figure` by Plotly when somebody asks for it; both are None with fewer than 2 points.
    """

    bar: Bar | None
    doubt: str
    detail: str
    why: str
    points: Sequence[CurvePoint]
    chart: PassChart | None
    figure: dict[str, Any] | None
    words: str
    note: str

    @property
    def folded(self) -> Sequence[CurvePoint]:
        """The points that the table folds away."""
        return folded_points(self.points)

    @property
    def table_points(self) -> Sequence[CurvePoint]:
        """The points that the table shows at once: k = 1, 2, 3, 5, 10 and the last one."""
        return [point for point in self.points if point not in self.folded]


def reliability(
    outcomes: Sequence[tuple[int, int, int]],
    summary: RunSummary,
    k: int,
    earlier: RunSummary | None = None,
    equal: Sequence[tuple[int, int, int]] | None = None,
) -> tuple[Reliability, CurvePoint]:
    """The reliability from the number of cases by scored and passed trials; the point is at `k`.

    `earlier` is the run against which a watched run may be stopped. `equal` are the cases by the trials that
    all of them have, for a run that stopped when it was decided.
    """
    # One looks at a run that goes on again and again, and may stop it when the answer pleases.
    is_live, counts = summary.status in LIVE, summary.counts
    is_watched = summary.stop is not None or may_be_stopped(counts, outcomes)
    rows = outcomes if equal is None else equal
    is_cut = summary.stop is not None and summary.is_uneven
    rated = rows if is_cut else outcomes
    interval, these = (find(counts, rated, summary.stop) for find in (sure_interval, these_interval))
    n_scored_cases = sum(times for n_scored, _, times in rated if n_scored)
    # Intervals of a run that goes on would be drawn anew at each look, and looking often makes them too narrow.
    points = pass_curve(rows) if is_live else sure_curve(rows)
    if is_watched:
        points = tuple(any_stop_point(point, counts, interval) for point in points)
    result = Reliability(
        bar=bar(counts.passed, counts.scored, these, summary.config.gates.min_pass_rate, counts.case_rate),
        doubt=any_stop_words(counts.scored, n_scored_cases, these, interval)
        if is_watched
        else doubt_words(counts.scored, interval),
        detail=_detail(
            _stop_words(these, earlier, summary) if is_watched else _basis(outcomes, interval, summary), summary
        ),
        why="" if is_watched or summary.is_uneven else basis_why(outcomes, interval),
        points=points,
        chart=pass_chart(points) if len(points) > 1 else None,
        figure=coloured(pass_figure(points)) if len(points) > 1 else None,
        words=curve_sentence(points),
        note=" ".join(
            filter(
                None,
                (
                    _note(points, summary),
                    ANY_STOP_NOTE if is_watched and len(points) > 1 else "",
                    _replay_note(summary),
                ),
            )
        ),
    )
    if not is_live:
        at_k = point_at(rows, k)
        return result, any_stop_point(at_k, counts, interval) if is_watched else at_k
    return result, next((point for point in points if point.k == k), CurvePoint(k, None, None, 0))


def coloured(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure with each trace in the colour of its series, as names that the page resolves, as high as its box."""
    figure["layout"]["autosize"] = True
    for trace in figure["data"]:
        trace["line"]["color"] = trace["marker"]["color"] = f"var(--series-{trace['meta']['series']})"
    return figure


def _stop_words(interval: Interval | None, earlier: RunSummary | None, summary: RunSummary) -> str:
    """Whether the answer is in already, compared with the run before."""
    if summary.stop:
        return "The interval holds although the run stopped when it was decided."
    if interval is None:
        return ""
    if summary.status not in LIVE:
        return "The interval holds although trials are left to play."
    least = summary.config.gates.min_pass_rate
    if least is not None:
        return f"{stop_sentence(interval, least)}. Reference: the minimum pass rate of this run."
    if earlier is None or earlier.counts.rate is None:
        return "Valid while the run continues."
    return f"{stop_sentence(interval, earlier.counts.rate)}. Reference: pass rate of run {earlier.id}."


def _basis(outcomes: Sequence[tuple[int, int, int]], interval: Interval | None, summary: RunSummary) -> str:
    if not summary.is_uneven or interval is None:
        return basis_sentence(outcomes, interval)
    return uneven_sentence(summary.n_cases, summary.n_least, summary.n_most)


def _detail(basis: str, summary: RunSummary) -> str:
    """The basis of the interval, and what its trials share."""
    return " ".join(filter(None, (basis, shared_globals_sentence(summary.shared_state))))


def _replay_note(summary: RunSummary) -> str:
    """A limit of the interval for recorded trials."""
    if not repeats_recorded(summary.config):
        return ""
    return (
        "These trials may replay recorded answers. A replay is not an independent trial: the interval does not get "
        "narrower by replays, alone or together with the recorded run."
    )


def _note(points: Sequence[CurvePoint], summary: RunSummary) -> str:
    """Why the curves are not there, or rest on fewer cases than the run has."""
    if summary.n_most == 1:
        return "One trial per case: pass@k for larger k needs more trials."
    if not points:
        return "No scored trials."
    if summary.is_uneven:
        first = "trial" if summary.n_equal == 1 else f"{summary.n_equal} trials"
        return f"Over the first {first} of each case, so that all cases weigh the same."
    fewest, is_live = points[-1], summary.status in LIVE
    if fewest.n_cases < summary.n_cases:
        return curve_note(fewest.n_cases, summary.n_cases, fewest.k, is_live=is_live)
    if fewest.k < summary.n_most:
        return f"The rows end at k = {fewest.k}, the fewest scored trials of a case{' so far' if is_live else ''}."
    return ""


def metric_doubt(row: MetricRow, run: RunSummary) -> str:
    """`0.89–0.99`: the 95 % CI of a metric's mean in a run; empty without one."""
    return range_words(metric_interval(row, run))


_MOST_CRITERIA = 3


@dataclass(frozen=True, slots=True)
class Scoring:
    """One scoring of the same trials; `interval` is that of its rate, `metrics` are in the order of the criteria."""

    run: RunSummary
    interval: Interval | None
    metrics: Sequence[MetricRow]


def scorings(runs: RunStore, summary: RunSummary) -> list[Scoring]:
    """Every scoring of the trials of a run, the one they were played with first; none while there is only that."""
    source_id = summary.id if summary.config.source_run_id is None else summary.config.source_run_id
    again = runs.scorings(source_id)
    if not again:
        return []
    try:
        summaries = [runs.summary(source_id), *again]
    except NotFoundError:
        summaries = again
    return [Scoring(run, StoredRuns(runs).interval(run), runs.metric_rows(run.id)) for run in summaries]


def criteria_words(criteria: Sequence[Criterion]) -> str:
    """`Response match at least 0.80, Tool calls at most 3.00`: the first few criteria."""
    deciding = [
        f"{short_title(each.metric)} {needs_words(each.metric, each.threshold)}"
        for each in criteria
        if each.threshold is not None
    ]
    return ", ".join(deciding[:_MOST_CRITERIA]) + (" and more" if len(deciding) > _MOST_CRITERIA else "")
