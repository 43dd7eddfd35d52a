"""Scores as rows of the CSV that ADK's `AgentEvaluator` appends to. (reference/adk.md section 4)"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from evaldesk.desk.runs.run_result import CaseResult, RunResult
from evaldesk.durable_files import append_file, make_folder
from evaldesk.model import Score, ToolCall, TurnRecord
from evaldesk.wording.printable import cell
from evaldesk.wording.trial_text import call_text

COLUMNS = (
    "eval_set_id",
    "eval_id",
    "metric_name",
    "threshold",
    "score",
    "eval_status",
    "prompt",
    "expected_response",
    "actual_response",
    "expected_tool_calls",
    "actual_tool_calls",
)


def append_adk_rows(path: Path, results: Sequence[RunResult]) -> None:
    """Append a row for each score of a turn; a new file begins with the names of the columns."""
    make_folder(path.parent)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    if not path.exists() or not path.stat().st_size:
        writer.writerow(COLUMNS)
    for result in results:
        for case in result:
            writer.writerows(map(cell, row) for row in _rows(result.config.evalset_name, case))
    append_file(path, text.getvalue().encode())


def _rows(evalset_id: str, case: CaseResult) -> Iterator[list[object]]:
    for trial in case:
        records = trial.transcript.turns
        for score in trial.scores:
            if score.turn is None or score.turn >= len(case.case.turns):
                continue
            turn = case.case.turns[score.turn]
            # A trial that broke off has scores for the turns that were never played, too.
            record = records[score.turn] if score.turn < len(records) else TurnRecord(turn.query)
            head = [evalset_id, case.id, score.metric, score.threshold, score.value, _status(score)]
            answers = [turn.query, turn.expected.reference or "", record.answer]
            yield [*head, *answers, _calls(turn.expected.tool_calls or ()), _calls(record.tool_calls)]


def _status(score: Score) -> str:
    return "NOT_EVALUATED" if score.passed is None else "PASSED" if score.passed else "FAILED"


def _calls(calls: Sequence[ToolCall]) -> str:
    return "\n".join(call_text(call.name, call.args) for call in calls)
