"""ADK sessions and scenarios become cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.errors import FormatError
from evaldesk.formats import case_from_json, load_evalset, write_evalset
from evaldesk.formats.files import read_file
from evaldesk.model import Case, ToolCall

SAMPLES = Path(__file__).parent / "exchange_samples"


def only_case(data: bytes, source: str = "talk.session.json") -> Case:
    evalset = read_file(data, source).evalset
    assert evalset is not None
    assert len(evalset.cases) == 1
    return evalset.cases[0]


def session(*events: dict[str, Any], **keys: Any) -> bytes:
    return json.dumps({"id": "s", "app_name": "a", "user_id": "u", "state": {}, "events": events} | keys).encode()


def said(author: str, text: str, **keys: Any) -> dict[str, Any]:
    return {"author": author, "content": {"parts": [{"text": text}]}} | keys


def test_a_session_becomes_turns_with_the_agents_actions() -> None:
    case = only_case((SAMPLES / "adk-session.session.json").read_bytes())

    first, second = case.turns
    assert (first.query, second.query) == ("Roll a die", "Thanks")
    assert [(call.name, call.args) for call in first.expected.tool_calls or ()] == [("roll_die", {"sides": 6})]
    assert first.expected.intermediate == (("dice", "Rolling."),)
    assert (first.expected.reference, second.expected.reference) == ("You rolled 4.", "Welcome!")
    assert second.expected.tool_calls == ()


def test_the_initial_state_has_the_keys_without_a_state_change() -> None:
    case = only_case((SAMPLES / "adk-session.session.json").read_bytes())

    assert case.initial_state == {"name": "Ada", "big": 9007199254740993}
    assert case.final_state == {"rolls": [4]}


def test_streamed_pieces_are_left_out_with_a_note() -> None:
    imported = read_file((SAMPLES / "adk-session.session.json").read_bytes(), "talk.session.json")

    assert any("streamed" in sentence for sentence in imported.refused)


def test_the_case_of_a_session_is_one_that_adk_reads(tmp_path: Path) -> None:
    evalset = read_file((SAMPLES / "adk-session.session.json").read_bytes(), "talk.session.json").evalset
    assert evalset is not None

    path = tmp_path / "talk.evalset.json"
    path.write_bytes(write_evalset(evalset))

    assert load_evalset(path) == evalset


def test_without_invocation_ids_each_message_of_the_user_begins_a_turn() -> None:
    events = [said("user", "a"), said("bot", "b"), said("bot", "c"), said("user", "d"), said("bot", "e")]

    case = only_case(session(*events))

    assert [turn.query for turn in case.turns] == ["a", "d"]
    assert [turn.expected.reference for turn in case.turns] == ["c", "e"]


@pytest.mark.parametrize(
    ("events", "place"),
    [
        ([{"author": "user"}], "events"),
        ([{"author": 7}], "events[0].author"),
        ([said("user", "a", invocation_id=[])], "events[0].invocation_id"),
        ([{"author": "user", "content": {"parts": [{"text": 1}]}}], "events[0].content.parts[0].text"),
        ([said("user", "a", actions={"state_delta": 3})], "events[0].actions.state_delta"),
    ],
)
def test_an_error_in_a_session_says_where(events: list[Any], place: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_file(session(*events), "x.session.json")

    assert caught.value.path == place
    assert caught.value.line


def test_sessions_become_the_cases_that_adk_makes_of_them() -> None:
    rows = golden("adk_metrics")["session_to_invocations"]
    rows = [row for row in rows if row["adk_invocations"]]

    for row in rows:
        case = only_case(session(*row["events"]))
        adk_case = case_from_json({"eval_id": "g", "conversation": row["adk_invocations"]}, "golden")
        pieces = {part["text"] for event in row["events"] if event.get("partial") for part in event["content"]["parts"]}
        assert [turn.query for turn in case.turns] == [turn.query for turn in adk_case.turns], row["id"]
        for ours, adk in zip(case.turns, adk_case.turns, strict=True):
            assert calls(ours.expected.tool_calls) == calls(adk.expected.tool_calls), row["id"]
            assert ours.expected.reference == adk.expected.reference, row["id"]
            whole = tuple(each for each in adk.expected.intermediate if each[1] not in pieces)
            assert ours.expected.intermediate == whole, row["id"]
    assert len(rows) >= 6


def test_a_scenario_is_named_as_adk_names_it() -> None:
    imported = read_file((SAMPLES / "adk-scenarios.scenarios.json").read_bytes(), "die.scenarios.json")

    assert imported.evalset is not None
    assert imported.evalset.id == "die"
    assert [len(case.id) for case in imported.evalset.cases] == [8, 8]
    assert imported.evalset.cases[0].scenario == {
        "starting_prompt": "What can you do?",
        "conversation_plan": "Ask to roll a die, then whether the result is prime.",
        "user_persona": "NOVICE",
    }


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"criteria": {"x": 1}}', "eval config"),
        ('{"user_simulator_config": {}, "criteria": {}}', "eval config"),
        ('{"count": 5, "model_name": "m"}', "generating conversations"),
        ('{"app_name": "a", "user_id": "u"}', "session input"),
        ('{"state": {}, "queries": []}', "replay"),
        ('{"what": 1}', "no format knows this file, an object with the keys 'what'"),
        ('{"what": 1}\n{"what": 2}\n', "lines of JSON that no format knows"),
        ('{"scenarios": [{"starting_prompt": "x"}]}', "scenarios[0].conversation_plan"),
    ],
)
def test_another_kind_of_file_is_called_by_its_name(text: str, word: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_file(text.encode(), "some.json")

    assert word in str(caught.value)


def calls(found: tuple[ToolCall, ...] | None) -> list[tuple[str, Any]]:
    return [(call.name, call.args) for call in found or ()]


def test_two_cases_of_one_id_are_named() -> None:
    case = {"eval_id": "a", "conversation": []}

    imported = read_file(json.dumps({"eval_set_id": "s", "eval_cases": [case, case]}).encode(), "s.evalset.json")

    assert any("such as 'a'" in sentence for sentence in imported.understood)


def test_a_session_to_start_from_is_valid_and_holds_no_eval_set() -> None:
    start = {
        "id": "test_id",
        "app_name": "trip_planner_agent",
        "user_id": "test_user",
        "state": {"origin": "San Francisco", "cities": ""},
        "events": [],
        "last_update_time": 1741218714.258285,
    }

    imported = read_file(json.dumps(start).encode(), "initial.session.json")

    assert (imported.format, imported.evalset, imported.runs) == ("adk-session", None, ())
    assert imported.understood[0] == (
        "A session to start from, without a turn: app 'trip_planner_agent', user 'test_user', "
        "state with origin, cities."
    )
