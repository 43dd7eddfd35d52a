"""OpenAI Responses that the server stores: a request with `previous_response_id` has its new parts alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.agents.test_wire_calls import story

from evaldesk.engine import play_trial
from evaldesk.engine.worker.prompts import read_seen
from evaldesk.engine.worker.wire_calls import WireCall, wire_events
from evaldesk.llm.retry_events import HttpCall
from evaldesk.model import AgentRef, Case, Event, Limits, TrialSpec, Turn

USAGE = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16}


def call_of(request: dict[str, Any], number: int, *output: dict[str, Any]) -> HttpCall:
    answer = {"id": f"resp_{number}", "object": "response", "model": "small", "output": list(output), "usage": USAGE}
    return HttpCall("/v1/responses", {"model": "small", **request}, json.dumps(answer).encode(), 1.0)


def function_call(number: int, order: str) -> dict[str, Any]:
    arguments = json.dumps({"order": order})
    return {"type": "function_call", "call_id": f"c{number}", "name": "get_order", "arguments": arguments}


def result(number: int, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": text}


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def events_of(*calls: HttpCall) -> list[Event]:
    seen = [(call, read_seen(call, dict(call.request))[1]) for call in calls if isinstance(call.request, dict)]
    calls_seen = [WireCall(float(at), call, exchange) for at, (call, exchange) in enumerate(seen) if exchange]
    wired = wire_events(calls_seen, ())
    return [event for event in wired.events if event.call]


def test_a_result_of_a_stored_response_joins_its_call() -> None:
    calls = (
        call_of({"input": "Where is A7?", "store": True}, 1, function_call(1, "A7")),
        call_of({"input": [result(1, "on its way")], "previous_response_id": "resp_1"}, 2, message("It comes.")),
    )

    events = events_of(*calls)

    assert [(event.kind, event.call and event.call.args, event.result) for event in events] == [
        ("tool_call", {"order": "A7"}, None),
        ("tool_result", {"order": "A7"}, "on its way"),
    ]


def test_two_calls_of_a_stored_response_have_each_its_own_result() -> None:
    calls = (
        call_of({"input": "Where are both?"}, 1, function_call(1, "A7"), function_call(2, "B8")),
        call_of({"input": [result(2, "lost"), result(1, "here")], "previous_response_id": "resp_1"}, 2, message("So.")),
    )

    own = [event for event in events_of(*calls) if event.kind == "tool_result"]
    results = {str(event.call.args["order"]): event.result for event in own if event.call}

    assert results == {"A7": "here", "B8": "lost"}


def test_a_call_after_a_stored_response_is_a_new_one() -> None:
    calls = (
        call_of({"input": "Where is A7?"}, 1, function_call(1, "A7")),
        call_of({"input": [result(1, "lost")], "previous_response_id": "resp_1"}, 2, function_call(2, "A7")),
        call_of({"input": [result(2, "here")], "previous_response_id": "resp_2"}, 3, message("It is here.")),
    )

    kinds = [(event.kind, event.result) for event in events_of(*calls)]

    assert kinds == [("tool_call", None), ("tool_result", "lost"), ("tool_call", None), ("tool_result", "here")]


AGENT = """
import httpx

last = {}

def root_agent(message, session):
    body = {"model": "small", "input": message, "tools": [{"type": "function", "name": "get_order", "parameters": {}}]}
    if session.id in last:
        body["previous_response_id"] = last[session.id]
    while True:
        answer = httpx.post("{address}/responses", json=body).json()
        last[session.id] = answer["id"]
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        if not calls:
            return answer["output"][0]["content"][0]["text"]
        results = [{"type": "function_call_output", "call_id": c["call_id"], "output": "on its way"} for c in calls]
        body = {**body, "input": results, "previous_response_id": answer["id"]}
"""


@pytest.mark.anyio
@pytest.mark.parametrize("has_double", [False, True], ids=["the agent's own tool", "a double"])
async def test_a_chain_of_stored_responses_is_kept(has_double: bool, endpoint: Endpoint, loaded: Any) -> None:
    chain = (function_call(1, "A7"), message("It comes."), message("You asked of A7."))
    for number, output in enumerate(chain, 1):
        endpoint.gives(call_of({}, number, output).answer)
    agent = loaded(AGENT.replace("{address}", endpoint.address))
    extra: dict[str, Any] = {"tool_doubles": {"tools": {"get_order": [{"result": "lost"}]}}} if has_double else {}
    case = Case("c", (Turn("Where is A7?"), Turn("Which one?")), extra=extra)
    ref = AgentRef("a", "some_agent.agent:root_agent")

    trial = await play_trial(agent, TrialSpec(1, 0, 0, case, ref, limits=Limits(60)))

    assert trial.error is None
    first, second = trial.transcript.turns
    assert story(first) == [("get_order", {"order": "A7"}), "lost" if has_double else "on its way", "It comes."]
    assert story(second) == ["You asked of A7."]
    # A request without a chain goes back whole, so its answer is stored with all before it.
    before = None if has_double else "resp_1"
    assert [request.get("previous_response_id") for request in endpoint.asked] == [None, before, "resp_2"]
    assert endpoint.asked[1]["input"][-1] == result(1, "lost" if has_double else "on its way")
    assert len(endpoint.asked[1]["input"]) == (3 if has_double else 1)
    assert [usage.tokens_in for usage in trial.usages] == [11, 11, 11]
