"""The table of cases by runs: the question that its address asks, and the rows that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from evaldesk.model.stored import CaseFilter, CaseRow

RowOrder: TypeAlias = Literal["worst", "flaky", "slow", "cost", "tokens", "file", "id", "spread", "change", "metric"]
ORDERS: tuple[RowOrder, ...] = get_args(RowOrder)
OVER_RUNS: frozenset[RowOrder] = frozenset({"spread", "change"})
"""Orders that compare runs; the others are of one run."""
FacetKind: TypeAlias = Literal["tag", "tool"]
MAX_RUNS = 20


@dataclass(frozen=True, slots=True)
class RowSort:
    """The order of the rows: by the values of `run_id`, or over all runs where it is None.

    `metric` names the metric of the order "metric". Each order begins with the rows that ask for a look, such as the
    slowest; with `is_reversed` they come last.
    """

    order: RowOrder = "file"
    metric: str = ""
    run_id: int | None = None
    is_reversed: bool = False


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The conditions that a row meets in one of the runs, or in the run `run_id`; empty values ask nothing.

    `below` is a metric whose threshold some trial does not reach, `mode` the id of a kind of failure, `divergence` the
    words of a first divergence. With `disagree` the pass rates of the runs differ.
    """

    verdict: CaseFilter | None = None
    run_id: int | None = None
    disagree: bool = False
    tag: str = ""
    tool: str = ""
    error: str = ""
    mode: int | None = None
    below: str = ""
    divergence: str = ""

    @property
    def asks_nothing(self) -> bool:
        """Whether every row meets it."""
        return self == RowFilter(run_id=self.run_id)


@dataclass(frozen=True, slots=True)
class FoundCases:
    """The cases whose texts hold the words of a search, by run; `is_cut` where more of them do.

    Cases with `text` in their id are found as well; where it `has_ids`, they are among `cases_by_run` already.
    """

    cases_by_run: Mapping[int, Sequence[int]]
    is_cut: bool = False
    text: str = ""
    has_ids: bool = False


@dataclass(frozen=True, slots=True)
class CaseLayout:
    """The places of the cases of several runs in one table.

    Without `places` the case of index i is the row i in every run. Else row i is the case `places[i][at]` of the run
    `run_ids[at]`, None where that run does not have it.
    """

    run_ids: tuple[int, ...]
    places: tuple[tuple[int | None, ...], ...] | None = None

    def indexes(self, row: int) -> tuple[int | None, ...]:
        """The index of the case of this row in each run."""
        return (row,) * len(self.run_ids) if self.places is None else self.places[row]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row with its case in each run of the table, None where a run does not have it."""

    row: int
    cases: tuple[CaseRow | None, ...]

    @property
    def case(self) -> CaseRow:
        """The case in the first run that has it."""
        return next(case for case in self.cases if case is not None)


@dataclass(frozen=True, slots=True)
class TablePart:
    """Some rows in order; `cursor` continues after them, empty at the end. `n_fitting` rows meet the filter."""

    rows: Sequence[TableRow]
    n_fitting: int
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class DivergenceCount:
    """A first divergence in words, empty for none, its failed trials, their cases, and the first of these."""

    words: str
    n: int
    n_cases: int
    case_id: str
