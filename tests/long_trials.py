"""Recorded trials of 300 calls: in one turn, in many turns, and beside as many expected calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    Expected,
    JsonValue,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.store import RunStore

N_CALLS = 300


def store_trial(runs: RunStore, case: Case, transcript: Transcript) -> str:
    """Store a run of one trial that failed, and say the address of the trial."""
    run_id = runs.create(RunConfig(AgentRef("agent", "agent"), "trips", n=1), [case])
    runs.record([TrialResult(run_id, 0, 0, "finished", "failed", "answered", transcript)])
    runs.set_status(run_id, "finished")
    return f"/runs/{run_id}/cases/0/trials/0"


def one_turn() -> tuple[Case, Transcript]:
    """A conversation of one turn; the last thing that is said has marks of Markdown."""
    events = tuple(event for number in range(N_CALLS) for event in _call(number))
    answer = Event("agent_message", at_ms=4_000, text="I found:\n- the **cheapest** flight")
    return Case("one", (Turn("Find all flights."),)), Transcript((TurnRecord("Find all flights.", (*events, answer)),))


def many_turns() -> tuple[Case, Transcript]:
    """Two calls and an answer in each turn."""
    turns = [
        TurnRecord(
            f"Find flight {number}.",
            (*_call(2 * number), *_call(2 * number + 1), Event("agent_message", text=f"I found **{number}**.")),
        )
        for number in range(N_CALLS // 2)
    ]
    return Case("many", tuple(Turn(turn.query) for turn in turns)), Transcript(tuple(turns))


def expected_calls() -> tuple[Case, Transcript]:
    """The calls of `one_turn` beside the same calls, and a reference."""
    calls = tuple(event.call for event in one_turn()[1].turns[0].events if event.kind == "tool_call" and event.call)
    return Case("expected", (Turn("Find all flights.", Expected(calls, reference="The end")),)), one_turn()[1]


LONG: Mapping[str, Callable[[], tuple[Case, Transcript]]] = {
    "one turn": one_turn,
    "many turns": many_turns,
    "expected calls": expected_calls,
}


def _call(number: int) -> tuple[Event, ...]:
    """A call of a model, the call of a tool that it asked for, and its result."""
    passengers: list[JsonValue] = [{"name": "Ann", "seat": f"{number}A"}, {"name": "Bob", "seat": f"{number}B"}]
    call = ToolCall("search", {"origin": "JFK", "destination": "SEA", "passengers": passengers}, str(number))
    flights = [{"id": f"HAT{number:03}{place}", "fare": 120.5, "seats": {"economy": place}} for place in range(4)]
    at_ms = 10.0 * number
    return (
        Event("usage", at_ms=at_ms + 3, usage=Usage("demo/trips", tokens_in=900, tokens_out=20, duration_ms=3)),
        Event("tool_call", at_ms=at_ms + 4, call=call),
        Event("tool_result", at_ms=at_ms + 9, call=call, result=json.dumps({"flights": flights}), duration_ms=5),
    )
