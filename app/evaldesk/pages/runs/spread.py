"""The distributions behind the means of a run: the spread of its scores, the sources of noise, the flaky cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import metric_interval, metric_range, run_title
from evaldesk.model.stored import MetricRow, RunSummary
from evaldesk.pages.runs.view import trial_href
from evaldesk.statistics.histogram import Bin, histogram
from evaldesk.statistics.history.posterior import posterior
from evaldesk.statistics.intervals import CaseCounts, curve_rows, failure_bound, g_pass_at_k
from evaldesk.statistics.noise import flakiness, split_pass_noise
from evaldesk.store import RunStore
from evaldesk.wording.noise import (
    flakiness_sentence,
    flaky_words,
    g_pass_words,
    no_failure_sentence,
    noise_sentence,
    noise_why,
)
from evaldesk.wording.words import (
    bin_words,
    errors_sentence,
    mean_sentence,
    needs_words,
    number_words,
    short_title,
)

MAX_FLAKY = 10
MAX_K = 10
LEFT, RIGHT, TOP, BASE = 34.0, 312.0, 26.0, 112.0
"""The area of the bars or points in a picture of 320 by 132."""
DIGIT = 6.4
"""The width of a digit of a label, in the units of the picture."""


@dataclass(frozen=True, slots=True)
class HistogramBar:
    """One bin as it is drawn between LEFT and RIGHT, and in words; its count is drawn where it fits."""

    x: float
    width: float
    height: float
    words: str
    n: int

    @property
    def y(self) -> float:
        """The top of the bar."""
        return BASE - self.height

    @property
    def label(self) -> str:
        """The count above the bar; empty where there is no trial, or no room."""
        text = f"{self.n:,}"
        return text if self.n and DIGIT * len(text) <= self.width else ""


@dataclass(frozen=True, slots=True)
class MetricSpread:
    """The scores of one metric: words first, then the bins.

    `ticks` are the numbers of the x axis as (x, text); `threshold_x` is the place of its threshold, None without one.
    """

    title: str
    words: str
    needs: str
    bars: Sequence[HistogramBar]
    ticks: Sequence[tuple[float, str]]
    threshold_x: float | None

    @property
    def most(self) -> int:
        """The count of the highest bar, the end of the y axis."""
        return max((bar.n for bar in self.bars), default=0)


@dataclass(frozen=True, slots=True)
class GroupPassPoint:
    """G-Pass@k at one number of trials: the mean over cases as it is drawn and in words."""

    x: float
    y: float
    n_needed: int
    words: str
    value: float


@dataclass(frozen=True, slots=True)
class FlakyCase:
    """A case that passed in some trials and not in others."""

    case_id: str
    words: str
    href: str


@dataclass(frozen=True, slots=True)
class RunSpread:
    """All that the page shows; sentences are empty where nothing can be said."""

    summary: RunSummary
    title: str
    errors: str
    metrics: Sequence[MetricSpread]
    noise: str
    noise_why: str
    no_failure: str
    flakiness: str
    flaky: Sequence[FlakyCase]
    g_pass: Sequence[GroupPassPoint]
    median_ms: float | None


def read_spread(desk: Desk, run_id: int) -> RunSpread:
    """The spread of a run. Unlike its page, this reads the scores of all trials. Raises NotFoundError."""
    runs = desk.store.runs
    summary = runs.summary(run_id)
    outcomes = runs.outcome_counts(run_id)
    counts_by_metric = runs.score_counts(run_id)
    pass_noise = split_pass_noise(outcomes)
    return RunSpread(
        summary=summary,
        title=run_title(summary),
        errors=errors_sentence(summary.counts),
        metrics=[_metric(row, counts_by_metric.get(row.metric, ()), summary) for row in runs.metric_rows(run_id)],
        noise=noise_sentence(pass_noise, posterior(outcomes).within_share() if pass_noise else None),
        noise_why=noise_why(pass_noise),
        no_failure=_no_failure(summary),
        flakiness=flakiness_sentence(flakiness(outcomes)),
        flaky=_flaky(runs, summary),
        g_pass=_g_pass(outcomes),
        median_ms=runs.median_ms(run_id),
    )


def _metric(row: MetricRow, value_counts: Sequence[tuple[float, int]], run: RunSummary) -> MetricSpread:
    low, high = metric_range(row)
    interval = metric_interval(row, run)
    bins = histogram(value_counts, low, high)
    needs = needs_words(row.metric, row.threshold)
    return MetricSpread(
        title=short_title(row.metric),
        words=mean_sentence(row.mean, interval, row.n, row.n_passed if row.threshold is not None else None, needs),
        needs=needs,
        bars=_bars(bins),
        ticks=_ticks(bins),
        threshold_x=_place(row.threshold, bins),
    )


def _bars(bins: Sequence[Bin]) -> list[HistogramBar]:
    most = max((each.n for each in bins), default=0)
    width = (RIGHT - LEFT) / len(bins) if bins else 0.0
    return [
        HistogramBar(
            LEFT + at * width,
            width,
            (BASE - TOP) * each.n / most,
            bin_words(each, is_last=at == len(bins) - 1),
            each.n,
        )
        for at, each in enumerate(bins)
    ]


def _ticks(bins: Sequence[Bin]) -> list[tuple[float, str]]:
    """Both ends and the middle of the x axis; the first, middle and last number where a bin is a single one."""
    if not bins:
        return []
    middle = (LEFT + RIGHT) / 2
    if bins[0].low != bins[0].high:
        low, high = bins[0].low, bins[-1].high
        return [(LEFT, number_words(low)), (middle, number_words((low + high) / 2)), (RIGHT, number_words(high))]
    width = (RIGHT - LEFT) / len(bins)
    places = sorted({0, (len(bins) - 1) // 2, len(bins) - 1})
    return [(LEFT + (at + 0.5) * width, f"{bins[at].low:g}") for at in places]


def _place(threshold: float | None, bins: Sequence[Bin]) -> float | None:
    """The x of the threshold; None where it is beside the bins, or a bin is a single number."""
    if threshold is None or not bins or bins[0].low == bins[0].high:
        return None
    share = (threshold - bins[0].low) / (bins[-1].high - bins[0].low)
    return LEFT + share * (RIGHT - LEFT) if 0 <= share <= 1 else None


def _no_failure(summary: RunSummary) -> str:
    """Said where nothing failed; only of cases with one trial each, since repeats are no independent evidence."""
    if not summary.counts.scored or summary.counts.passed < summary.counts.scored or summary.n_most > 1:
        return ""
    return no_failure_sentence(summary.counts.scored, failure_bound(summary.counts.scored))


def _flaky(runs: RunStore, summary: RunSummary) -> list[FlakyCase]:
    cases = []
    for row in runs.case_rows(summary.id, sort="flaky", only="flaky", limit=MAX_FLAKY):
        trial = next((at for at, letter in enumerate(row.verdicts) if letter in "fe"), 0)
        words = flaky_words(row.counts.scored, row.counts.passed)
        cases.append(FlakyCase(row.case_id, words, trial_href(summary.id, (row.case_index, trial))))
    return cases


def _g_pass(outcomes: Sequence[CaseCounts]) -> list[GroupPassPoint]:
    """How often at least 1, 2 and so on of k trials pass, over the cases of the curves and up to its last k."""
    rows, last = curve_rows(outcomes)
    k, n_cases = min(MAX_K, last), sum(times for _, _, times in rows)
    if k < 2:
        return []
    points = []
    for at_least in range(1, k + 1):
        mean = fsum((g_pass_at_k(n, c, k, at_least / k) or 0.0) * times for n, c, times in rows) / n_cases
        x = LEFT + 8 + (at_least - 1) * (RIGHT - LEFT - 8) / (k - 1)
        points.append(GroupPassPoint(x, BASE - mean * (BASE - TOP), at_least, g_pass_words(k, at_least / k), mean))
    return points
