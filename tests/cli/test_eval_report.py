"""What `evaldesk eval` says of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaldesk.cli.eval.report import show_result
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    Expected,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Verdict,
)
from evaldesk.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evaldesk.db") as opened:
        yield opened


def _played(store: Store, *, sides: int, answer: str = "Done.") -> int:
    """A run of one trial whose second turn calls `roll_die(sides)` where 16 sides were expected."""
    turns = (Turn("Hello"), Turn("Roll.", Expected(tool_calls=(ToolCall("roll_die", {"sides": 16}),))))
    config = RunConfig(AgentRef("dice", "agent:root_agent"), "dice")
    run_id = store.runs.create(config, [Case("roll_16", turns)])
    made = Event("tool_call", call=ToolCall("roll_die", {"sides": sides}))
    records = TurnRecord("Hello"), TurnRecord("Roll.", (made, Event("agent_message", text=answer)))
    verdict: Verdict = "passed" if sides == 16 else "failed"
    score = Score("tool_trajectory_avg_score", float(sides == 16), threshold=1.0, passed=sides == 16)
    store.runs.record([TrialResult(run_id, 0, 0, "finished", verdict, transcript=Transcript(records), scores=(score,))])
    store.runs.set_status(run_id, "finished")
    return run_id


def test_a_failed_case_names_the_place_where_it_went_wrong(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    show_result(StoredRuns(store.runs), store.runs.summary(_played(store, sides=20)))

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "✗  roll_16"
    assert lines[1].strip() == ("trial 1 failed: turn 2, call 1: roll_die was called with sides 20, expected 16")
    assert lines[2] == "0 of 1 passed; too few trials for a rate"


def test_a_passed_case_takes_one_line(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = _played(store, sides=16)

    show_result(StoredRuns(store.runs), store.runs.summary(run_id))

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "✓  roll_16"
    assert lines[-1] == f"Run {run_id}. `evaldesk open {run_id}` shows it turn by turn."


def test_what_an_agent_named_cannot_steer_the_terminal(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    config = RunConfig(AgentRef("dice", "agent:root_agent"), "dice")
    run_id = store.runs.create(config, [Case("a\x1b[2Jb", (Turn("Hello"),))])

    show_result(StoredRuns(store.runs), store.runs.summary(run_id))

    assert "\x1b" not in capsys.readouterr().out
