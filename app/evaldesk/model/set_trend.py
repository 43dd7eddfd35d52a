"""Runs of an eval set as a trend shows them: totals of each, and the cases that it played."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TrendRun:
    """A complete run. `outcomes` are numbers of cases by scored and passed trials: (scored, passed, cases).

    Runs with the same `content` played the same cases, under any names; with the same `criteria` they judged them
    alike. `cost` is in dollars, `duration_ms` is that of the `n_timed` trials. `variant` is that of an experiment, and
    empty outside of one; `left_out` are the ids of its cases in quarantine, `uncounted` those of the newest run of the
    set, which are in no `outcomes`.
    """

    id: int
    created_at: datetime
    agent_id: str
    model: str
    agent_version: str
    criteria: str
    evaldesk_version: str
    set_version: str
    content: str
    n_cases: int
    outcomes: tuple[tuple[int, int, int], ...]
    cost: float
    duration_ms: float
    n_timed: int
    variant: str = ""
    left_out: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()

    @property
    def n_scored(self) -> int:
        """The scored trials."""
        return sum(n_trials * n for n_trials, _, n in self.outcomes)

    @property
    def n_passed(self) -> int:
        """The passed trials."""
        return sum(passed * n for _, passed, n in self.outcomes)

    @property
    def rate(self) -> float:
        """The share of its scored trials that passed; there is at least one."""
        return self.n_passed / self.n_scored

    @property
    def line(self) -> tuple[str, str]:
        """Runs with another line are not joined with it: other cases, or other criteria."""
        return self.content, self.criteria


@dataclass(frozen=True, slots=True)
class TrendCase:
    """A case in one run of a trend: `digest` is its `case_version`, `strip` the verdicts of its trials."""

    run_id: int
    case_id: str
    digest: str
    n_passed: int
    n_scored: int
    case_index: int = 0
    strip: str = ""
