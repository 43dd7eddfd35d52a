"""The pass rate of a run with its interval, pass@k and pass^k, and a line for each metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaldesk.desk.runs.charts import pass_figure
from evaldesk.model import Counts
from evaldesk.model.conclusion import Interval
from evaldesk.model.run import LIVE
from evaldesk.model.stored import MetricRow, RunSummary
from evaldesk.pages.run_facts import repeats_recorded
from evaldesk.pages.run_view import Bar, bar
from evaldesk.statistics.bootstrap import sure_curve
from evaldesk.statistics.intervals import anytime_interval, clopper_pearson, mean_interval, rate_interval
from evaldesk.statistics.pass_k import CurvePoint, pass_curve
from evaldesk.wording.metrics import known_metric, needs_words, short_title
from evaldesk.wording.noise import stop_sentence
from evaldesk.wording.words import (
    basis_sentence,
    basis_why,
    curve_note,
    curve_sentence,
    doubt_words,
    live_doubt_words,
    number_words,
)


@dataclass(frozen=True, slots=True)
class Reliability:
    """The rate with its interval, and pass@k and pass^k by k; `figure` is for Plotly, None with fewer than 2 points."""

    bar: Bar | None
    doubt: str
    detail: str
    why: str
    points: Sequence[CurvePoint]
    figure: dict[str, Any] | None
    words: str
    note: str


def reliability(
    outcomes: Sequence[tuple[int, int, int]], summary: RunSummary, k: int, earlier: RunSummary | None = None
) -> tuple[Reliability, CurvePoint]:
    """From how many cases have so many scored and passed trials; the point is the one at `k`.

    `earlier` is the run that a run which is watched may be stopped against.
    """
    # One looks at a run that goes on again and again, and may stop it when the answer pleases.
    is_watched = summary.status in LIVE and summary.config.n == 1
    counts = summary.counts
    interval = anytime_interval(counts.passed, counts.scored) if is_watched else rate_interval(outcomes)
    # Intervals of a run that goes on would be drawn anew at each look, and looking often makes them too narrow.
    points = pass_curve(outcomes) if summary.status in LIVE else sure_curve(outcomes)
    found = Reliability(
        bar=bar(summary.counts.passed, summary.counts.scored, interval),
        doubt=(live_doubt_words if is_watched else doubt_words)(summary.counts.scored, interval),
        detail=_stop_words(interval, earlier) if is_watched and interval else basis_sentence(outcomes, interval),
        why="" if is_watched else basis_why(outcomes, interval),
        points=points,
        figure=coloured(pass_figure(points)) if len(points) > 1 else None,
        words=curve_sentence(points),
        note=" ".join(filter(None, (_note(points, summary), _replay_note(summary)))),
    )
    return found, next((point for point in points if point.k == k), CurvePoint(k, None, None, 0))


def coloured(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure with each trace in the colour of its series, as names that the page resolves, as high as its box."""
    figure["layout"]["autosize"] = True
    for trace in figure["data"]:
        trace["line"]["color"] = trace["marker"]["color"] = f"var(--series-{trace['meta']['series']})"
    return figure


def _stop_words(interval: Interval, earlier: RunSummary | None) -> str:
    """Whether the answer is in already, compared with the run before."""
    if earlier is None or earlier.counts.rate is None:
        return "Valid while the run continues."
    return f"{stop_sentence(interval, earlier.counts.rate)}. Reference: pass rate of run {earlier.id}."


def _replay_note(summary: RunSummary) -> str:
    """A limit of the interval for recorded trials."""
    if not repeats_recorded(summary.config):
        return ""
    return (
        "These trials may replay recorded answers. A replay is no independent trial: the interval does not get "
        "narrower by replays, alone or together with the recorded run."
    )


def _note(points: Sequence[CurvePoint], summary: RunSummary) -> str:
    """Why the curves are not there, or rest on fewer cases than the run has."""
    if summary.config.n == 1:
        return "One trial per case: pass@k for larger k needs more trials."
    if not points:
        return "No scored trials."
    fewest = points[-1]
    if fewest.n_cases < summary.n_cases:
        return curve_note(fewest.n_cases, summary.n_cases, fewest.k, is_live=summary.status in LIVE)
    if fewest.k < summary.config.n:
        return f"No case has more than {fewest.k} scored trials, so larger k are undefined."
    return ""


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One metric; None where a number is undefined."""

    name: str
    title: str
    mean: float
    doubt: str
    std: float | None
    low: float
    high: float
    needs: str
    reached: str
    n: int


def metric_lines(rows: Sequence[MetricRow]) -> tuple[MetricLine, ...]:
    """A line for each metric that gave any value."""
    return tuple(_line(row) for row in rows)


def _line(row: MetricRow) -> MetricLine:
    interval = metric_interval(row)
    return MetricLine(
        name=row.metric,
        title=short_title(row.metric),
        mean=row.mean,
        doubt=f"{number_words(interval.low)}–{number_words(interval.high)}" if interval else "–",
        std=row.std,
        low=row.low,
        high=row.high,
        needs=needs_words(row.metric, row.threshold),
        reached=f"{row.n_passed:,} of {row.n:,}" if row.threshold is not None else "–",
        n=row.n,
    )


def metric_interval(row: MetricRow) -> Interval | None:
    """The interval of the mean, within the range of the metric; None without one."""
    low, high = metric_range(row)
    return mean_interval(
        mean=row.mean,
        n=row.n,
        n_cases=row.n_cases,
        squares=row.squares,
        cluster_squares=row.cluster_squares,
        low=low,
        high=high,
    )


def metric_range(row: MetricRow) -> tuple[float, float]:
    """The range of the metric; of the values seen when the metric is gone."""
    info = known_metric(row.metric)
    return (info.low, info.high) if info else (min(row.low, 0.0), max(row.high, 1.0))


def exact_interval(counts: Counts) -> Interval:
    """The exact interval (Clopper-Pearson) of the pass rate where every trial is a case of its own."""
    return clopper_pearson(counts.passed, counts.scored)
