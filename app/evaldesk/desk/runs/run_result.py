"""The result of a run, as a value to work with in Python: cases, their trials, and the numbers over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

from evaldesk.desk.runs.charts import pass_figure
from evaldesk.desk.runs.gates.conclusion import (
    CaseNumbers,
    Ending,
    Kinds,
    RunNumbers,
    Spent,
    case_counts,
    conclude,
)
from evaldesk.desk.runs.trial_rows import trial_row
from evaldesk.errors import NotFoundError
from evaldesk.model import Case, Conclusion, Counted, Counts, RunConfig, RunStatus, TrialResult
from evaldesk.model.comparison import TO_PLAY, RunChange
from evaldesk.model.conclusion import Interval, Stop
from evaldesk.model.transcript import known_sum
from evaldesk.statistics.intervals import CaseCounts, CurvePoint, point_at
from evaldesk.wording.trial_text import trial_text
from evaldesk.wording.words import asides_words, passed_sentence, trials_each


@dataclass(frozen=True, slots=True, repr=False)
class CaseResult(Counted, Sequence[TrialResult]):
    """The trials of one case that were played, in order; index or iterate it for the trials.

    `n_planned` is how many there were to play. With `errors_are_failures` an errored trial counts as scored. To a case
    that `is_partly_asserted` some metric does not apply.
    """

    case: Case
    trials: tuple[TrialResult, ...]
    n_planned: int
    errors_are_failures: bool = False
    is_partly_asserted: bool = False

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
    def counts(self) -> Counts:
        """The planned trials by how they ended."""
        scores = (score for trial in self.trials for score in trial.scores if score.turn is None)
        is_whole = not self.is_partly_asserted and all(score.is_applicable for score in scores)
        verdicts = (trial.verdict for trial in self.trials)
        counts = Counts.of_verdicts(verdicts, errors_are_failures=self.errors_are_failures)
        return replace(counts, planned=self.n_planned, not_applicable=0 if is_whole else self.n_planned)

    @property
    def letters(self) -> str:
        """The letters of the verdicts by trial index; `.` for a trial that was not played to an end."""
        return "".join(trial.verdict[:1] or TO_PLAY for trial in self.trials)

    def diff(self, trial: int = 0) -> str:
        """One trial turn by turn, expected beside actual, as text."""
        return trial_text(self.case, self.trials[trial], is_whole=True)


@dataclass(frozen=True)
class RunResult(Counted, Sequence[CaseResult]):
    """A run as it ended: `result["case id"]` and `result[0]` are a case, iterating gives the cases in their order.

    `status` is `finished`, `stopped` or `failed`, and `reason` says why it is not finished. Errors are not failures
    and unscored is not passed: each is counted apart. `change` is against the baseline that the run was started with,
    `stop` is set where its gates were decided before its last trial.
    """

    id: int
    config: RunConfig
    cases: tuple[CaseResult, ...]
    status: RunStatus = "finished"
    reason: str = ""
    change: RunChange | None = None
    stop: Stop | None = None

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
        trials = trials_each(min(self._n_each, default=1), max(self._n_each, default=1))
        return f"<RunResult {self.status}, {len(self.cases)} cases x {trials}: {self}>"

    def __str__(self) -> str:
        return passed_sentence(self.counts, self.interval) + asides_words(self.counts)

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """Every trial that was played, case by case."""
        return tuple(trial for case in self.cases for trial in case.trials)

    @cached_property
    def conclusion(self) -> Conclusion:
        """The conclusion of the run, by the gates of its configuration; without gates every trial must pass."""
        return conclude(self.config.gates, self._numbers, self.change)

    @cached_property
    def _numbers(self) -> RunNumbers:
        trials, threshold = self.trials, self.config.pass_threshold
        every_case = [
            CaseNumbers(case.id, case.counts, threshold, pooled_failure=self._pooled_failure(case))
            for case in self.cases
        ]
        left_out = frozenset(self.config.left_out)
        numbers = RunNumbers.of_cases(
            (case for case in every_case if case.id not in left_out),
            costs=Spent(
                sum(trial.cost or 0.0 for trial in trials),
                sum(bool(trial.usages and trial.cost is None) for trial in trials),
                sum(trial.is_least for trial in trials),
            ),
            endings=[Ending(self.status, self.reason, self.stop, self.config.recorded, self.config.shard)],
        )
        authors = self.config.tag_authors
        others = tuple(replace(case, tag_author=authors.get(case.id)) for case in every_case if case.id in left_out)
        return replace(numbers, equal_kinds=self._equal_kinds, left_out=others)

    def _pooled_failure(self, case: CaseResult) -> str | None:
        if not self.config.gates.is_pooled:
            return None
        from evaldesk.desk.adk_verdict import pooled_failure  # most runs judge single trials

        return pooled_failure(case, self.config.criteria)

    @property
    def counts(self) -> Counts:
        """The planned trials by how they ended."""
        return self._numbers.counts

    @property
    def n_trials(self) -> int:
        """Trials that were planned."""
        return self.counts.planned

    @property
    def n_todo(self) -> int:
        """Trials that were planned and not played to an end."""
        return self.counts.unplayed

    @property
    def all_passed(self) -> bool:
        """Whether every planned trial was played and passed."""
        return self.counts.all_passed

    @property
    def interval(self) -> Interval | None:
        """Where the pass rate probably lies, 95 %, clustered by case; None when nothing was scored."""
        return self._numbers.interval

    @property
    def case_counts(self) -> tuple[CaseCounts, ...]:
        """The input of pass@k: scored trials of a case that gates ask for, passed trials of it, 1."""
        counting = (case for case in self.cases if case.id not in self.config.left_out)
        return tuple((case.n_scored, case.n_passed, 1) for case in counting)

    @property
    def equal_counts(self) -> tuple[CaseCounts, ...]:
        """As `case_counts`, over the trials that all cases have.

        These are fewer in a run that stopped when it was decided, and where cases have different numbers of trials.
        """
        return self.case_counts if self._equal_kinds is None else case_counts(self._equal_kinds)

    @cached_property
    def _equal_kinds(self) -> Kinds | None:
        n_least = min(self._n_each, default=1)
        if self.stop is None and n_least == max(self._n_each, default=1):
            return None
        n = self.stop.n_equal(n_least) if self.stop else n_least
        counting = (case for case in self.cases if case.id not in self.config.left_out)
        return tuple((replace(case, trials=case.trials[:n], n_planned=n).counts, 1) for case in counting)

    @property
    def tokens(self) -> int:
        """Tokens in and out of every model call."""
        return sum(trial.tokens for trial in self.trials)

    @property
    def is_least(self) -> bool:
        """Whether there were more tokens, because a trial does not tell every call."""
        return any(trial.is_least for trial in self.trials)

    @property
    def cost(self) -> float | None:
        """US dollars; None as soon as one price is unknown or a trial `is_least`, and when no model was called."""
        return None if self.is_least else known_sum(trial.cost for trial in self.trials if trial.usages)

    def pass_at(self, k: int) -> float | None:
        """pass@k: the mean over cases of the chance that one of k trials passes; None where most cases have fewer."""
        return point_at(self.equal_counts, k).pass_at_k

    def pass_hat(self, k: int) -> float | None:
        """pass^k: the mean over cases of the chance that all of k trials pass; None where most cases have fewer."""
        return point_at(self.equal_counts, k).pass_hat_k

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """pass@k and pass^k by k with their 95 % intervals, all points over the same cases."""
        return self._numbers.curve

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with one row a trial and one column for each metric. (report/run_frame.py)"""
        import pandas as pd

        return pd.DataFrame([trial_row(case.case, trial, self.config) for case in self.cases for trial in case.trials])

    def figure(self) -> Any:
        """pass@k and pass^k by k, as a plotly Figure."""
        from plotly.graph_objects import Figure

        chart = pass_figure(self.curve)
        return Figure(data=chart["data"], layout=chart["layout"])

    @property
    def _n_each(self) -> tuple[int, ...]:
        return tuple(case.n_planned for case in self.cases)

    @cached_property
    def _by_id(self) -> dict[str, CaseResult]:
        return {case.id: case for case in self.cases}

    def __iter__(self) -> Iterator[CaseResult]:
        return iter(self.cases)
