"""The duration and cost of a run, and the differences it can show, before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass

from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.statistics.noise import smallest_gap
from evaldesk.wording.comparison import gap_sentence, points_words


@dataclass(frozen=True, slots=True)
class VisibleRow:
    """The smallest difference between two runs of this shape that will not look like chance, in words."""

    shape: str
    words: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """Trials to play, cost and time as in the last run of the same agent and eval set, and the detectable difference.

    `visible` is a sentence without its full stop, `rows` have the numbers for other shapes.
    """

    n_trials: int
    last_run: int | None
    cost: float | None
    ms: float | None
    visible: str
    rows: tuple[VisibleRow, ...]


def estimate(
    runs: StoredRuns,
    agent_id: str,
    evalset_id: str,
    *,
    n_cases: int,
    n: int,
    concurrency: int,
    n_trials: int | None = None,
) -> Estimate:
    """The cost of a run of `n_cases` cases with `n` trials each, and the difference it can show.

    `n_trials` are those of a budget, of which a case has `n` in the mean.
    """
    last = runs.last_played(agent_id, evalset_id)
    n_trials = n_cases * n if n_trials is None else n_trials
    return Estimate(
        n_trials=n_trials,
        last_run=last.id if last else None,
        cost=last.cost / last.n_done * n_trials if last and not last.is_cost_unknown else None,
        ms=last.mean_ms * n_trials / max(1, min(concurrency, n_trials)) if last and last.mean_ms else None,
        visible=gap_sentence(n_cases, n, smallest_gap(n_cases, n)),
        rows=_rows(n_cases, n),
    )


def _rows(n_cases: int, n: int) -> tuple[VisibleRow, ...]:
    shapes = {(n_cases, 1), (n_cases, n), (n_cases, max(5, n)), (max(30, 2 * n_cases), n), (max(60, 5 * n_cases), n)}
    return tuple(
        VisibleRow(f"{cases} × {trials}", _visible(cases, trials), (cases, trials) == (n_cases, n))
        for cases, trials in sorted(shapes)
    )


def _visible(n_cases: int, n: int) -> str:
    gap = smallest_gap(n_cases, n)
    return "none" if gap is None or gap > 1 else points_words(gap)
