"""The page of a trial of several agents: who acted, below whom, and what it took."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.long_trials import store_trial

from evaldesk.model import Case, Event, Expected, ToolCall, Transcript, Turn, TurnRecord, Usage
from evaldesk.model.agent_tree import AgentActions
from evaldesk.pages.agent_graph import COLUMN, DEEPEST, MOST_DRAWN, ROW, agent_graph
from evaldesk.web.report import run_report

SCOUT, LOOK, BOOK = (ToolCall(name, {}, name) for name in ("research", "look", "book"))
RECORD = TurnRecord(
    "go",
    (
        Event("tool_call", author="lead", call=SCOUT),
        Event("usage", author="scout", within="research", usage=Usage("m", tokens_in=700, cost=0.25)),
        Event("tool_call", author="scout", call=LOOK, within="research"),
        Event("tool_result", author="scout", call=LOOK, result="deep", within="research"),
        Event("tool_result", author="lead", call=SCOUT, result="deep"),
        Event("tool_call", author="clerk", call=BOOK),
        Event("tool_result", author="clerk", call=BOOK, result="done"),
        Event("agent_message", author="clerk", text="Booked."),
    ),
)
ASSERTED, OPEN = Expected((SCOUT, BOOK), (), "Booked."), Expected()


@pytest.mark.parametrize("expected", [ASSERTED, OPEN], ids=["compared", "nothing expected"])
def test_a_trial_shows_its_agents_and_the_steps_inside_of_a_tool(shared_pages: Any, expected: Expected) -> None:
    case = Case("tree", (Turn("go", expected),))
    page = shared_pages.get(store_trial(shared_pages.desk.store.runs, case, Transcript((RECORD,)))).text

    agents = page.partition('id="agents"')[2].partition("</section>")[0]
    assert re.findall(r'data-depth="(\d)">\s*<b>(\w+)</b>', agents) == [("0", "lead"), ("1", "scout"), ("1", "clerk")]
    assert "called once by lead" in agents
    assert "handed over to once by lead" in agents
    assert "700 tokens, $0.25" in agents
    inside = re.findall(r'<div class="toolcall" data-within="(\w+)".*?</code>', page, re.DOTALL)
    assert inside == ["research"]
    assert "look was called and not expected" not in page


def test_a_drawing_has_a_box_for_each_agent_and_a_line_from_its_caller(shared_pages: Any) -> None:
    case = Case("tree", (Turn("go", OPEN),))
    page = shared_pages.get(store_trial(shared_pages.desk.store.runs, case, Transcript((RECORD,)))).text

    [drawing] = re.findall(r'<svg class="callgraph".*?</svg>', page, re.DOTALL)
    assert 'role="img" aria-label="lead calls scout, 1 time; lead hands over to clerk, 1 time"' in drawing
    assert re.findall(r"<title>(\w+)</title>", drawing) == ["lead", "scout", "clerk"]
    assert re.findall(r'<path d="M12 38V(\d+)H24"( data-part="handover")?/>', drawing) == [
        ("67", ""),
        ("115", ' data-part="handover"'),
    ]
    assert re.findall(r'text-anchor="end">([^<]+)<', drawing) == ["1×", "1×"]


def acting(name: str, depth: int, parent: str = "") -> AgentActions:
    return AgentActions(name, parent, depth=depth, n_entries=2, duration_ms=1200.0)


def test_a_caller_stands_in_the_middle_of_its_agents() -> None:
    graph = agent_graph([acting("a", 0), acting("b", 1, "a"), acting("c", 2, "b"), acting("d", 2, "b"), acting("e", 1)])

    assert graph is not None
    assert [(box.x // COLUMN, box.y / ROW) for box in graph.boxes] == [(0, 1.25), (1, 0.5), (2, 0), (2, 1), (1, 2)]
    assert len({(box.x, box.y) for box in graph.boxes}) == len(graph.boxes)
    assert (graph.width, graph.height) == (2 * COLUMN + 136, 2 * ROW + 38)
    assert {box.words for box in graph.boxes} == {"1.2 s"}
    assert graph.links[0].path == f"M136 {round(1.25 * ROW) + 19}H152V{ROW // 2 + 19}H{COLUMN}"


@pytest.mark.parametrize(
    "agents",
    [
        [acting("a", 0)],
        [acting(f"a{at}", min(at, 1)) for at in range(MOST_DRAWN + 1)],
        [acting(f"a{at}", at) for at in range(DEEPEST + 2)],
    ],
    ids=["one", "many", "deep"],
)
def test_one_agent_and_too_many_are_not_drawn(agents: list[AgentActions]) -> None:
    assert agent_graph(agents) is None


def test_a_hostile_name_is_text_in_the_drawing(shared_pages: Any) -> None:
    name = "<script>alert(1)</script>"
    events = (Event("agent_message", author="lead", text="a"), Event("agent_message", author=name, text="b"))
    address = store_trial(
        shared_pages.desk.store.runs, Case("hostile", (Turn("go", OPEN),)), Transcript((TurnRecord("go", events),))
    )

    page = shared_pages.get(address).text

    assert "<script>alert(1)" not in page
    assert "<title>&lt;script&gt;alert(1)&lt;/script&gt;</title>" in page


def test_the_time_line_names_the_agent_of_each_call(shared_pages: Any) -> None:
    case = Case("tree", (Turn("go", OPEN),))
    address = store_trial(shared_pages.desk.store.runs, case, Transcript((RECORD,)))

    page = shared_pages.get(f"{address}/timeline").text

    rows = re.findall(r"<code>(\w+)</code></a>(?: <small>sub-agent</small>)? <small>(\w+)</small>", page)
    assert rows == [("research", "lead"), ("look", "scout"), ("book", "clerk")]


def test_a_trial_of_one_agent_has_no_tree(shared_pages: Any) -> None:
    record = TurnRecord("go", (Event("tool_call", author="lead", call=BOOK), Event("agent_message", author="lead")))
    case = Case("one", (Turn("go", OPEN),))
    address = store_trial(shared_pages.desk.store.runs, case, Transcript((record,)))

    page, timeline = (shared_pages.get(each).text for each in (address, f"{address}/timeline"))

    assert 'id="agents"' not in page
    assert "<i>lead</i>" not in page
    assert "<small>lead</small>" not in timeline


def test_a_run_shows_failures_cost_and_time_of_each_agent(shared_pages: Any) -> None:
    address = store_trial(shared_pages.desk.store.runs, Case("tree", (Turn("go", ASSERTED),)), Transcript((RECORD,)))
    run = address.partition("/cases")[0]

    page = shared_pages.get(run).text
    block = shared_pages.get(f"{run}/agents", **{"HX-Request": "true", "HX-Target": "section#agents"}).text
    whole = shared_pages.get(f"{run}/agents").text

    assert f'hx-get="{run}/agents"' in page
    assert block.strip().startswith('<section class="panel" id="agents"')
    rows = re.findall(
        r'<th scope="row">(\w+)</th><td data-label="called by">([\w–]+).*?data-label="cost">([$.\d]+)</td>', block
    )
    assert rows == [("lead", "–", "$0"), ("scout", "lead", "$0.25"), ("clerk", "lead", "$0")]
    assert "<h1>" in whole
    assert "Agents of" in whole


def test_the_failure_room_shows_the_agents_of_failed_trials(shared_pages: Any) -> None:
    case = Case("tree", (Turn("go", ASSERTED),))
    address = store_trial(shared_pages.desk.store.runs, case, Transcript((RECORD,)))
    run = address.partition("/cases")[0].rpartition("/")[2]

    room = shared_pages.get(f"/failures?run={run}").text

    agents = room.partition("Agents in failed trials")[2]
    assert re.findall(r'<th scope="row">(\w+)</th>', agents.partition("</table>")[0]) == ["lead", "scout", "clerk"]


def test_a_run_of_one_agent_fetches_no_agents(shared_pages: Any) -> None:
    record = TurnRecord("go", (Event("agent_message", author="lead"),))
    address = store_trial(shared_pages.desk.store.runs, Case("one", (Turn("go", OPEN),)), Transcript((record,)))
    run = address.partition("/cases")[0]

    assert 'id="agents"' not in shared_pages.get(run).text
    assert "No trial of this run has several agents" in shared_pages.get(f"{run}/agents").text


def test_the_report_of_a_run_has_its_agents_and_those_of_each_trial(shared_pages: Any) -> None:
    store, case = shared_pages.desk.store.runs, Case("tree", (Turn("go", ASSERTED),))
    record = replace(
        RECORD, events=tuple(replace(event, author=event.author and f"<b>{event.author}") for event in RECORD.events)
    )
    run = int(store_trial(store, case, Transcript((record,))).split("/")[2])

    text = run_report(shared_pages.desk.stored_runs, run).data.decode()

    table = text.partition('<section class="panel" id="agents"')[2].partition("</table>")[0]
    assert re.findall(r'<th scope="row">(.*?)</th>', table) == [
        f"&lt;b&gt;{name}" for name in ("lead", "scout", "clerk")
    ]
    prefix = f"run-{run}-case-1-trial-1-"
    tree = text.partition(f'id="{prefix}agents"')[2].partition("</section>")[0]
    depths = re.findall(r'data-depth="(\d)">\s*<b>&lt;b&gt;(\w+)</b>', tree)
    assert depths == [("0", "lead"), ("1", "scout"), ("1", "clerk")]
    assert "<b><b>" not in text


def test_the_report_of_one_agent_has_no_agents(shared_pages: Any) -> None:
    record = TurnRecord("go", (Event("agent_message", author="lead", text="x"),))
    address = store_trial(shared_pages.desk.store.runs, Case("one", (Turn("go", OPEN),)), Transcript((record,)))

    text = run_report(shared_pages.desk.stored_runs, int(address.split("/")[2])).data.decode()

    assert "agents-title" not in text


def test_a_chat_shows_the_agents_of_its_turns(chat: Any) -> None:
    sessions = chat.desk.store.sessions
    several, one = (sessions.create("dice", title, {}) for title in ("tree", "one"))
    sessions.append_turn(several.id, RECORD)
    sessions.append_turn(several.id, RECORD)
    sessions.append_turn(one.id, TurnRecord("go", (Event("agent_message", author="lead", text="x"),)))

    timing = chat.client.get(f"/sessions/{several.id}").text.partition('id="timing"')[2]

    assert re.findall(r'data-depth="(\d)">\s*<b>(\w+)</b>', timing) == [("0", "lead"), ("1", "scout"), ("1", "clerk")]
    assert "called 2 times by lead" in timing
    assert "1,400 tokens, $0.50" in timing
    assert 'id="agents-title"' not in chat.client.get(f"/sessions/{one.id}").text
