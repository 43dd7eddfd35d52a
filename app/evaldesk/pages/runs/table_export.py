"""The table of cases as CSV and JSON: all rows that its filters show, in its order, a part at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from evaldesk.desk.desk import Desk
from evaldesk.model.case_table import TableRow
from evaldesk.model.stored import CaseRow, RunSummary
from evaldesk.pages.runs.table import TableRows, table_rows
from evaldesk.pages.runs.table_query import TableQuery
from evaldesk.wire import to_json
from evaldesk.wording.printable import cell

ROWS_AT_ONCE = 500
FIELDS = ("trials", "passed", "scored", "pass_rate", "cost", "mean_ms", "tokens")


def csv_table(desk: Desk, query: TableQuery) -> tuple[TableRows, Iterator[bytes]]:
    """The runs of the table, and it as CSV with a line of heads: the id of each case, then the fields of each run.

    Raises NotFoundError before the first line.
    """
    first = table_rows(desk, query, most=ROWS_AT_ONCE, has_means=True)
    return first, _csv_lines(desk, query, first)


def _csv_lines(desk: Desk, query: TableQuery, part: TableRows) -> Iterator[bytes]:
    metrics = [_metrics(summary) for summary in part.summaries]
    heads = [
        f"run {summary.id} {name}"
        for summary, names in zip(part.summaries, metrics, strict=True)
        for name in (*FIELDS, *names)
    ]
    yield _line(["case", *heads])
    for row in _all_rows(desk, query, part):
        cells: list[object] = [row.case.case_id]
        for case, summary, names in zip(row.cases, part.summaries, metrics, strict=True):
            values = _values(summary, case) if case else {}
            cells += [values.get(name, "") for name in FIELDS]
            cells += ["" if case is None else case.means.get(name, "") for name in names]
        yield _line(cells)


def json_table(desk: Desk, query: TableQuery) -> tuple[TableRows, Iterator[bytes]]:
    """The runs of the table, and it as one JSON object with `runs` and `cases`. Raises as `csv_table`."""
    first = table_rows(desk, query, most=ROWS_AT_ONCE, has_means=True)
    return first, _json_pieces(desk, query, first)


def _json_pieces(desk: Desk, query: TableQuery, part: TableRows) -> Iterator[bytes]:
    runs = [run_object(summary) for summary in part.summaries]
    yield b'{"runs":' + to_json(runs) + b',"cases":['
    for number, row in enumerate(_all_rows(desk, query, part)):
        cells = [
            None if case is None else {"run": summary.id} | _values(summary, case) | {"metrics": dict(case.means)}
            for case, summary in zip(row.cases, part.summaries, strict=True)
        ]
        yield (b",\n" if number else b"\n") + to_json({"case_id": row.case.case_id, "runs": cells})
    yield b"\n]}\n"


def run_object(summary: RunSummary) -> dict[str, Any]:
    """A run of the table as JSON."""
    counts = summary.counts
    return {
        "run": summary.id,
        "agent": summary.config.agent.id,
        "model": summary.config.model or summary.config.agent_model or "",
        "evalset": summary.config.evalset_name,
        "status": summary.status,
        "passed": counts.passed,
        "scored": counts.scored,
        "errored": counts.errored,
        "pass_rate": counts.rate,
        "cost": summary.known_cost(summary),
        "tokens": summary.tokens,
    }


def _all_rows(desk: Desk, query: TableQuery, part: TableRows) -> Iterator[TableRow]:
    """The rows of a part, and those of all parts after it."""
    yield from part.part.rows
    while part.part.cursor:
        part = table_rows(desk, replace(query, after=part.part.cursor), most=ROWS_AT_ONCE, has_means=True)
        yield from part.part.rows


def _values(summary: RunSummary, case: CaseRow) -> dict[str, object]:
    counts = case.counts
    return {
        "trials": case.verdicts,
        "passed": counts.passed,
        "scored": counts.scored,
        "pass_rate": counts.passed / counts.scored if counts.scored else None,
        "cost": summary.known_cost(case),
        "mean_ms": case.mean_ms,
        "tokens": case.tokens,
    }


def _metrics(summary: RunSummary) -> Sequence[str]:
    return [criterion.metric for criterion in summary.config.criteria]


def _line(cells: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow([cell(each) for each in cells])
    return text.getvalue().encode()
