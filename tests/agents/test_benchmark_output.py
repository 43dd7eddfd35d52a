"""What `process_instance` returns, in every shape, as events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents.benchmark_output import output_events, sent_output
from evaldesk.errors import AgentError


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
def test_what_is_no_eval_output_is_said(returned: object, said: str) -> None:
    with pytest.raises(AgentError, match=said):
        sent_output(returned)


def test_an_output_is_sent_as_plain_json_and_told_as_it_would_be_here() -> None:
    action = {"id": 1, "action": "run", "args": {"command": "ls"}}
    observation = {"observation": "run", "content": "a.txt", "cause": 1}
    output = EvalOutput(
        history=[(action, observation), {"action": "finish", "args": {"final_thought": "done"}, "what": object()}],
        metrics={"token_usages": [{"model": "m", "prompt_tokens": 3}], "costs": (0.5,)},
    )

    sent = json.loads(json.dumps(sent_output(output)))

    assert list(output_events(sent, {}, "a")) == list(output_events(output, {}, "a"))
    kinds = [event.kind for event in output_events(sent, {}, "a")]
    assert kinds == ["tool_call", "tool_result", "agent_message", "usage", "log"]


def test_the_rows_of_openhands_become_events(shared: Path) -> None:
    lines = (shared / "data/openhands/v0_evaloutput.jsonl").read_text("utf-8").splitlines()

    trials = [list(output_events(json.loads(line), {}, "agent")) for line in lines]

    for events in trials:
        calls = [event.call for event in events if event.kind == "tool_call"]
        answered = [event.call for event in events if event.kind == "tool_result"]
        assert calls
        assert set(map(id, answered)) <= set(map(id, calls))
        assert sum(event.usage.tokens_in for event in events if event.usage) > 0
    errors = [event.error.kind for events in trials for event in events if event.error]
    assert errors == ["max_iterations"]


def test_an_observation_without_a_cause_stays_as_a_remark() -> None:
    history = [{"observation": "error", "content": "lost"}, {"observation": "run", "content": "of nobody"}]

    events = list(output_events({"test_result": {}, "history": history}, {}, "agent"))

    assert [event.text for event in events if event.kind == "log" and event.author == "agent"] == ["lost"]
