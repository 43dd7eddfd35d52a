"""The first divergences in all failed trials of a run, equal ones counted together, as bars that filter its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.model.stored import RunSummary

N_SHOWN = 6
MAX_DIVERGENCES = 200
NO_DIVERGENCE = "no divergence in a call, an answer or the state"


@dataclass(frozen=True, slots=True)
class DivergenceBar:
    """A first divergence: its trials, their share of all failed ones, its cases, and the rows of the table with it."""

    n: int
    share: float
    words: str
    n_cases: int
    case_id: str
    href: str


@dataclass(frozen=True, slots=True)
class RunDivergences:
    """The ways to fail in all failed trials of a run, the most frequent first; `n_more` are left out."""

    summary: RunSummary
    title: str
    bars: Sequence[DivergenceBar]
    n_more: int

    @property
    def first_bars(self) -> Sequence[DivergenceBar]:
        """The bars that are shown at once."""
        return self.bars[:N_SHOWN]

    @property
    def folded_bars(self) -> Sequence[DivergenceBar]:
        """The bars that are folded away."""
        return self.bars[N_SHOWN:]


def read_divergences(desk: Desk, run_id: int) -> RunDivergences:
    """The first divergences of all failed trials; those of an older run are read first. Raises NotFoundError."""
    runs = desk.store.runs
    summary = runs.summary(run_id)
    if not desk.is_read_only:
        runs.add_facets(run_id)
    counts = runs.divergence_counts(run_id)
    n_failed = max(1, sum(each.n for each in counts))
    bars = [
        DivergenceBar(
            each.n,
            each.n / n_failed,
            each.words or NO_DIVERGENCE,
            each.n_cases,
            each.case_id,
            f"/runs/{run_id}?" + urlencode({"divergence": each.words} if each.words else {"only": "failed"}) + "#cases",
        )
        for each in counts
    ]
    n_more = max(0, len(bars) - MAX_DIVERGENCES)
    return RunDivergences(summary, run_title(summary), bars[:MAX_DIVERGENCES], n_more)
