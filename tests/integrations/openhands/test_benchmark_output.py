"""What `process_instance` returns, in every shape, as events."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import AgentError
from evaldesk.integrations.openhands.output import output_events, output_text
from evaldesk.model import Event, Transcript, TurnRecord
from evaldesk.model.transcript import artefact_text

SAMPLE = Path(__file__).parents[2] / "formats/exchange_samples/openhands.jsonl"


@dataclass
class EvalOutput:
    instance_id: str = "x"
    test_result: dict[str, Any] = field(default_factory=lambda: {"success": True, "score": float("nan")})
    history: Any = None
    metrics: Any = None
    error: str | None = None


@pytest.mark.parametrize(
    ("returned", "said"), [(None, "EvalOutput"), ({"instance_id": "x"}, "no test_result; it has: instance_id")]
)
def test_a_result_without_the_shape_of_an_eval_output_is_an_error(returned: object, said: str) -> None:
    with pytest.raises(AgentError, match=said):
        output_text(returned)


def _events(output: object) -> list[Event]:
    return list(output_events(output_text(output), {}, "Solve it."))


def test_an_output_becomes_events_of_history_usage_and_text() -> None:
    action = {"id": 1, "action": "run", "args": {"command": "ls"}}
    observation = {"observation": "run", "content": "a.txt", "cause": 1}
    output = EvalOutput(
        history=[(action, observation), {"action": "finish", "args": {"final_thought": "done"}, "what": object()}],
        metrics={"token_usages": [{"model": "m", "prompt_tokens": 3}], "costs": (0.5,)},
    )

    events = _events(output)

    kinds = [event.kind for event in events]
    assert kinds == ["log", "tool_call", "tool_result", "tool_call", "agent_message", "usage", "log"]
    assert [event.call.name for event in events if event.kind == "tool_call" and event.call] == ["run", "finish"]
    assert [event.usage.cost for event in events if event.usage] == [0.5]
    assert json.loads(str(artefact_text(Transcript((TurnRecord("", tuple(events)),)), "openhands")))["error"] is None


@pytest.mark.parametrize(
    ("metrics", "costs"),
    [
        ({"accumulated_cost": 0.5}, [0.5]),
        ({"accumulated_cost": 0.5, "costs": [0.2, 0.3], "token_usages": [{}, {}]}, [0.2, 0.3]),
        ({"accumulated_cost": 0.9, "costs": [0.2, 0.3], "token_usages": [{}, {}]}, [0.9]),
        ({"accumulated_cost": 0.9, "costs": [0.2], "token_usages": [{"prompt_tokens": 1}, {}]}, [0.9]),
        ({"accumulated_cost": 0.0, "token_usages": [{"prompt_tokens": 1}, {}]}, [None, None]),
        ({"costs": [{"cost": 0.2}, {"cost": 0.3}]}, [0.5]),
        ({"costs": [0.2, 0.0]}, []),
        ({}, []),
    ],
)
def test_a_stated_total_wins_over_the_sum_of_its_parts(metrics: dict[str, Any], costs: list[float | None]) -> None:
    usages = [event.usage for event in _events({"test_result": {}, "metrics": metrics}) if event.usage]

    assert [usage.cost for usage in usages] == [cost if cost is None else pytest.approx(cost) for cost in costs]


@pytest.mark.parametrize("cost", [-1, math.nan, math.inf, 2.0**60, True, "1"])
def test_an_invalid_cost_is_an_error_of_the_trial(cost: object) -> None:
    events = _events({"test_result": {"ok": True}, "history": [], "metrics": {"accumulated_cost": cost}})

    [error] = [event.error for event in events if event.error]
    assert error.kind == "bad_metrics"
    assert "metrics.accumulated_cost" in error.message
    assert not [event for event in events if event.usage]


def test_an_unreadable_row_is_recorded_with_an_error() -> None:
    events = _events({"test_result": {}, "history": [7]})

    assert [event.kind for event in events] == ["log", "error"]
    assert "history[0]" in str(events[1].error)


class Model:
    """As pydantic's are: it writes itself."""

    def model_dump_json(self) -> str:
        return '{"instance_id":"x","test_result":{"n":1.0},"history":null}'


def test_a_pydantic_output_is_recorded_byte_for_byte() -> None:
    assert output_text(Model()) == Model().model_dump_json()


def test_the_rows_of_openhands_become_events() -> None:
    lines = SAMPLE.read_text("utf-8").splitlines()

    trials = [_events(json.loads(line)) for line in lines]

    for events, tokens_in in zip(trials, (250, 50, 0), strict=True):
        calls = [event.call for event in events if event.kind == "tool_call"]
        answered = [event.call for event in events if event.kind == "tool_result"]
        assert bool(calls) == (tokens_in > 0)
        assert set(map(id, answered)) <= set(map(id, calls))
        assert sum(event.usage.tokens_in for event in events if event.usage) == tokens_in
    errors = [event.error.kind for events in trials for event in events if event.error]
    assert errors == ["max_iterations"]


def test_observations_without_a_cause_are_recorded() -> None:
    history = [{"observation": "error", "content": "lost"}, {"observation": "run", "content": "of nobody"}]

    events = _events({"test_result": {}, "history": history})

    assert [event.text for event in events if event.author == "system"] == ["error: lost"]
    assert [(event.call.name, event.result) for event in events if event.call] == [("run", "of nobody")]
