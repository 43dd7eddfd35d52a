"""Trajectories of SWE-agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaldesk.errors import FormatError
from evaldesk.integrations.swe_agent.trajectory import SweAgent
from evaldesk.model import ToolCall
from evaldesk.transcripts.recorded import RecordedRun

SAMPLE = Path(__file__).parents[2] / "formats/exchange_samples/swe-agent.traj"


def test_demonstrations_are_left_out_and_observations_are_no_turns() -> None:
    data = SAMPLE.read_bytes()

    found = SweAgent.read(data, source="i.traj")

    (result,) = found.runs[0].results
    (turn,) = result.transcript.turns
    assert (turn.query, turn.tool_calls) == (
        "The issue.",
        (ToolCall("ls", {"path": "."}, "c1"), ToolCall("action", {"command": "submit"})),
    )
    assert [event.result for event in turn.events if event.kind == "tool_result"] == ["a.py", "ok"]
    assert found.refused == ("Left out: a demonstration before the task, at history[1].",)
    assert (result.tokens, result.cost) == (120, 0.1)


def test_a_run_is_not_written_as_a_trajectory_of_swe_agent() -> None:
    with pytest.raises(FormatError, match="only read"):
        SweAgent.write(RecordedRun("r", "a", (), ()))
