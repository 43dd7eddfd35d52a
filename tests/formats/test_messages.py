"""How the messages of a recorded conversation become turns."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.large_runs import TrialRowsOnDisk
from evaldesk.model import Case, Criterion, EarlierResult, ErrorRecord, ToolCall, TurnRecord
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.messages.chat import NO_TEXT, read_chat
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import TrialRows, free_name, recorded_score, recorded_trial


def _turns(*raw: dict[str, Any]) -> tuple[TurnRecord, ...]:
    return turns_of(read_chat(JsonPosition(Document(list(raw))), list(raw), Notes()))


def _call(name: str, arguments: str, call_id: str | None = None) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_each_message_of_the_user_after_a_reply_opens_a_turn() -> None:
    turns = _turns(
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "user", "content": "there"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "Goodbye"},
    )

    assert [(turn.query, turn.answer) for turn in turns] == [("Hello\n\nthere", "Hi"), ("Bye", "Goodbye")]
    assert [event.kind for event in turns[0].events] == ["log", "user_message", "user_message", "agent_message"]
    assert turns[0].events[0].text == "Be kind."


def test_results_find_their_calls_by_id_and_else_by_order() -> None:
    calls = [_call("a", "{}", "1"), _call("b", '{"x": 1}', "2"), _call("c", "{}")]

    (turn,) = _turns(
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "content": "three"},
    )

    results = [(event.call and event.call.name, event.result) for event in turn.events if event.kind == "tool_result"]
    assert results == [("b", "two"), ("a", "one"), ("c", "three")]
    assert turn.tool_calls == (ToolCall("a", {}, "1"), ToolCall("b", {"x": 1}, "2"), ToolCall("c"))


def test_a_result_without_a_call_keeps_its_own_name() -> None:
    (turn,) = _turns({"role": "user", "content": "q"}, {"role": "tool", "name": "f", "content": "r"})

    assert turn.events[-1].call == ToolCall("f")


def test_an_agent_that_speaks_first_has_a_turn_without_a_query() -> None:
    turns = _turns({"role": "assistant", "content": "How can I help?"}, {"role": "user", "content": "q"})

    assert [(turn.query, turn.answer) for turn in turns] == [("", "How can I help?"), ("q", "")]


def test_a_last_farewell_opens_no_turn() -> None:
    spoken = [Message("user", "q"), Message("agent", "a"), Message("user", "Bye. ###STOP###")]

    (turn,) = turns_of(spoken)

    assert (turn.query, turn.answer, turn.events[-1].text) == ("q", "a", "Bye. ###STOP###")
    assert [turn.query for turn in turns_of([*spoken, Message("agent", "b")])] == ["q", "Bye. ###STOP###"]
    assert [turn.query for turn in turns_of(spoken[-1:])] == ["Bye. ###STOP###"]


def test_times_count_from_the_start_of_their_turn() -> None:
    spoken = [Message("user", "q", at_ms=1000.0), Message("agent", "a", at_ms=1500.5), Message("user", "r", at_ms=9.0)]

    first, second = turns_of(spoken)

    assert [event.at_ms for event in first.events] == [0.0, 500.5]
    assert (first.duration_ms, second.duration_ms) == (500.5, 0.0)


def test_an_error_ends_the_last_turn_or_makes_one() -> None:
    error = ErrorRecord("recorded", "broke")

    assert turns_of([], error)[0].error == error
    assert turns_of([Message("user", "q")], error)[-1].stop_reason == "error"


@pytest.mark.parametrize(
    ("arguments", "args", "extra"),
    [
        ('{"a": 12345678901234567890123}', {"a": 12345678901234567890123}, {}),
        ("", {}, {}),
        ("{not json", {}, {"raw_args": "{not json"}),
        ("[1]", {}, {"raw_args": "[1]"}),
    ],
    ids=["big-number", "empty", "broken", "no-object"],
)
def test_arguments_are_read_or_kept_as_they_were(arguments: str, args: object, extra: object) -> None:
    (turn,) = _turns({"role": "assistant", "tool_calls": [_call("f", arguments)]})

    assert (turn.tool_calls[0].args, turn.tool_calls[0].extra) == (args, extra)


def test_parts_that_are_no_text_are_named_and_counted() -> None:
    notes = Notes()
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {}}, {"type": "image_url"}]
    raw: list[Any] = [{"role": "user", "content": parts}]

    (message,) = read_chat(JsonPosition(Document(raw)), raw, notes)

    assert message.text == "look"
    assert notes.sentences == (f"Left out: {NO_TEXT}, 2 times, first at [0].content[1].",)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([{"role": "wizard"}], "[0].role: unknown role 'wizard'"),
        ([{"content": "x"}], "[0].role: expected a string, but it is missing"),
        ([{"role": "user", "content": 3}], "[0].content: expected a list, got the number 3"),
        ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "[0].tool_calls[0].name: expected a string"),
        (["x"], "[0]: expected an object, got a string"),
        ([{"type": "mcp_call", "arguments": "{}"}], "[0].name: expected a string"),
    ],
)
def test_a_message_that_says_nothing_we_know_is_refused_with_its_place(raw: list[Any], said: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_chat(JsonPosition(Document(raw)), raw, Notes())

    assert said in str(caught.value)


def test_tools_that_the_provider_ran_are_calls_with_results_at_their_place() -> None:
    (turn,) = _turns(
        {"role": "user", "content": "Find it"},
        {"id": "w", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "dice"}},
        {"id": "f", "type": "file_search_call", "status": "failed", "queries": ["dice"], "results": None},
        {"id": "c", "type": "code_interpreter_call", "code": "1 + 1", "outputs": [{"type": "logs", "logs": "2"}]},
        {"id": "i", "type": "image_generation_call", "status": "completed", "result": "iVBOR"},
        {
            "id": "m",
            "type": "mcp_call",
            "name": "fetch",
            "server_label": "s",
            "arguments": '{"page": 2}',
            "output": "x",
        },
        {"role": "assistant", "content": "Found."},
    )

    assert [(call.name, call.args) for call in turn.tool_calls] == [
        ("web_search", {"type": "search", "query": "dice"}),
        ("file_search", {"queries": ["dice"]}),
        ("code_interpreter", {"code": "1 + 1"}),
        ("image_generation", {}),
        ("fetch", {"page": 2}),
    ]
    results = [event for event in turn.events if event.kind == "tool_result"]
    assert [event.call and event.call.id for event in results] == ["w", "f", "c", "i", "m"]
    assert [event.is_error for event in results] == [False, True, False, False, False]
    assert results[2].result == {"outputs": [{"type": "logs", "logs": "2"}]}
    assert "data:image/png;base64,iVBOR" in str(results[3].result)
    assert results[4].result == {"output": "x"}
    assert turn.answer == "Found."


def test_a_taken_name_gets_the_next_free_number() -> None:
    taken: dict[str, int] = {}

    names = [free_name(name, taken) for name in ("a", "a (2)", "a", "a", "b", "a (2)")]

    assert names == ["a", "a (2)", "a (3)", "a (4)", "b", "a (2) (2)"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("rows", "places"),
    [
        ([("b", 5), ("a", 0), ("b", 1)], [(0, 1), (1, 0), (0, 0)]),
        ([("a", None), ("a", None)], [(0, 0), (0, 1)]),
        ([("a", 1), ("a", 1)], [(0, 0)]),
        ([("a", None), ("a", 3)], [(0, 1), (0, 0)]),
    ],
    ids=["gaps", "without-numbers", "twice", "mixed"],
)
@pytest.mark.parametrize("kind", [TrialRows, TrialRowsOnDisk])
def test_trials_have_places_without_gaps(
    kind: type[TrialRows], rows: list[tuple[str, int | None]], places: list[object]
) -> None:
    trials = kind()
    for key, number in rows:
        at = trials.place(key)
        trials.offer(at, Case(key))
        trials.add(at, recorded_trial(()), number)
    cases, results = trials.finish()

    assert [(result.case_index, result.trial_index) for result in results] == places
    assert [case.id for case in cases] == list(dict.fromkeys(key for key, _ in rows))


@pytest.mark.parametrize("kind", [TrialRows, TrialRowsOnDisk])
def test_the_last_result_of_a_trial_counts_and_the_others_are_beside_it(kind: type[TrialRows]) -> None:
    trials, metric = kind(), Criterion("m", 1.0)
    trials.offer(trials.place("a"), Case("a"))
    for value, error in ((None, ErrorRecord("recorded", "502")), (0.0, None), (1.0, None)):
        scores = [] if value is None else [recorded_score(metric, value)]
        trials.add(0, recorded_trial((), scores=scores, criteria=[metric], error=error), 7)
    trials.add(0, None, 7)
    _, (result,) = trials.finish()

    assert result.verdict == "passed"
    assert result.earlier == (EarlierResult("errored", "502"), EarlierResult("failed", "", {"m": 0.0}))
    assert (trials.n_replaced, trials.n_numbers) == (2, 1)


def test_very_many_kinds_of_things_left_out_are_summed_up() -> None:
    notes = Notes()
    for number in range(60):
        notes.unknown_keys(JsonPosition(Document(None)), {f"$x{number}": 1}, ())

    assert (len(notes.sentences), notes.sentences[-1]) == (51, "Left out: 10 more kinds of things.")
    assert notes.sentences[0] == "Left out: key '$x0', a name that Evaldesk keeps for itself."
