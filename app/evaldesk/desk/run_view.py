"""What the page of a run shows: the answer in words, the matrix, curves, scores, errors, configuration. No SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from evaldesk.metrics import MetricInfo, metric_info
from evaldesk.model import RunConfig, RunStatus
from evaldesk.report import Interval, pass_at_k, pass_hat_k, threshold_words, wilson
from evaldesk.store import CaseFilter, CaseOutcome, CaseRow, CaseSort, RunSummary, TrialKey

STATUS_OF = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored", "r": "running", ".": "queued"}
LIVE: frozenset[RunStatus] = frozenset({"pending", "running", "stopping"})
BADGES: Mapping[RunStatus, tuple[str, str]] = {
    "pending": ("queued", "waiting"),
    "running": ("running", "running"),
    "stopping": ("running", "stopping"),
    "stopped": ("stopped", "stopped"),
    "finished": ("", "finished"),
    "failed": ("errored", "broken off"),
}
SORTS: tuple[tuple[CaseSort, str], ...] = (
    ("worst", "Worst"),
    ("flaky", "Flakiest"),
    ("slow", "Slowest"),
    ("cost", "Dearest"),
    ("file", "File order"),
)
MAX_SQUARES = 20
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
    """One of a row of alternatives; without `href` it only counts."""

    text: str
    n: int
    status: str = ""
    href: str = ""
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A rate with its interval, 0 to 1."""

    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Square:
    """One trial in the matrix; `number` counts from 1."""

    number: int
    status: str
    href: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One case of the run; None where a number is undefined."""

    case_id: str
    href: str
    squares: tuple[Square, ...]
    n_hidden: int
    hidden_href: str
    passed: str
    bar: Bar | None
    pass_at_k: float | None
    pass_hat_k: float | None
    means: tuple[tuple[str, float | None], ...]
    cost: float | None
    mean_ms: float | None


def matrix_rows(
    summary: RunSummary, rows: Sequence[CaseRow], in_flight: Collection[TrialKey], metrics: Sequence[str], k: int
) -> tuple[MatrixRow, ...]:
    """The lines of the matrix; trials that are being played are overlaid as running."""
    return tuple(_matrix_row(summary, row, in_flight, metrics, k) for row in rows)


def _matrix_row(
    summary: RunSummary, row: CaseRow, in_flight: Collection[TrialKey], metrics: Sequence[str], k: int
) -> MatrixRow:
    n_scored = scored(row, summary.config)
    base = f"{summary.id}/cases/{row.case_index}/trials/"
    shown = row.strip[:MAX_SQUARES]
    letters = ["r" if (row.case_index, index) in in_flight else letter for index, letter in enumerate(shown)]
    return MatrixRow(
        case_id=row.case_id,
        href=f"{base}{first_problem(row.strip)}",
        squares=tuple(Square(at + 1, STATUS_OF[letter], f"{base}{at}") for at, letter in enumerate(letters)),
        n_hidden=len(row.strip) - len(shown),
        hidden_href=f"{base}{len(shown)}",
        passed=f"{row.n_passed} of {n_scored}" if n_scored else "–",
        bar=bar(row.n_passed, n_scored),
        pass_at_k=pass_at_k(n_scored, row.n_passed, k) if k else None,
        pass_hat_k=pass_hat_k(n_scored, row.n_passed, k) if k else None,
        means=tuple((short_title(name), row.means.get(name)) for name in metrics),
        cost=known_cost(summary, row.cost, row.n_unpriced) if row.n_done else None,
        mean_ms=row.mean_ms or None,
    )


def scored(case: CaseRow | CaseOutcome, config: RunConfig) -> int:
    """The denominator of a case's pass rate."""
    return case.n_passed + case.n_failed + (case.n_errored if config.errors_are_failures else 0)


def bar(n_passed: int, n_scored: int, interval: Interval | None = None) -> Bar | None:
    """A rate to draw; None when nothing was scored."""
    if not n_scored:
        return None
    interval = interval or wilson(n_passed, n_scored)
    return Bar(n_passed / n_scored, interval.low, interval.high)


def known_cost(summary: RunSummary, cost: float, n_unpriced: int) -> float | None:
    """US dollars; None where no model was called, or no price is known."""
    has_models = summary.tokens_in + summary.tokens_out + summary.n_unpriced > 0
    return cost if has_models and (cost or not n_unpriced) else None


def columns_k(n: int) -> int:
    """The k of the matrix columns; 0 when a case has one trial and there is nothing to repeat."""
    return min(n, 3) if n > 1 else 0


def short_title(metric: str) -> str:
    """What a metric is called on pages; a metric that is gone keeps its name."""
    info = known_metric(metric)
    return info.title if info else metric


def needs_words(metric: str, threshold: float | None) -> str:
    """`at least 0.80`, `at most 3.00` where less is better, `informs` without a threshold."""
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
    """What is known of a metric; None when it is gone, which must not break the page of a stored run."""
    try:
        return metric_info(metric)
    except Exception:  # a user's metric, which can no longer be imported
        return None


def first_problem(strip: str) -> int:
    """The trial that a case's name leads to: the first that did not pass, else the first."""
    return next((at for at, letter in enumerate(strip) if letter in "feu"), 0)
