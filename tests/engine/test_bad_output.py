"""What becomes of a trial whose agent says what no agent may say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.engine.scripted import REF, Scripted, yielding

from evaldesk.engine import play_trial
from evaldesk.model import (
    Event,
    Session,
    ToolCall,
    TrialSpec,
)
from evaldesk.wire import from_json, to_json

pytestmark = pytest.mark.anyio


async def _coroutine() -> None:
    return None


def event(kind: Any, **fields: Any) -> Event:
    """An event of whatever an agent may put into it."""
    return Event(kind, **fields)


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        pytest.param(Scripted(lambda *_: None), "got NoneType", id="reply gives None"),
        pytest.param(Scripted(lambda *_: _coroutine()), "got coroutine", id="reply is a coroutine"),
        pytest.param(Scripted(lambda *_: iter(())), "got tuple_iterator", id="reply is not async"),
        pytest.param(yielding(None), "yielded None", id="None"),
        pytest.param(yielding({"kind": "agent_message"}), "yielded dict", id="dict"),
        pytest.param(yielding(event("dance")), "of kind str dance", id="unknown kind"),
        pytest.param(yielding(event("state_delta")), "of kind str state_delta", id="the player's kind"),
        pytest.param(yielding(event("tool_call")), "without its content", id="call without call"),
        pytest.param(yielding(event("agent_message", text=7)), "text of an event must be a string", id="number"),
        pytest.param(yielding(event("tool_call", call={"name": "roll"})), "must be a ToolCall", id="call is a dict"),
        pytest.param(yielding(event("tool_call", call=ToolCall("roll", event))), "must be an object", id="arguments"),  # type: ignore[arg-type]
        pytest.param(yielding(event("usage", usage={"tokens_in": 1})), "must be a Usage", id="usage is a dict"),
    ],
)
async def test_nonsense_is_bad_output(trial: Callable[..., TrialSpec], agent: Scripted, said: str) -> None:
    result = await play_trial(agent, trial(REF))

    assert result.status == "errored"
    assert result.error is not None
    assert result.error.kind == "bad_output"
    assert said in result.error.message
    assert from_json(to_json(result), type(result)) == result


async def test_a_state_that_is_no_object_is_bad_output(trial: Callable[..., TrialSpec]) -> None:
    async def replace_state(session: Session, message: str) -> AsyncIterator[Event]:
        session.state = [1]  # type: ignore[assignment]
        yield Event("agent_message", text="done")

    result = await play_trial(Scripted(replace_state), trial(REF, state={"kept": 1}))

    assert result.error is not None
    assert (result.error.kind, result.error.message) == ("bad_output", "session.state must stay an object, got list")
    assert result.transcript.final_state == {"kept": 1}


async def test_values_that_json_cannot_say_are_said_in_text(trial: Callable[..., TrialSpec]) -> None:
    cycle: dict[str, Any] = {}
    cycle["twice"] = [cycle, cycle]
    args: dict[str, Any] = {"nan": float("nan"), "bytes": b"\xff", "many": 10**9000, "cycle": cycle}
    call = ToolCall("odd", args)

    async def odd(session: Session, message: str) -> AsyncIterator[Event]:
        session.state["object"] = object  # type: ignore[assignment]
        yield Event("tool_call", call=call)
        yield Event("tool_result", call=call, result={1, 2})  # type: ignore[arg-type]
        yield Event("agent_message", text="lone \ud800 surrogate")

    result = await play_trial(Scripted(odd), trial(REF))

    assert result.status == "finished"
    kept = result.transcript.turns[0].tool_calls[0].args
    assert (kept["nan"], kept["bytes"]) == ("nan", "b'\\xff'")
    assert result.transcript.turns[0].answer == "lone ? surrogate"
    assert from_json(to_json(result), type(result)) == result


async def test_an_agent_that_never_stops_talking_is_bad_output(trial: Callable[..., TrialSpec]) -> None:
    async def babble(session: Session, message: str) -> AsyncIterator[Event]:
        while True:
            yield Event("log", text="x")

    result = await play_trial(Scripted(babble), trial(REF))

    assert result.error is not None
    assert result.error.message == "more than 10000 events in one turn"
