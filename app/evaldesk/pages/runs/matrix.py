"""The table of cases of a run: a column is one entry of `columns_of`, with its head, its cells and its last line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from evaldesk.errors import EvaldeskError
from evaldesk.model.case_table import RowOrder
from evaldesk.model.conclusion import Counts, scored_and_passed
from evaldesk.model.run import LIVE
from evaldesk.model.stored import CaseRow, MetricRow, RunSummary, TrialKey
from evaldesk.pages.runs.view import (
    STATUS_OF,
    Bar,
    Reliability,
    Square,
    bar,
    columns_k,
    first_problem,
    known_cost,
    metric_doubt,
)
from evaldesk.statistics.intervals import CurvePoint, pass_at_k, pass_hat_k
from evaldesk.store import RunStore
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wording.words import FEW_TRIALS, needs_words, passed_cell, share_range, short_title, undefined_words

MAX_SQUARES = 20
MAX_MESSAGE = 120
NO_WORDS: Mapping[TrialKey, str] = {}
CellKind: TypeAlias = Literal["trials", "squares", "text", "rate", "score", "cost", "duration", "dumbbell", "change"]
"""The notation of a value: a branch of the macro `cell` in `runs/parts.html`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value of the table; `label` is its head where the table has no room for columns, `doubt` its 95 % CI."""

    kind: CellKind
    value: Any
    label: str = ""
    doubt: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the column is set to the right."""
        return self.kind not in ("trials", "squares", "rate", "dumbbell", "change")

    @property
    def sort_value(self) -> float | str | None:
        """The number by which a report sorts its lines where the text of the cell is none; None where it is."""
        if self.kind == "rate":
            return self.value.rate if isinstance(self.value, Bar) else ""
        if self.kind == "cost":
            return self.value.dollars if self.value else None
        return self.value or None if self.kind == "duration" else None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `of_case` gives its value for a case, `total` is that of the whole run.

    `key` names it in an address. A click on its head sorts by `order`, with the `metric` of that order.
    """

    title: str
    kind: CellKind
    of_case: Callable[[CaseRow], Any]
    total: Any = None
    doubt: str = ""
    sub: str = ""
    label: str = ""
    key: str = ""
    order: RowOrder | None = None
    metric: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the column is set to the right."""
        return self.total_cell.is_number

    @property
    def total_cell(self) -> Cell:
        """The cell of the last line."""
        return Cell(self.kind, self.total, self.label, self.doubt)

    def cell(self, row: CaseRow) -> Cell:
        """The cell of a case."""
        return Cell(self.kind, self.of_case(row), self.label)


@dataclass(frozen=True, slots=True)
class TrialStrip:
    """The first MAX_SQUARES trials of a case; `more_href` is the first of the `n_more` others."""

    squares: tuple[Square, ...]
    n_more: int
    more_href: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """The line of a case; its address is that of the first trial that did not pass."""

    index: int
    case_id: str
    href: str
    cells: tuple[Cell, ...]
    message: str = ""
    """The first message, where the id says nothing of the case."""


def columns_of(
    summary: RunSummary,
    metrics: Sequence[MetricRow],
    reliability: Reliability,
    point: CurvePoint,
    in_flight: Collection[TrialKey] = frozenset(),
    words: Mapping[TrialKey, str] = NO_WORDS,
) -> list[Column]:
    """The columns after the name of the case; `point` is the run's pass@k and pass^k at the k of its columns.

    `words` are the first divergences of trials.
    """

    def at_k(measure: Callable[[int, int, int], float | None]) -> Callable[[CaseRow], float | None]:
        return lambda row: measure(*equal_counts_of(summary, row), k)

    def mean_of(metric: str) -> Callable[[CaseRow], float | None]:
        return lambda row: row.means.get(metric)

    k, by_metric = columns_k(summary.n_least), {each.metric: each for each in metrics}
    columns = [
        Column("Trials", "trials", lambda row: trial_strip(summary.id, row, in_flight, words), key="trials"),
        Column(
            "Passed",
            "text",
            lambda row: passed_cell(row.counts),
            passed_cell(summary.counts),
            key="passed",
            order="worst",
        ),
        *_rate_columns(summary, _rate(reliability.bar, summary.counts)),
    ]
    if k:
        for title, of_case, of_run, interval, which in (
            (f"pass@{k}", at_k(pass_at_k), point.pass_at_k, point.at_interval, "one"),
            (f"pass^{k}", at_k(pass_hat_k), point.pass_hat_k, point.hat_interval, "all"),
        ):
            columns.append(
                Column(
                    title,
                    "score",
                    of_case,
                    of_run,
                    share_range(interval),
                    sub=f"{which} of {k}",
                    label=title,
                    key=title.rstrip("0123456789"),
                    order="worst" if which == "all" else "flaky",
                )
            )
    for criterion in summary.config.criteria:
        title, scored = short_title(criterion.metric), by_metric.get(criterion.metric)
        columns.append(
            Column(
                title,
                "score",
                mean_of(criterion.metric),
                scored.mean if scored else None,
                metric_doubt(scored, summary) if scored else "",
                sub=needs_words(criterion.metric, criterion.threshold),
                label=title,
                key=f"metric.{criterion.metric}",
                order="metric",
                metric=criterion.metric,
            )
        )
    return [*columns, *_measured_columns(summary)]


def plain_columns(summary: RunSummary) -> list[Column]:
    """The columns of a run beside others: what its trials scored, cost and took, without a last line of their own."""

    def mean_of(metric: str) -> Callable[[CaseRow], float | None]:
        return lambda row: row.means.get(metric)

    metrics = [
        Column(
            short_title(each.metric),
            "score",
            mean_of(each.metric),
            label=short_title(each.metric),
            key=f"metric.{each.metric}",
            order="metric",
            metric=each.metric,
        )
        for each in summary.config.criteria
    ]
    return [*_rate_columns(summary, ""), *metrics, *_measured_columns(summary)]


def _rate_columns(summary: RunSummary, of_run: Bar | str) -> list[Column]:
    """The pass rates of cases with their intervals, where the run plans enough trials of a case for one."""
    if summary.n_most < FEW_TRIALS:
        return []
    return [
        Column(
            "Pass rate",
            "rate",
            lambda row: _rate(bar(row.counts.passed, row.counts.scored), row.counts),
            of_run,
            sub="95 % CI",
            key="rate",
            order="worst",
        )
    ]


def _measured_columns(summary: RunSummary) -> list[Column]:
    """Cost, tokens and time, where the run may have them."""
    if not is_measured(summary):
        return []
    return [
        Column(
            "Cost",
            "cost",
            lambda row: known_cost(summary, row),
            known_cost(summary, summary),
            label="cost",
            key="cost",
            order="cost",
        ),
        Column(
            "Time",
            "duration",
            lambda row: row.mean_ms,
            summary.mean_ms,
            sub="mean",
            label="time",
            key="time",
            order="slow",
        ),
    ]


@lru_cache(maxsize=256)
def _metric_rows(runs: RunStore, run_id: int, _: object) -> Sequence[MetricRow]:
    return runs.metric_rows(run_id)


def metric_rows_of(runs: RunStore, summary: RunSummary) -> Sequence[MetricRow]:
    """The scores of a run; kept as long as no trial ended."""
    return _metric_rows(runs, summary.id, (summary.counts, summary.duration_ms, summary.n_duplicates))


def is_measured(summary: RunSummary) -> bool:
    """Whether a case may have a cost or a time: not where the run came in a file that tells neither."""
    return not is_imported(summary.config) or bool(summary.cost or summary.duration_ms)


def equal_counts_of(summary: RunSummary, row: CaseRow) -> tuple[int, int]:
    """The scored and the passed trials of a case among the trial indexes that all cases have."""
    letters = row.verdicts[: summary.n_equal]
    return scored_and_passed(letters, errors_are_failures=summary.config.errors_are_failures)


def dash_sentence(summary: RunSummary, rows: Sequence[CaseRow], k: int) -> str:
    """Why a shown case has a dash where others have pass@k."""
    if not k or summary.status in LIVE:
        return ""
    for row in rows:
        n_scored, _ = equal_counts_of(summary, row)
        if n_scored < k:
            return f"– means undefined. {row.case_id}: {undefined_words(k, n_scored)}"
    return ""


def _rate(drawn_rate: Bar | None, counts: Counts) -> Bar | str:
    """The rate to draw, or the reason why there is none."""
    return drawn_rate or ("too few" if counts.scored else "")


def matrix_rows(
    runs: RunStore, columns: Sequence[Column], run_id: int, rows: Sequence[CaseRow]
) -> tuple[MatrixRow, ...]:
    """The lines of the table."""
    return tuple(
        MatrixRow(
            row.case_index,
            row.case_id,
            case_href(run_id, row),
            tuple(column.cell(row) for column in columns),
            first_message(runs, run_id, row),
        )
        for row in rows
    )


def first_message(runs: RunStore, run_id: int, row: CaseRow) -> str:
    """The first message of a case whose id is a number, which says nothing of it; empty for others."""
    return _first_message(runs, run_id, row.case_index, row.verdicts) if row.case_id.isdecimal() else ""


@lru_cache(maxsize=2048)
def _first_message(runs: RunStore, run_id: int, case_index: int, _: str) -> str:
    """The first message of a case, of a simulated user in the first trial; empty where neither is stored."""
    try:
        case = runs.case(run_id, case_index)
        turns = case.turns or runs.trial(run_id, case_index, 0).transcript.turns
    except EvaldeskError:
        return ""
    return turns[0].query.strip()[:MAX_MESSAGE] if turns else ""


def case_href(run_id: int, row: CaseRow) -> str:
    """The first trial of a case that did not pass, else its first one; relative to the list of runs."""
    return f"{run_id}/cases/{row.case_index}/trials/{first_problem(row.verdicts)}"


def trial_strip(
    run_id: int,
    row: CaseRow,
    in_flight: Collection[TrialKey] = frozenset(),
    words: Mapping[TrialKey, str] = NO_WORDS,
) -> TrialStrip:
    """The trials of a case with the `words` of their first divergences, those that are being played as running."""
    base = f"{run_id}/cases/{row.case_index}/trials/"
    letters = row.verdicts[:MAX_SQUARES]
    statuses = ["running" if (row.case_index, at) in in_flight else STATUS_OF[each] for at, each in enumerate(letters)]
    squares = tuple(
        Square(at + 1, status, f"{base}{at}", words.get((row.case_index, at), "")) for at, status in enumerate(statuses)
    )
    return TrialStrip(squares, len(row.verdicts) - len(letters), f"{base}{len(letters)}")
