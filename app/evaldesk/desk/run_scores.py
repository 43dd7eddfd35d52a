"""The table of scores: what each metric says over the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.run_view import known_metric, needs_words, short_title
from evaldesk.report import Interval, mean_interval, number_words
from evaldesk.store import MetricRow


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
    """Where the mean of the metric could be, within its range; None where that cannot be said."""
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
