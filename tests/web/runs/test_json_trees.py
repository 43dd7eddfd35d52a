"""JSON folds as a tree, and a text of five megabytes opens in parts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.matching import json_equal
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


def nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=2), values, max_size=3)


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


def compared(pages: Any, reference: str, answer: str) -> tuple[str, str]:
    """The address and the page of a trial whose answer stands beside its reference."""
    case = Case("trip", (Turn("Find.", Expected(reference=reference)),))
    address = played(pages, Event("agent_message", text=answer), case=case)
    return address, pages.get(address).text


def test_an_answer_of_json_stands_beside_its_reference_as_one_tree(pages: Any) -> None:
    actual = {"flights": [FLIGHTS["flights"][1]], "next": "<i>", "n": 1}

    _, page = compared(pages, json.dumps(FLIGHTS), json.dumps(actual))
    _, same = compared(pages, json.dumps(FLIGHTS), json.dumps(FLIGHTS, indent=2))

    assert "<b>next</b> <samp><del>&#34;&lt;b&gt;&#34;</del> <ins>&#34;&lt;i&gt;&#34;</ins></samp>" in page
    assert "<b>n</b> <samp><ins>1</ins></samp>" in page
    assert "<details open><summary><b>flights</b> <small>2 items</small>" in page
    assert "<b>0</b> <samp><del>{&#34;id&#34;: &#34;HAT030&#34;, &#34;fare&#34;: 120.5}</del></samp>" in page
    assert "<li data-same><details><summary><b>0</b>" in page
    assert "<b>=</b> same answer" in same
    assert "<del>" not in same


@pytest.mark.parametrize("text", ["It is done, at ten.", "It is **done**, at ten."], ids=["plain", "Markdown"])
def test_equal_answers_and_messages_stand_there_once(pages: Any, text: str) -> None:
    expected = Expected(reference=text, intermediate=(("trip", f"First: {text}"),))
    case = Case("trip", (Turn("Find.", expected),))
    said = [Event("agent_message", author="trip", text=f"First: {text}"), Event("agent_message", text=text)]

    page = pages.get(played(pages, *said, case=case)).text

    assert page.count("<b>=</b> same answer") == page.count("<b>=</b> same intermediate messages") == 1
    diff = page.partition('<table class="diff')[2].partition("</table>")[0]
    n = 1 if text.startswith("It is done") else 0
    assert diff.count(f"<p>{text}</p>") == n
    assert diff.count("<strong>done</strong>") == 2 - 2 * n


@pytest.mark.parametrize("wrap", [str, lambda text: json.dumps({"rows": text.split("\n")})], ids=["text", "json"])
def test_a_long_answer_beside_a_reference_shows_the_lines_that_differ_and_opens_in_parts(pages: Any, wrap: Any) -> None:
    reference = [f"row {number}" for number in range(40_000)]
    answer = [*reference]
    answer[7], answer[39_000] = "row <b>seven</b>", "another row"

    address, page = compared(pages, wrap("\n".join(reference)), wrap("\n".join(answer)))
    whole = pages.get(f"{address}/turns/0/answer").text

    assert len(page) < 150_000
    assert "<ins>&lt;b&gt;seven&lt;/b&gt;</ins>" in page
    assert "another" in page
    assert "row 20000" not in page
    assert f'href="{address}/turns/0/answer"' in page
    assert "row &lt;b&gt;seven&lt;/b&gt;" in whole
    assert "another row" in whole
    assert f'href="{address}#turn-1">Back to the trial' in whole


@pytest.mark.long
def test_a_page_with_an_answer_of_megabytes_and_another_reference_stays_small(pages: Any) -> None:
    size = 1_000_000
    address, page = compared(
        pages, "\n".join("ab" for _ in range(size // 3)), "\n".join("cd" for _ in range(size // 3))
    )
    flat_address, flat = compared(pages, "y" * size, "x" * size)

    parts = pages.get(f"{address}/turns/0/answer?from={size}").text

    assert max(len(page), len(flat)) < 150_000
    assert 'rel="next"' in parts
    assert "xxxx" in pages.get(f"{flat_address}/turns/0/answer?from={size + 100}").text


def test_only_an_answer_beside_a_reference_has_a_diff(pages: Any) -> None:
    address = played(pages, Event("agent_message", text="Hi"))

    assert [pages.get(f"{address}/turns/{turn}/answer").status_code for turn in (0, 7)] == [404, 404]


@pytest.mark.parametrize(
    ("expected", "actual"),
    [("[1]", "text"), ("{}", "[1]"), ("[1, 2", "[1]"), (json.dumps([*range(200)]), json.dumps([*range(1, 300)]))],
)
def test_a_difference_that_a_tree_would_leave_out_is_no_tree(expected: str, actual: str) -> None:
    assert Trees().difference(expected, actual) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), nested, max_leaves=12), st.data())
def test_a_tree_says_same_just_where_values_are_equal(old: Any, data: st.DataObject) -> None:
    new = data.draw(st.just(old) | st.recursive(st.none() | st.integers(), nested, max_leaves=8))

    found = Trees().difference(json.dumps([old]), json.dumps([new]))

    assert found is not None
    assert (found.op == "=") == json_equal(old, new)
    assert (found.op == "=") == all(op == "=" for op in _leaves(found))


def _leaves(node: Node) -> list[str]:
    """The marks of what differs; a node that is the same speaks for what is in it."""
    inside = [op for child in node.children for op in _leaves(child)]
    return [node.op] if node.op != "~" or not inside else inside
