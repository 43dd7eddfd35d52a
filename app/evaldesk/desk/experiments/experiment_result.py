"""The result of an experiment, as a value to work with in Python: the result of each variant, and their analysis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from evaldesk.desk.experiments.results import Results
from evaldesk.desk.runs.run_result import RunResult
from evaldesk.errors import NotFoundError
from evaldesk.model.experiment import Analysis, VariantDifference
from evaldesk.wording.experiments import analysis_sentence, best_sentence


@dataclass(frozen=True)
class ExperimentResult(Sequence[RunResult]):
    """An experiment as it ended: `result["name"]` and `result[0]` are the run of a variant, in their order.

    `results` are the values that the page of the experiment and `evaldesk experiment show` have.
    """

    results: Results
    runs: tuple[RunResult, ...]

    @overload
    def __getitem__(self, key: int | str) -> RunResult: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[RunResult, ...]: ...
    def __getitem__(self, key: int | str | slice) -> RunResult | tuple[RunResult, ...]:
        if not isinstance(key, str):
            return self.runs[key]
        if key not in self.variants:
            raise NotFoundError.among("variant", key, self.variants)
        return self.runs[self.variants.index(key)]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[RunResult]:
        return iter(self.runs)

    def __str__(self) -> str:
        return f"{analysis_sentence(self.analysis)}. {best_sentence(self.analysis)}."

    def __repr__(self) -> str:
        return f"<ExperimentResult {len(self.runs)} variants: {self}>"

    @property
    def id(self) -> int:
        """The number of the experiment in its workspace."""
        return self.results.experiment.id

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the variants, in their order."""
        return tuple(each.name for each in self.results.experiment.plan.variants)

    @property
    def baseline(self) -> str:
        """The variant that the others are compared with."""
        return self.analysis.baseline

    @property
    def analysis(self) -> Analysis:
        """The pass rates, differences, pairs, factors and luck."""
        return self.results.analysis

    @property
    def differences(self) -> tuple[VariantDifference, ...]:
        """The difference of each variant from the baseline, with its intervals, p values and its word."""
        return self.analysis.differences

    @property
    def may_be_best(self) -> tuple[str, ...]:
        """The variants that no other beats."""
        return self.analysis.may_be_best

    @property
    def best(self) -> str | None:
        """The one variant that may be the best; None while there are more."""
        return self.analysis.best

    def table(self) -> Any:
        """A pandas DataFrame with one row a variant, in the columns of `evaldesk experiment show --csv`."""
        import pandas as pd

        return pd.DataFrame(self.results.rows())
