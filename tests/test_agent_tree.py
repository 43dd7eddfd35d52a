"""The tree of the agents of a conversation: who called whom, and what is whose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.model import Event, ToolCall, TurnRecord, Usage
from evaldesk.model.agent_tree import AgentActions, agent_tree
from evaldesk.model.transcript import EventKind


def _message(author: str, **fields: Any) -> Event:
    return Event("agent_message", author=author, text="done", **fields)


def _call(author: str, tool: str, number: int = 0, **fields: Any) -> Event:
    return Event("tool_call", author=author, call=ToolCall(tool, {}, f"{tool}-{number}"), **fields)


def _result(author: str, tool: str, number: int = 0, took_ms: float = 1.0, *, within: str = "") -> Event:
    call = ToolCall(tool, {}, f"{tool}-{number}")
    return Event("tool_result", author=author, call=call, result="r", duration_ms=took_ms, within=within)


def _usage(author: str, tokens: int, cost: float | None = 0.5, *, within: str = "") -> Event:
    return Event("usage", author=author, usage=Usage("m", tokens_in=tokens, cost=cost, duration_ms=2.0), within=within)


def _edges(*turns: TurnRecord) -> list[tuple[str, str, str, int, int]]:
    return [(each.name, each.parent, each.tool, each.depth, each.n_entries) for each in agent_tree(turns, "app")]


def test_one_agent_without_a_name_is_the_root() -> None:
    turn = TurnRecord("q", (_usage("evaldesk", 3), _call("", "look"), _result("look", "look"), _message("")))

    [only] = agent_tree([turn, turn], "app")

    assert only == AgentActions("app", "", "", 0, 2, 2, 2, 0, 2, 6, 1.0, 6.0)


def test_a_hand_over_names_the_agent_that_acted_before() -> None:
    first = TurnRecord("q", (_call("boss", "transfer"), _result("boss", "transfer"), _message("clerk")))
    second = TurnRecord("q", (_message("clerk"),))

    assert _edges(first, second) == [("boss", "", "", 0, 1), ("clerk", "boss", "", 1, 2)]


def test_the_framework_knows_the_parent_better() -> None:
    turn = TurnRecord("q", (_message("boss"), _message("writer", parent="boss"), _message("critic", parent="boss")))

    assert _edges(turn) == [("boss", "", "", 0, 1), ("writer", "boss", "", 1, 1), ("critic", "boss", "", 1, 1)]


def test_a_workflow_that_does_nothing_itself_is_above_its_agents() -> None:
    turn = TurnRecord("q", (_message("writer", parent="sequence"), _message("critic", parent="sequence")))

    assert _edges(turn) == [
        ("sequence", "", "", 0, 0),
        ("writer", "sequence", "", 1, 1),
        ("critic", "sequence", "", 1, 1),
    ]


def test_an_agent_used_as_a_tool_is_below_its_caller_and_its_time_is_its_own() -> None:
    turn = TurnRecord(
        "q",
        (
            _call("lead", "scout", 1),
            _call("scout", "look", within="scout"),
            _result("scout", "look", took_ms=5.0, within="scout"),
            _usage("evaldesk", 7, within="scout"),
            _result("lead", "scout", 1, took_ms=90.0),
            _call("lead", "scout", 2),
            _message("scout", within="scout"),
            _result("lead", "scout", 2, took_ms=90.0),
            _usage("lead", 11),
            _message("lead"),
        ),
    )

    lead, scout = agent_tree([turn], "app")

    assert (lead.name, lead.n_calls, lead.tokens, lead.duration_ms) == ("lead", 2, 11, 2.0)
    assert (scout.parent, scout.tool, scout.depth, scout.n_entries) == ("lead", "scout", 1, 2)
    assert (scout.n_calls, scout.n_messages, scout.tokens, scout.duration_ms) == (1, 1, 7, 7.0)


def test_a_tool_in_which_only_model_calls_were_seen_is_an_agent_of_its_name() -> None:
    turn = TurnRecord("q", (_call("lead", "research"), _usage("evaldesk", 7, within="research")))

    assert _edges(turn) == [("lead", "", "", 0, 1), ("research", "lead", "research", 1, 1)]


def test_the_node_that_plays_the_tools_of_a_graph_is_no_agent() -> None:
    turn = TurnRecord("q", (_call("model", "look"), _result("tools", "look"), _message("model")))

    assert _edges(turn) == [("model", "", "", 0, 1)]


@pytest.mark.parametrize("cost", [None, 0.25])
def test_a_cost_that_is_not_known_stays_unknown_for_its_agent_alone(cost: float | None) -> None:
    turn = TurnRecord("q", (_usage("boss", 1, 0.5), _usage("clerk", 1, cost)))

    assert [each.cost for each in agent_tree([turn], "app")] == [0.5, cost]


KINDS: tuple[EventKind, ...] = ("agent_message", "tool_call", "tool_result", "usage", "error", "log", "user_message")
EVENTS = st.builds(
    lambda kind, author, within, parent, tool: Event(
        kind,
        author=author,
        within=within,
        parent=parent,
        call=ToolCall(tool, {}) if kind in ("tool_call", "tool_result") else None,
        usage=Usage("m", tokens_in=1, cost=1.0) if kind == "usage" else None,
    ),
    st.sampled_from(KINDS),
    st.sampled_from(["", "a", "b", "c", "evaldesk"]),
    st.sampled_from(["", "", "a", "t"]),
    st.sampled_from(["", "a", "b", "c"]),
    st.sampled_from(["a", "t", "u"]),
)


@given(st.lists(st.lists(EVENTS, max_size=12), max_size=3))
def test_each_agent_is_there_once_below_its_parent_and_nothing_is_lost(turns: list[list[Event]]) -> None:
    records = [TurnRecord("q", tuple(events)) for events in turns]

    tree = agent_tree(records, "app")

    all_events = [event for events in turns for event in events]
    names = [each.name for each in tree]
    assert len(names) == len(set(names))
    assert sum(each.tokens for each in tree) == sum(event.kind == "usage" for event in all_events)
    assert sum(each.n_calls for each in tree) == sum(event.kind == "tool_call" for event in all_events)
    assert sum(each.n_messages for each in tree) == sum(event.kind == "agent_message" for event in all_events)
    for at, each in enumerate(tree):
        above = [other.name for other in tree[:at] if other.depth == each.depth - 1]
        assert not each.depth or above[-1] == each.parent


@pytest.mark.parametrize("field", ["parent", "within"])
def test_a_chain_of_thousands_of_agents_is_a_tree(field: str) -> None:
    names: list[dict[str, Any]] = [{"author": f"a{at}", field: f"a{at - 1}"} for at in range(1, 3_000)]
    events = tuple(Event("agent_message", text="hi", **each) for each in names)

    tree = agent_tree((TurnRecord("hi", events),))

    assert {each.name for each in tree} >= {f"a{at}" for at in range(1, 3_000)}
    assert max(each.depth for each in tree) == (2_999 if field == "parent" else 0)
