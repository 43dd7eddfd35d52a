"""What the chat makes of a turn's events: parts, times, laid-out JSON."""

from __future__ import annotations

import json
import re

import pytest
from tests.media_samples import picture

from evaldesk.diff.turn_diff import CallRow
from evaldesk.matching import Op
from evaldesk.model import AskedBy, Event, JsonValue, ToolCall, TurnRecord, Usage
from evaldesk.model.media import MARK
from evaldesk.pages.conversation import MAX_SHOWN, gist, parts_of
from evaldesk.web.render import environment, speaker
from evaldesk.web.timing import bars, timings, total_cost
from evaldesk.wording.json_layout import laid_out

FIRST = ToolCall("look", {"n": 1})
SECOND = ToolCall("look", {"n": 2})


def piece(text: str) -> Event:
    return Event("agent_message", text=text, is_partial=True)


@pytest.mark.parametrize(
    ("asked_by", "name"),
    [("person", "You"), ("simulated", "Simulated user"), ("scripted", "Scripted user"), (None, "User")],
)
def test_a_turn_names_who_asked(asked_by: AskedBy | None, name: str) -> None:
    assert speaker(asked_by) == name


def test_pieces_of_an_answer_join_until_the_whole_comes() -> None:
    running = parts_of([piece("Hel"), piece("lo")], is_live=True)
    whole = parts_of([piece("Hel"), piece("lo"), Event("agent_message", text="Hello.")], is_live=True)

    assert [(part.text, part.is_live) for part in running] == [("Hello", True)]
    assert [(part.text, part.is_live) for part in whole] == [("Hello.", False)]


def test_an_image_that_a_tool_returned_is_shown_and_its_base64_is_not() -> None:
    small, large, held = picture(), picture(width=400), picture(seed=7).held()
    parts: list[JsonValue] = [
        {"type": "image", "data": data, "mimeType": "image/png"}
        for data in (small.data, large.data, f"{MARK}{held.data}")
    ]
    hostile: JsonValue = {"type": "image", "data": "PHN2Zy8+", "mimeType": "image/svg+xml"}
    result: JsonValue = {"content": [*parts, hostile]}

    view = parts_of([Event("tool_call", call=FIRST), Event("tool_result", call=FIRST, result=result)])
    html = (
        environment()
        .from_string('{% import "ui.html" as ui %}{% import "sessions/turn.html" as chat %}{{ chat.piece(part, "a") }}')
        .render(part=view[0])
    )

    assert re.findall(r'<img src="([^"]*)"', html) == [f"data:image/png;base64,{small.data}", f"/media/{held.digest}"]
    shown = [part["data"] for part in json.loads(view[0].result)["content"]]
    assert shown == ["4 kB image/png", "160 kB image/png", f"image/png sha256:{held.digest[:12]}", "PHN2Zy8+"]
    assert (large.data[:50] in html, "svg+xml" in html) == (False, True)


@pytest.mark.parametrize("op", [None, "="])
def test_an_image_stands_beside_a_call_that_is_compared(op: Op | None) -> None:
    result: JsonValue = {"type": "image", "data": picture().data, "mimeType": "image/png"}
    row = CallRow(op, FIRST, FIRST, 1, None, result=result, has_result=True)

    html = (
        environment()
        .from_string('{% import "trials/parts.html" as trials %}{{ trials.call_row(row, "", none) }}')
        .render(row=row)
    )

    assert html.count(f'<img src="data:image/png;base64,{picture().data}"') == 1
    assert "&#34;data&#34;: &#34;4 kB image/png&#34;" in html


def test_results_without_ids_join_their_calls_in_order() -> None:
    events = [
        Event("tool_call", call=FIRST),
        Event("tool_call", call=SECOND),
        Event("tool_result", call=FIRST, result="one", duration_ms=1),
    ]

    running = parts_of(events, is_live=True)
    stopped = parts_of(events)

    assert [(part.status, part.result) for part in running] == [("finished", "one"), ("running", "")]
    assert [part.status for part in stopped] == ["finished", "stopped"]


def test_a_result_finds_its_call_by_id_whatever_came_first() -> None:
    first, second = ToolCall("look", {}, "a"), ToolCall("look", {}, "b")
    events = [Event("tool_call", call=first), Event("tool_call", call=second)]

    parts = parts_of([*events, Event("tool_result", call=second, result=2, is_error=True)], is_live=True)

    assert [part.status for part in parts] == ["running", "errored"]


def test_a_huge_result_is_cut_on_the_page() -> None:
    call = ToolCall("dump")

    parts = parts_of([Event("tool_call", call=call), Event("tool_result", call=call, result="x" * (MAX_SHOWN + 1))])

    assert parts[0].result.endswith("… (1 more characters)")


def test_tools_that_ran_side_by_side_count_once() -> None:
    events = (
        Event("tool_result", at_ms=100, call=FIRST, duration_ms=60),
        Event("tool_result", at_ms=110, call=SECOND, duration_ms=60),
        Event("usage", usage=Usage("m", tokens_in=5, tokens_out=2, cost=0.25, duration_ms=100)),
    )

    (row,) = timings([TurnRecord("?", events, duration_ms=200)])

    assert (row.tools_ms, row.model_ms, row.rest_ms) == (70, 100, 30)
    assert (row.tokens_in, row.tokens_out, row.cost) == (5, 2, 0.25)
    assert [bar.part for bar in bars([row])[0][1]] == ["model", "tool", "other"]


def test_a_turn_with_a_call_that_tells_no_tokens_is_named() -> None:
    whole, untold = (Event("usage", usage=Usage("m", tokens_in=3, is_least=is_least)) for is_least in (False, True))
    rows = timings([TurnRecord("?", (whole,)), TurnRecord("?", (whole, untold))])

    assert [row.is_least for row in rows] == [False, True]
    assert [gist(event) for event in (whole, untold)] == ["3 in, 0 out", "at least 3 in, 0 out"]


def test_an_unknown_price_makes_the_sum_unknown() -> None:
    known = Event("usage", usage=Usage("m", cost=1.0))
    unknown = Event("usage", usage=Usage("m", cost=None))

    assert total_cost(timings([TurnRecord("?", (known,))])) == 1.0
    assert total_cost(timings([TurnRecord("?", (known,)), TurnRecord("?", (unknown,))])) is None
    assert total_cost(()) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"sides": 6}, '{"sides": 6}'),
        ([], "[]"),
        ({"a": ["x" * 40, "y" * 40]}, '{\n  "a": [\n    "' + "x" * 40 + '",\n    "' + "y" * 40 + '"\n  ]\n}'),
        ("é\n", '"é\\n"'),
    ],
    ids=["short", "empty", "long", "text"],
)
def test_json_that_fits_on_a_line_stays_on_one(value: object, text: str) -> None:
    assert laid_out(value) == text
    assert json.loads(laid_out(value)) == value


def test_the_state_always_has_a_line_for_each_key() -> None:
    assert laid_out({"a": 1, "b": [2]}, width=0) == '{\n  "a": 1,\n  "b": [2]\n}'
    assert laid_out({}, width=0) == "{}"
