"""A turn of a file that ends in a call: what was interrupted, and what is an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.islands import of_tools

from evaldesk.desk.imports.files import read_path
from evaldesk.model import Event, ToolCall, TurnRecord
from evaldesk.model.transcript import StopReason
from evaldesk.transcripts.recorded import cut_short

pytestmark = of_tools("atif", "inspect", "openhands", "swe_agent", "tau")

SAMPLES = Path(__file__).parent / "exchange_samples"


def cut_atif(whole: Any) -> None:
    del whole["steps"][3:], whole["steps"][2]["observation"]


def cut_adk(whole: Any) -> None:
    (first, *_) = whole["eval_case_results"]
    del first["eval_metric_result_per_invocation"][1:]
    actual = first["eval_metric_result_per_invocation"][0]["actual_invocation"]
    del actual["final_response"], actual["intermediate_data"]["invocation_events"][1:]


CUTS: dict[str, Callable[[Any], None]] = {
    "adk-results.evalset_result.json": cut_adk,
    "atif.json": cut_atif,
    "inspect.json": lambda whole: whole["samples"][0]["messages"].__delitem__(slice(3, None)),
    "openhands.jsonl": lambda row: row["history"].__delitem__(slice(3, None)),
    "swe-agent.traj": lambda whole: whole["history"].__delitem__(slice(4, None)),
    "tau-bench.json": lambda whole: whole[0]["traj"].__delitem__(slice(3, None)),
}


@pytest.mark.parametrize("name", CUTS)
def test_the_last_call_of_a_file_that_tells_results_was_not_made_without_one(name: str, tmp_path: Path) -> None:
    whole = json.loads(
        (SAMPLES / name).read_text().splitlines()[0] if "jsonl" in name else (SAMPLES / name).read_text()
    )
    before = first_turn(SAMPLES / name)
    CUTS[name](whole)
    (tmp_path / name).write_text(json.dumps(whole))

    cut = first_turn(tmp_path / name)

    assert before.stop_reason == "answered"
    assert before.judged_calls == before.tool_calls
    (call,) = cut.tool_calls
    assert (cut.stop_reason, cut.judged_calls[0].name) == ("interrupted", f"{call.name}, which has no result")


def first_turn(path: Path) -> TurnRecord:
    (run, *_) = read_path(path).runs
    return run.results[0].transcript.turns[0]


def test_a_trace_of_calls_alone_is_judged_by_them(tmp_path: Path) -> None:
    call = {"type": "tool_call", "id": "c1", "name": "Report", "arguments": {"n": 4}}
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Report."}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [call]}]),
    }
    told = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    ids = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "chat m"}
    span = {**ids, "startTimeUnixNano": "1000000", "endTimeUnixNano": "2000000", "attributes": told}
    (tmp_path / "t.json").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))

    turn = first_turn(tmp_path / "t.json")

    assert [each.name for each in turn.tool_calls] == ["Report"]
    assert (turn.stop_reason, turn.judged_calls) == ("answered", turn.tool_calls)


def event(text: str) -> Event:
    """`roll 1` is a call with that id, `=roll 1` its result, any other text the agent's."""
    name, _, number = text.lstrip("=").partition(" ")
    call = ToolCall(name, id=number or None)
    if text.startswith("="):
        return Event("tool_result", call=call)
    return Event("tool_call", call=call) if name != "Hm." else Event("agent_message", text=text)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (["roll 1"], "interrupted"),
        (["Hm.", "roll 1"], "interrupted"),
        (["roll 1", "=roll 1", "roll 2"], "interrupted"),
        (["roll 1", "roll 2", "=roll 1"], "interrupted"),
        (["roll", "roll", "=roll"], "interrupted"),
        (["roll 1", "roll 2", "=roll 2", "=roll 1"], "answered"),
        (["search 1", "roll 2", "=roll 2"], "interrupted"),
        (["search 1", "Hm.", "roll 2", "=roll 2"], "answered"),
        (["roll 1", "Hm."], "answered"),
        (["roll 1", "=roll 1", "finish 2"], "answered"),
        (["roll 1", "finish 2"], "interrupted"),
        (["Hm."], "answered"),
        ([], "answered"),
    ],
)
def test_a_turn_was_interrupted_where_one_of_its_last_calls_has_no_result(told: list[str], reason: StopReason) -> None:
    turn = TurnRecord("q", (Event("user_message", text="q"), *map(event, told)))

    assert cut_short(turn).stop_reason == reason
    assert cut_short(TurnRecord("q", turn.events, captures=("adapter",))).stop_reason == "answered"
    assert cut_short(TurnRecord("q", turn.events, stop_reason="max_turns")).stop_reason == "max_turns"
