"""The history of cases over all stored runs of one agent, the basis of every forecast."""

from __future__ import annotations

from dataclasses import dataclass

MOST_TRIALS = 1_000
"""The newest trials of a case that count; more say nothing new."""


@dataclass(frozen=True, slots=True)
class CaseHistory:
    """The scored and the passed trials of one case."""

    scored: int = 0
    passed: int = 0

    @property
    def trials(self) -> tuple[int, int]:
        """Scored and passed."""
        return self.scored, self.passed


@dataclass(frozen=True, slots=True)
class RunDays:
    """How far runs of an unchanged agent differ from day to day: `weights` of `statistics.history.days.SIGMAS`.

    They are empty where too few of the `n_runs` tell it.
    """

    n_runs: int = 0
    weights: tuple[float, ...] = ()


ONE_DAY = RunDays()
"""Nothing is known of how days differ."""


@dataclass(frozen=True, slots=True)
class SetHistory:
    """The histories of some cases, in their order, over the runs of one class.

    `run_ids` are the runs, newest first. `runs` are the scored and passed planned trials of each case in each run that
    played at least half of the cases, the oldest first: they tell whether days differ. `days` is that where it was
    computed before, as in a baseline.
    """

    cases: tuple[CaseHistory, ...]
    run_ids: tuple[int, ...] = ()
    runs: tuple[tuple[tuple[int, int], ...], ...] = ()
    days: RunDays | None = None

    @property
    def trials(self) -> tuple[tuple[int, int], ...]:
        """The scored and passed trials of each case."""
        return tuple(case.trials for case in self.cases)

    @property
    def n_runs(self) -> int:
        """The runs of the class."""
        return self.days.n_runs if self.days else len(self.run_ids)

    @property
    def n_scored(self) -> int:
        """The scored trials of all cases."""
        return sum(case.scored for case in self.cases)

    @property
    def n_passed(self) -> int:
        """The passed trials of all cases."""
        return sum(case.passed for case in self.cases)

    def of(self, places: tuple[int, ...]) -> SetHistory:
        """The history of some of the cases, by their places."""
        runs = tuple(tuple(run[place] for place in places) for run in self.runs)
        return SetHistory(tuple(self.cases[place] for place in places), self.run_ids, runs, self.days)
