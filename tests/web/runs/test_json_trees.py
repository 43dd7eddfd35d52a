"""JSON folds as a tree, and a text of five megabytes opens in parts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    Expected,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.pages.json_tree import MAX_CHILDREN, MAX_DEPTH, MAX_ON_PAGE, MAX_READ, Node, Trees
from evaldesk.pages.large_state import PART

FLIGHTS = {"flights": [{"id": "HAT030", "fare": 120.5}, {"id": "HAT031", "fare": None}], "next": "<b>"}
SILENT = Case("trip", (Turn("Find."),))
CALL = ToolCall("search", {"from": "JFK", "to": ["SEA", "PDX"]}, "1")


def tree(value: Any) -> Node:
    found = Trees().tree(value)
    assert found
    return found


def played(pages: Any, *events: Event, case: Case = SILENT) -> str:
    """The address of a trial of one turn that expects nothing."""
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("dice", "dice"), "trips", n=1), [case])
    transcript = Transcript((TurnRecord("Find.", events),))
    runs.record([TrialResult(run_id, 0, 0, "finished", "passed", "answered", transcript)])
    return f"/runs/{run_id}/cases/0/trials/0"


@pytest.mark.parametrize(
    "value", [FLIGHTS, json.dumps(FLIGHTS), f"\n {json.dumps(FLIGHTS)} "], ids=["value", "text", "spaces"]
)
def test_a_node_tells_its_key_its_size_and_its_beginning(value: Any) -> None:
    flights, following = tree(value).children

    assert (flights.key, flights.words, flights.line) == ("flights", "2 items", "…, …")
    assert [(each.key, each.words, each.line) for each in flights.children] == [
        ("0", "2 keys", "id, fare"),
        ("1", "2 keys", "id, fare"),
    ]
    assert [(each.key, each.line) for each in flights.children[1].children] == [("id", '"HAT031"'), ("fare", "null")]
    assert (following.line, following.children) == ('"<b>"', ())


@pytest.mark.parametrize(
    "value",
    [None, True, 4, "", "text", "{", "[1, 2", "{} and more", "[]", "{}", [], {}, "[" * 10_000, " " * MAX_READ + "[1]"],
    ids=lambda value: str(value).strip()[:12] or "empty",
)
def test_any_other_value_has_no_tree(value: Any) -> None:
    assert Trees().tree(value) is None


def test_a_tree_is_limited_in_depth_width_and_all_trees_of_a_page_in_nodes() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    wide = tree(list(range(MAX_CHILDREN + 3)))

    node, depth = tree(deep), 0
    while node.children:
        (node,), depth = node.children, depth + 1
    assert depth == MAX_DEPTH
    assert (len(wide.children), wide.n_left_out) == (MAX_CHILDREN, 3)
    trees = Trees()
    drawn = [trees.tree(list(range(MAX_CHILDREN))) for _ in range(2 * MAX_ON_PAGE // MAX_CHILDREN)]
    assert sum(1 + len(each.children) for each in drawn if each) == MAX_ON_PAGE
    assert drawn[-1] is None


def test_arguments_results_and_answers_fold_without_a_script_and_are_there_as_text(pages: Any) -> None:
    returned = Event("tool_result", call=CALL, result=json.dumps(FLIGHTS))
    address = played(pages, Event("tool_call", call=CALL), returned, Event("agent_message", text='{"fare": 120.5}'))

    page = pages.get(address).text

    assert page.count('<div class="json">') == 3
    assert "<details><summary><b>to</b> <small>2 items</small>" in page
    assert "<b>next</b> <samp>&#34;&lt;b&gt;&#34;</samp>" in page
    assert "<b>fare</b> <samp>120.5</samp>" in page
    assert '<p class="raw">{&#34;fare&#34;: 120.5}</p>' in page
    assert len(re.findall(r'<pre class="raw"', page)) == 2


@pytest.mark.parametrize("kind", ["agent_message", "tool_result", "log"])
def test_five_megabytes_open_in_parts(pages: Any, kind: Any) -> None:
    text = "".join(f"line {number}\n" for number in range(400_000))
    content: dict[str, Any] = {"call": CALL, "result": text} if kind == "tool_result" else {"text": text}
    address = played(pages, Event("tool_call", call=CALL), Event(kind, **content))

    page = pages.get(address)
    href = f"{address}/turns/0/events/1"
    first, last = pages.get(href), pages.get(f"{href}?from={len(text) - 10}")

    assert len(page.content) < 150_000
    assert f'href="{href}"' in page.text
    assert "line 0\nline 1\n" in first.text
    assert f'href="{href}?from={PART}" rel="next"' in first.text
    assert text[-10:].strip() in last.text
    assert 'rel="next"' not in last.text
    assert f'href="{address}#turn-1">Back to the trial' in last.text


def test_an_answer_that_stands_beside_expected_calls_opens_in_parts_from_the_events(pages: Any) -> None:
    case = Case("trip", (Turn("Find.", Expected(tool_calls=())),))
    address = played(pages, Event("agent_message", text="x" * 5_000_000), case=case)

    page = pages.get(address)

    assert len(page.content) < 150_000
    assert f'href="{address}/turns/0/events/0"' in page.text


@pytest.mark.parametrize("place", ["turns/0/events/9", "turns/7/events/0", "turns/0/events/x"])
def test_an_event_that_is_not_there_is_not_found(pages: Any, place: str) -> None:
    address = played(pages, Event("agent_message", text="Hi"))

    assert pages.get(f"{address}/turns/0/events/0?from=nowhere").status_code == 200
    assert pages.get(f"{address}/{place}").status_code == 404
