"""What a run gave, as a value to work with in Python: cases, their trials, and the numbers over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from evaldesk.errors import NotFoundError
from evaldesk.model import Case, RunConfig, RunStatus, TrialResult
from evaldesk.report.charts import pass_figure
from evaldesk.report.intervals import Interval, rate_interval
from evaldesk.report.pass_k import CaseCounts, curve_point, pass_curve
from evaldesk.report.run_frame import trial_row
from evaldesk.report.turn_text import trial_text
from evaldesk.report.words import passed_sentence


@dataclass(frozen=True, slots=True, repr=False)
class CaseResult(Sequence[TrialResult]):
    """The trials of one case that were played, in order; index or iterate it for the trials.

    `n_planned` is how many there were to play. With `errors_are_failures` an errored trial counts as scored.
    """

    case: Case
    trials: tuple[TrialResult, ...]
    n_planned: int
    errors_are_failures: bool = False

    @overload
    def __getitem__(self, index: int) -> TrialResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TrialResult, ...]: ...
    def __getitem__(self, index: int | slice) -> TrialResult | tuple[TrialResult, ...]:
        return self.trials[index]

    def __len__(self) -> int:
        return len(self.trials)

    def __repr__(self) -> str:
        return f"<CaseResult {self.id}: {self.n_passed} of {self.n_planned} passed>"

    @property
    def id(self) -> str:
        """The id of the case."""
        return self.case.id

    @property
    def n_passed(self) -> int:
        """Trials that passed."""
        return self._count("passed")

    @property
    def n_failed(self) -> int:
        """Trials that failed."""
        return self._count("failed")

    @property
    def n_errored(self) -> int:
        """Trials that broke off, or could not be judged because of an error."""
        return self._count("errored")

    @property
    def n_unscored(self) -> int:
        """Trials that some criterion had nothing to say about."""
        return self._count("unscored")

    @property
    def n_scored(self) -> int:
        """The denominator of `pass_rate`."""
        return self.n_passed + self.n_failed + (self.n_errored if self.errors_are_failures else 0)

    @property
    def pass_rate(self) -> float | None:
        """The share of scored trials that passed; None when none was scored."""
        return self.n_passed / self.n_scored if self.n_scored else None

    def diff(self, trial: int = 0) -> str:
        """One trial turn by turn, expected beside actual, as text."""
        return trial_text(self.case, self.trials[trial], is_whole=True)

    def _count(self, verdict: str) -> int:
        return sum(trial.verdict == verdict for trial in self.trials)


@dataclass(frozen=True)
class RunResult(Sequence[CaseResult]):
    """A run as it ended: `result["case id"]` and `result[0]` are a case, iterating gives the cases in their order.

    `status` is `finished`, `stopped` or `failed`, and `reason` says why it is not finished. Errors are not failures
    and unscored is not passed: each is counted apart.
    """

    id: int
    config: RunConfig
    cases: tuple[CaseResult, ...]
    status: RunStatus = "finished"
    reason: str = ""

    @overload
    def __getitem__(self, key: int | str) -> CaseResult: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[CaseResult, ...]: ...
    def __getitem__(self, key: int | str | slice) -> CaseResult | tuple[CaseResult, ...]:
        if not isinstance(key, str):
            return self.cases[key]
        if key not in self._by_id:
            raise NotFoundError.among("case of this run", key, self._by_id)
        return self._by_id[key]

    def __len__(self) -> int:
        return len(self.cases)

    def __repr__(self) -> str:
        return f"<RunResult {self.status}, {len(self.cases)} cases x {self.config.n}: {self}>"

    def __str__(self) -> str:
        asides = ((self.n_errored, "errored"), (self.n_unscored, "unscored"), (self.n_todo, "not played"))
        said = ", ".join(f"{n} {word}" for n, word in asides if n)
        return passed_sentence(self.n_passed, self.n_scored, self.interval) + (f" ({said})" if said else "")

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """Every trial that was played, case by case."""
        return tuple(trial for case in self.cases for trial in case.trials)

    @property
    def n_trials(self) -> int:
        """Trials that were planned."""
        return sum(case.n_planned for case in self.cases)

    @property
    def n_passed(self) -> int:
        """Trials that passed."""
        return sum(case.n_passed for case in self.cases)

    @property
    def n_failed(self) -> int:
        """Trials that failed."""
        return sum(case.n_failed for case in self.cases)

    @property
    def n_errored(self) -> int:
        """Trials that broke off."""
        return sum(case.n_errored for case in self.cases)

    @property
    def n_unscored(self) -> int:
        """Trials that some criterion had nothing to say about."""
        return sum(case.n_unscored for case in self.cases)

    @property
    def n_scored(self) -> int:
        """The denominator of `pass_rate`."""
        return sum(case.n_scored for case in self.cases)

    @property
    def n_todo(self) -> int:
        """Trials that were planned and not played to an end."""
        return self.n_trials - len(self.trials)

    @property
    def all_passed(self) -> bool:
        """Whether every planned trial was played and passed."""
        return 0 < self.n_passed == self.n_trials

    @property
    def pass_rate(self) -> float | None:
        """The share of scored trials that passed; None when none was scored."""
        return self.n_passed / self.n_scored if self.n_scored else None

    @property
    def interval(self) -> Interval | None:
        """Where the pass rate probably lies, 95 %, clustered by case; None when nothing was scored."""
        return rate_interval(self.counts)

    @property
    def counts(self) -> tuple[CaseCounts, ...]:
        """What pass@k is made of: scored trials of a case, passed trials of it, 1."""
        return tuple((case.n_scored, case.n_passed, 1) for case in self.cases)

    @property
    def tokens(self) -> int:
        """Tokens in and out of every model call."""
        return sum(trial.tokens for trial in self.trials)

    @property
    def cost(self) -> float | None:
        """US dollars; None as soon as one price is unknown, and when no model was called."""
        costs = [trial.cost for trial in self.trials if trial.usages]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if costs and len(known) == len(costs) else None

    def pass_at(self, k: int) -> float | None:
        """pass@k: the mean over cases of the chance that one of k trials passes; None when no case has k trials."""
        return curve_point(self.counts, k).pass_at_k

    def pass_hat(self, k: int) -> float | None:
        """pass^k: the mean over cases of the chance that all of k trials pass; None when no case has k trials."""
        return curve_point(self.counts, k).pass_hat_k

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with one row a trial and one column for each metric. (report/run_frame.py)"""
        import pandas as pd

        return pd.DataFrame([trial_row(case.case, trial, self.config) for case in self.cases for trial in case.trials])

    def figure(self) -> Any:
        """pass@k and pass^k by k, as a plotly Figure."""
        from plotly.graph_objects import Figure

        drawn = pass_figure(pass_curve(self.counts))
        return Figure(data=drawn["data"], layout=drawn["layout"])

    @cached_property
    def _by_id(self) -> dict[str, CaseResult]:
        return {case.id: case for case in self.cases}

    def __iter__(self) -> Iterator[CaseResult]:
        return iter(self.cases)
