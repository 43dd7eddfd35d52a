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
from evaldesk.wording.words import bin_words, errors_sentence, mean_sentence, needs_words, short_title

MAX_FLAKY = 10
MAX_K = 10
HEIGHT = 40.0


@dataclass(frozen=True, slots=True)
class HistogramBar:
    """One bin as it is drawn, in a box of 100 by HEIGHT, and as it is said."""

    x: float
    width: float
    height: float
    words: str
    n: int


@dataclass(frozen=True, slots=True)
class MetricSpread:
    """The scores of one metric: words first, then the bins; `threshold_x` is where its bar lies, None without one."""

    title: str
    words: str
    needs: str
    bars: Sequence[HistogramBar]
    threshold_x: float | None


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
    g_pass: Sequence[tuple[str, float]]
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
        threshold_x=_place(row.threshold, bins),
    )


def _bars(bins: Sequence[Bin]) -> list[HistogramBar]:
    most = max((each.n for each in bins), default=0)
    width = 100 / len(bins) if bins else 0.0
    return [
        HistogramBar(at * width, width, HEIGHT * each.n / most, bin_words(each, is_last=at == len(bins) - 1), each.n)
        for at, each in enumerate(bins)
    ]


def _place(threshold: float | None, bins: Sequence[Bin]) -> float | None:
    """Where the threshold lies in the box; None where it is beside the bins, or a bin is a single number."""
    if threshold is None or not bins or bins[0].low == bins[0].high:
        return None
    share = (threshold - bins[0].low) / (bins[-1].high - bins[0].low)
    return 100 * share if 0 <= share <= 1 else None


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


def _g_pass(outcomes: Sequence[CaseCounts]) -> list[tuple[str, float]]:
    """How often at least 1, 2 and so on of k trials pass, over the cases of the curves and up to its last k."""
    rows, last = curve_rows(outcomes)
    k, n_cases = min(MAX_K, last), sum(times for _, _, times in rows)
    if k < 2:
        return []
    return [
        (
            g_pass_words(k, at_least / k),
            fsum((g_pass_at_k(n, c, k, at_least / k) or 0.0) * times for n, c, times in rows) / n_cases,
        )
        for at_least in range(1, k + 1)
    ]
