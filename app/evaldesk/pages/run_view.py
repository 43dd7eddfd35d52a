"""The view of a run's page: the answer in words, the matrix, curves, scores, errors, configuration. No SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from evaldesk.model import Conclusion, Counts, Outcome, RunStatus
from evaldesk.model.conclusion import Interval
from evaldesk.model.stored import CaseFilter, CaseRow, CaseSort, RunSummary, TrialKey
from evaldesk.statistics.intervals import wilson
from evaldesk.statistics.pass_k import pass_at_k, pass_hat_k
from evaldesk.wording.metrics import short_title
from evaldesk.wording.words import FEW_TRIALS

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
    n_scored = row.counts.scored
    base = f"{summary.id}/cases/{row.case_index}/trials/"
    shown = row.verdicts[:MAX_SQUARES]
    letters = ["r" if (row.case_index, index) in in_flight else letter for index, letter in enumerate(shown)]
    return MatrixRow(
        case_id=row.case_id,
        href=f"{base}{first_problem(row.verdicts)}",
        squares=tuple(Square(at + 1, STATUS_OF[letter], f"{base}{at}") for at, letter in enumerate(letters)),
        n_hidden=len(row.verdicts) - len(shown),
        hidden_href=f"{base}{len(shown)}",
        passed=f"{row.counts.passed} of {n_scored}" if n_scored else "–",
        bar=bar(row.counts.passed, n_scored),
        pass_at_k=pass_at_k(n_scored, row.counts.passed, k) if k else None,
        pass_hat_k=pass_hat_k(n_scored, row.counts.passed, k) if k else None,
        means=tuple((short_title(name), row.means.get(name)) for name in metrics),
        cost=known_cost(summary, row.cost, row.n_unpriced) if row.counts.done else None,
        mean_ms=row.mean_ms or None,
    )


def run_badge(status: RunStatus, conclusion: Conclusion | None) -> tuple[str, str]:
    """The badge of a run and its word: the outcome of one that finished, else its status."""
    if conclusion is None or status != "finished":
        return BADGES[status]
    return OUTCOME_BADGES[conclusion.outcome], conclusion.outcome


def tally(counts: Counts) -> dict[str, int]:
    """The trials by their verdicts, as a bar shows them."""
    return {
        "passed": counts.passed,
        "failed": counts.failed,
        "errored": counts.errored,
        "unscored": counts.unscored,
    }


def bar(n_passed: int, n_scored: int, interval: Interval | None = None) -> Bar | None:
    """A rate to draw; None where too few trials were scored to name one."""
    if n_scored < FEW_TRIALS:
        return None
    interval = interval or wilson(n_passed, n_scored)
    return Bar(n_passed / n_scored, interval.low, interval.high)


def known_cost(summary: RunSummary, cost: float, n_unpriced: int) -> float | None:
    """US dollars; None where no model was called, or no price is known."""
    return cost if summary.has_models and (cost or not n_unpriced) else None


def columns_k(n: int) -> int:
    """The k of the matrix columns; 0 when a case has one trial and there is nothing to repeat."""
    return min(n, 3) if n > 1 else 0


def first_problem(verdicts: str) -> int:
    """The trial that a case's name leads to: the first that did not pass, else the first."""
    return next((at for at, letter in enumerate(verdicts) if letter in "feu"), 0)
