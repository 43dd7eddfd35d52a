"""The CSV that ADK's AgentEvaluator appends to."""

from __future__ import annotations

import csv
from pathlib import Path

from evaldesk.desk.runs.run_result import CaseResult, RunResult
from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    Expected,
    RunConfig,
    Score,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.pages.reports.adk_rows import append_adk_rows

CASE = Case("c", (Turn("Hi.", Expected(reference="Hello.")), Turn("Bye.", Expected(reference="=Bye."))))
SCORES = (Score("m", 1.0, 0, 0.5, True), Score("m", 0.0, 1, 0.5, False), Score("m", 0.5, None, 0.5, True))


def test_a_turn_that_was_never_played_has_a_row_without_an_answer(tmp_path: Path) -> None:
    played = Transcript((TurnRecord("Hi.", (Event("agent_message", text="Hello."),)),))
    trial = TrialResult(0, 0, 0, status="finished", verdict="failed", transcript=played, scores=SCORES)
    config = RunConfig(evalset_id="greetings", agent=AgentRef("a", "a:agent"))

    append_adk_rows(tmp_path / "rows.csv", [RunResult(1, config, (CaseResult(CASE, (trial,), 1),))])

    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        _, first, second = csv.reader(file)
    assert first[:9] == ["greetings", "c", "m", "0.5", "1.0", "PASSED", "Hi.", "Hello.", "Hello."]
    assert second[:9] == ["greetings", "c", "m", "0.5", "0.0", "FAILED", "Bye.", "'=Bye.", ""]
