"""Trajectories of ATIF."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.formats.run_of_two_tasks import run_of_two_tasks

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.integrations.atif.trajectory import Atif
from evaldesk.model import ErrorRecord, EvalSet, ToolCall

SAMPLES = Path(__file__).parents[2] / "formats/exchange_samples"
WHOLE: dict[str, Any] = json.loads((SAMPLES / "atif.json").read_bytes())


def _read(*trajectories: dict[str, Any]) -> Imported:
    data = b"\n".join(json.dumps(one).encode() for one in trajectories)
    assert Atif.recognises(data, "t.jsonl")
    return Atif.read(data, source="t.atif.json")


def test_a_trajectory_is_a_trial_and_the_case_it_shows() -> None:
    found = _read(WHOLE)

    (run,), (case,) = found.runs, found.evalset.cases if found.evalset else ()
    (result,) = run.results
    first, second = result.transcript.turns
    assert (run.name, run.agent, run.model, case.id) == ("t", "dice", "demo", "s-1")
    assert [event.kind for event in first.events] == [
        "log",
        "user_message",
        "usage",
        "log",
        "tool_call",
        "tool_result",
        "usage",
        "agent_message",
    ]
    assert (first.answer, first.duration_ms, second.duration_ms) == ("A four.", 2000.0, 1000.0)
    assert [(turn.query, turn.expected.tool_calls, turn.expected.reference) for turn in case.turns] == [
        ("Roll a die.", (ToolCall("roll", {"sides": 6}, "c1"),), "A four."),
        ("Thanks.", (), "Welcome."),
    ]
    assert case.extra == {
        "notes": "a note",
        "extra": {"reward": 1},
        "agent": {"version": "1.2", "extra": {"team": "a"}},
    }
    assert (result.tokens, result.cost) == (59, 0.002)


def test_an_unchanged_file_is_written_as_it_was_read() -> None:
    (run,) = _read(WHOLE).runs

    again = json.loads(Atif.write(run))

    assert [{**step, "timestamp": ""} for step in again["steps"]] == [
        {**step, "timestamp": ""} for step in WHOLE["steps"]
    ]
    note = {"case": "s-1", "trial": 0, "verdict": "unscored", "scores": []}
    assert {key: value for key, value in again.items() if key != "steps"} == {
        **{key: value for key, value in WHOLE.items() if key != "steps"},
        "extra": {"reward": 1, "evaldesk": note},
    }


def test_several_trajectories_of_one_session_are_cases_of_their_own() -> None:
    found = _read(WHOLE, {**WHOLE, "notes": "second"})

    assert [case.id for case in found.runs[0].cases] == ["s-1", "s-1 (2)"]
    assert [(result.case_index, result.trial_index) for result in found.runs[0].results] == [(0, 0), (1, 0)]
    as_list = Atif.read(json.dumps([WHOLE, {**WHOLE, "notes": "second"}]).encode(), source="t.json")
    assert as_list.runs == found.runs


def test_the_totals_stand_in_where_no_step_counts_tokens() -> None:
    steps = [{key: value for key, value in step.items() if key != "metrics"} for step in WHOLE["steps"]]

    totals = {**WHOLE["final_metrics"], "total_cached_tokens": 20}

    (run,) = _read({**WHOLE, "steps": steps, "final_metrics": totals}).runs

    (result,) = run.results
    assert (result.tokens, result.cost, result.usages[0].tokens_cached) == (59, 0.002, 20)
    assert json.loads(Atif.write(run))["final_metrics"] == totals


def test_parts_sub_agents_and_observations_without_calls() -> None:
    parts = [{"type": "text", "text": "See"}, {"type": "image", "source": {}}]
    seen = {"results": [{"content": "ran"}, {"subagent_trajectory_ref": [{"session_id": "x"}]}]}
    steps = [{"source": "user", "message": parts}, {"source": "agent", "message": "ok", "observation": seen}]

    found = _read({**WHOLE, "steps": steps})

    (turn,) = found.runs[0].results[0].transcript.turns
    assert turn.query == "See"
    assert [event.text for event in turn.events if event.kind == "log"] == ["Observed: ran", "Observed: "]
    assert len(found.refused) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": [{"source": "god", "message": ""}]}, "steps[0].source: unknown source 'god'"),
        ({"steps": None}, "steps: expected a list, got null"),
        ({"agent": {}}, "agent.name: expected a string, but it is missing"),
        ({"steps": [{"source": "agent", "tool_calls": [{}]}]}, "tool_calls[0].function_name: expected a string"),
    ],
)
def test_a_trajectory_that_is_wrong_is_refused_with_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FormatError) as caught:
        _read({**WHOLE, **change})

    assert said in str(caught.value)


def test_every_trial_of_a_run_is_a_line_with_its_whole_conversation() -> None:
    whole = run_of_two_tasks()
    first, *others = whole.results
    broken = replace(first, error=ErrorRecord("model", "quota"), verdict="errored", status="errored", scores=())
    run = replace(whole, results=(broken, *others))

    (again,) = Atif.read(Atif.write(run), source="tau.json").runs

    assert [case.id for case in again.cases] == ["0", "1"]
    assert again.criteria == run.criteria
    for one, other in zip(again.results, run.results, strict=True):
        assert (one.case_index, one.trial_index, one.verdict) == (other.case_index, other.trial_index, other.verdict)
        assert [(turn.query, turn.answer, turn.tool_calls) for turn in one.transcript.turns] == [
            (turn.query, turn.answer, turn.tool_calls) for turn in other.transcript.turns
        ]


def test_an_eval_set_is_no_trajectory() -> None:
    with pytest.raises(FormatError, match="export a run"):
        Atif.write(EvalSet("s"))
