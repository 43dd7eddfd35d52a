"""Metrics and their thresholds in words, also of metrics that are gone."""

from __future__ import annotations

from evaldesk.metrics import MetricInfo, metric_info
from evaldesk.model import RunConfig
from evaldesk.wording.words import counted_words, threshold_words


def short_title(metric: str) -> str:
    """The name of a metric on pages; a metric that is gone keeps its name."""
    info = known_metric(metric)
    return info.title if info else metric


def asserted_lines(config: RunConfig, n_cases: int) -> list[str]:
    """`Final state: asserted in 2 of 7 cases`, for each metric that does not apply to every case."""
    return [
        f"{short_title(metric)}: asserted in {counted_words(n, n_cases, 'case')}"
        for metric, n in config.n_asserted.items()
    ]


def needs_words(metric: str, threshold: float | None) -> str:
    """`at least 0.80`, `at most 3.00` where less is better, `no threshold` without one."""
    return threshold_words(threshold, is_higher_better=is_higher_better(metric))


def is_higher_better(metric: str) -> bool:
    """Whether more is better; also of a metric that is gone."""
    info = known_metric(metric)
    return info is None or info.is_higher_better


def is_share(metric: str) -> bool:
    """Whether its scores lie between 0 and 1, so that differences are said in points; so of a metric that is gone."""
    info = known_metric(metric)
    return info is None or (info.low, info.high) == (0.0, 1.0)


def known_metric(metric: str) -> MetricInfo | None:
    """The description of a metric; None when it is gone, which must not break the page of a stored run."""
    try:
        return metric_info(metric)
    except Exception:  # a user's metric, which can no longer be imported
        return None
