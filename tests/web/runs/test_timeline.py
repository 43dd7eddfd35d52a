"""The time line of a trial: spans with tokens, cost and an address each, and how a model was asked."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.model import (
    AgentRef,
    Case,
    ErrorRecord,
    Event,
    Prompts,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.model.trial_turns import n_sub_agents, turn_ms
from evaldesk.pages.prompt_messages import PromptDrawing
from evaldesk.pages.spans import Span, spans_of
from evaldesk.pages.timeline import MAX_OPEN, MAX_ROWS
from evaldesk.transcripts.model_exchanges import ModelRequest
from evaldesk.transcripts.prompt_writer import CallPlace, PromptWriter

FIND, INNER = ToolCall("find", {"to": "SEA"}, "f1"), ToolCall("look", {}, "l1")
HOSTILE = "</p><script>alert(1)</script> {{ 7 * 7 }}"
TOOLS = [{"type": "function", "function": {"name": "find", "description": "Finds."}}]
CASE = Case("trip", (Turn("Find."), Turn("Thanks.")))


WAIT = "rate-limited until 12:00:00, then attempt 2 of 5: slow down"


def spent(tokens_in: int, ms: float, **more: Any) -> Usage:
    return Usage("small", tokens_in=tokens_in, tokens_out=5, cost=0.25, duration_ms=ms, **more)


FIRST = TurnRecord(
    "Find.",
    (
        Event("user_message", text="Find."),
        Event("usage", 0, usage=spent(3, 500, role="user")),
        Event("usage", 400, usage=spent(10, 300)),
        Event("tool_call", 400, call=FIND),
        Event("usage", 700, usage=spent(20, 200), within="find"),
        Event("tool_call", 700, call=INNER, within="find"),
        Event("tool_result", 800, call=INNER, result=1, duration_ms=100, within="find"),
        Event("tool_result", 900, call=FIND, result={"n": 1}, duration_ms=500),
        Event("log", 900, author="evaldesk", text=WAIT, duration_ms=600),
        Event("usage", 2000, usage=spent(30, 1100, n_attempts=2)),
        Event("agent_message", 2000, text="Found."),
    ),
    duration_ms=2000,
)
SECOND = TurnRecord("Thanks.", (Event("user_message"), Event("agent_message", 10, text="Bye.")), duration_ms=10)


def asked(*tokens: int, turn: int = 0) -> Prompts:
    """A prompt for a call of each of these tokens, in that order, each with one message more than the one before."""
    writer, messages = PromptWriter(), []
    for at, tokens_in in enumerate(tokens):
        messages.append({"role": "user", "content": f"{HOSTILE} {at}"})
        settings = {"temperature": 0.5}
        sent = ModelRequest(tuple(messages), TOOLS, settings)
        writer.add(
            CallPlace(turn, 100.0 * (at + 1)),
            spent(tokens_in, 50),
            sent,
            {"role": "assistant", "content": f"answer {at}"},
        )
    found = writer.prompts()
    assert found
    return found


def stored(pages: Any, *turns: TurnRecord, prompts: Prompts | str | None = None, **config: Any) -> str:
    runs = pages.desk.store.runs
    if isinstance(prompts, str):
        config, prompts = {**config, "prompts": prompts}, None
    run_id: int = runs.create(RunConfig(AgentRef("dice", "dice"), "trips", **config), [CASE])
    transcript = Transcript(turns or (FIRST, SECOND))
    runs.record([TrialResult(run_id, 0, 0, "finished", "passed", "answered", transcript, prompts=prompts)])
    return f"/runs/{run_id}/cases/0/trials/0"


def drawn(spans: tuple[Span, ...]) -> list[tuple[int, str, str, float, float]]:
    return [(depth, span.kind, span.name, span.start_ms, span.end_ms) for turn in spans for depth, span in turn.walk()]


def test_a_turn_begins_with_its_user_and_holds_calls_tools_sub_agents_and_waits() -> None:
    assert drawn(spans_of(Transcript((FIRST, SECOND)), None)) == [
        (0, "turn", "Turn 1", 0, 2500),
        (1, "user", "user", 0, 500),
        (1, "model", "small", 600, 900),
        (1, "agent", "find", 900, 1400),
        (2, "model", "small", 1000, 1200),
        (2, "tool", "look", 1200, 1300),
        (1, "wait", "waited", 1400, 2000),
        (1, "model", "small", 1400, 2500),
        (0, "turn", "Turn 2", 2500, 2510),
    ]


def test_tokens_and_cost_of_a_span_are_those_of_all_that_is_inside() -> None:
    [turn, _] = spans_of(Transcript((FIRST, SECOND)), None)
    agent = next(span for span in turn.inside if span.kind == "agent")

    assert sum(usage.tokens_in for usage in turn.usages) == 63
    assert [usage.tokens_in for usage in agent.usages] == [20]


def test_a_prompt_belongs_to_the_call_of_its_tokens_and_one_that_nobody_told_is_a_span_of_its_own() -> None:
    [turn, _] = spans_of(Transcript((FIRST, SECOND)), asked(30, 99, 10))
    found = {span.id: (span.prompt, span.note) for _, span in turn.walk() if span.kind == "model"}

    assert found == {"1.2": (2, ""), "1.4": (1, ""), "1.9": (0, "2 attempts")}

    [turn, _] = spans_of(Transcript((FIRST, SECOND)), asked(10, 20, 30, 40))
    assert [span.note for span in turn.inside if span.id == "1.p3"] == ["not counted"]


def test_a_call_that_failed_is_a_span_with_its_reason(pages: Any) -> None:
    writer = PromptWriter()
    sent = ModelRequest(({"role": "user", "content": "hi"},))
    writer.add(CallPlace(0, 300.0), spent(10, 50), sent, {"error": "HTTP 500"})
    writer.add(CallPlace(0, 400.0), spent(10, 50), sent, {"role": "assistant", "content": "answer"})
    prompts = writer.prompts()

    [turn, _] = spans_of(Transcript((FIRST, SECOND)), prompts)
    assert {span.id: span.note for span in turn.inside if span.kind == "model"} == {
        "1.2": "",
        "1.9": "2 attempts",
        "1.p0": "failed",
    }
    page = pages.get(f"{stored(pages, prompts=prompts)}/timeline?span=1.p0").text
    assert "This call failed" in page
    assert "HTTP 500" in page


def test_a_turn_that_broke_off_says_why(pages: Any) -> None:
    error = Event("error", 5, error=ErrorRecord("timed_out", "not finished within 1 s"))
    turn = TurnRecord("Find.", (Event("user_message"), error), duration_ms=5, stop_reason="timed_out")

    page = pages.get(f"{stored(pages, turn)}/timeline?span=1").text

    assert "timed out</small>" in page
    assert "not finished within 1 s" in page


EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from(["tool_call", "tool_result", "usage", "log", "agent_message"]),
        st.floats(0, 1e6),
        author=st.just("evaldesk"),
        call=st.sampled_from([FIND, INNER, ToolCall("find")]),
        usage=st.sampled_from([None, spent(1, 10), spent(2, 0), spent(3, 1e9, role="user")]),
        duration_ms=st.sampled_from([None, 0.0, 5.0, 1e9]),
        within=st.sampled_from(["", "find", "nobody"]),
    ),
    max_size=12,
)


@given(st.lists(EVENTS, max_size=4))
def test_whatever_the_events_are_nothing_ends_before_it_began_and_every_address_is_of_one_span(turns: Any) -> None:
    records = tuple(TurnRecord("q", tuple(events), duration_ms=10.0) for events in turns)

    spans = spans_of(Transcript(records), asked(1, 2, 3, turn=1))

    found = [span for turn in spans for _, span in turn.walk()]
    assert len({span.id for span in found}) == len(found)
    assert all(0 <= span.start_ms <= span.end_ms for span in found)
    assert all(span.end_ms <= turn.end_ms for turn in spans for _, span in turn.walk())


def is_user(event: Event) -> bool:
    return event.usage is not None and event.usage.role == "user"


@given(EVENTS)
def test_the_time_of_a_turn_is_known_without_its_spans(events: Any) -> None:
    turn = TurnRecord("q", tuple(events), duration_ms=10.0)
    calm_events = (replace(event, at_ms=event.at_ms / 1e6, duration_ms=None) for event in events)
    within_time = TurnRecord("q", tuple(event for event in calm_events if not is_user(event)), duration_ms=10.0)

    (span,), (span_within_time,) = (spans_of(Transcript((each,)), None) for each in (turn, within_time))

    assert turn_ms(turn) >= span.end_ms
    assert turn_ms(within_time) == pytest.approx(span_within_time.end_ms)


@given(EVENTS)
def test_the_calls_of_sub_agents_are_counted_without_spans(events: Any) -> None:
    turn = TurnRecord("q", tuple(events), duration_ms=10.0)

    (span,) = spans_of(Transcript((turn,)), None)

    assert n_sub_agents(turn) == sum(each.kind == "agent" for _, each in span.walk())


def test_the_page_has_each_span_with_its_address_and_opens_the_first_prompt(pages: Any) -> None:
    address = stored(pages, prompts=asked(10, 20, 30))

    page = pages.get(f"{address}/timeline").text

    rows = re.findall(r'<tr id="span-([\d.]+)".*?</tr>', page, re.DOTALL)
    assert rows == ["1", "1.1", "1.2", "1.3", "1.4", "1.5", "1.8", "1.9", "2"]
    assert re.search(r'href="\?span=1\.2#span" aria-current="true"', page)
    assert "63 → 20" in page
    assert "$1" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "answer 0" in page


def test_the_messages_of_an_earlier_call_are_folded(pages: Any) -> None:
    address = stored(pages, prompts=asked(10, 20, 30))

    page = pages.get(f"{address}/timeline?span=1.9").text

    assert page.count("<li data-kept>") == 2
    assert "2 messages of an earlier call folded." in page
    assert "answer 2" in page


@pytest.mark.parametrize(("part", "text"), [("tools", "Finds."), ("settings", "temperature"), ("nothing", "answer 0")])
def test_a_call_has_parts(part: str, text: str, pages: Any) -> None:
    address = stored(pages, prompts=asked(10))

    assert text in pages.get(f"{address}/timeline?span=1.2&part={part}").text


def test_a_call_is_read_whole_as_json(pages: Any) -> None:
    address = stored(pages, prompts=asked(10, 20))

    page = pages.get(f"{address}/calls/1")

    assert page.status_code == 200
    assert "answer 1" in page.text
    assert "&lt;script&gt;" in page.text


@pytest.mark.parametrize("span", ["9", "1.99", "1.0", "x", "1.p7", "<script>", "1.2.3"])
def test_an_address_of_no_span_is_not_found(span: str, pages: Any) -> None:
    answer = pages.get(f"{stored(pages)}/timeline?span={span}")

    assert answer.status_code == 404
    assert "<script>" not in answer.text.replace("<script ", "").replace("<script defer", "")


@pytest.mark.parametrize("at", [2, 10**14])
def test_a_call_that_was_not_recorded_is_not_found(at: int, pages: Any) -> None:
    assert pages.get(f"{stored(pages, prompts=asked(10, 20))}/calls/{at}").status_code == 404
    assert pages.get(f"{stored(pages)}/calls/0").status_code == 404


def test_without_a_prompt_the_call_says_so(pages: Any) -> None:
    page = pages.get(f"{stored(pages)}/timeline?span=1.2").text

    assert "How this call was sent is not recorded" in page
    assert "The run kept no prompts" in pages.get(f"{stored(pages, prompts='off')}/timeline?span=1.2").text
    assert "Choose a span" in pages.get(f"{stored(pages)}/timeline").text


def test_a_tool_shows_its_arguments_and_its_result_and_leads_to_its_turn(pages: Any) -> None:
    address = stored(pages)

    page = pages.get(f"{address}/timeline?span=1.3").text

    assert "<h3>Arguments</h3>" in page
    assert "<h3>Result</h3>" in page
    assert f'href="{address}#turn-1-event-3"' in page


def test_a_wait_says_why(pages: Any) -> None:
    assert "then attempt 2 of 5" in pages.get(f"{stored(pages)}/timeline?span=1.8").text


def test_a_time_that_nobody_knows_is_neither_zero_nor_a_bar(pages: Any) -> None:
    told = Event("usage", 900, usage=spent(7, 300))
    late = Event("usage", 900, usage=spent(9, 0))
    turn = TurnRecord("Find.", (Event("user_message"), told, Event("agent_message", 900), late), duration_ms=900)
    trial = stored(pages, turn)

    page = pages.get(f"{trial}/timeline?span=1.3").text

    known, unknown = (re.search(rf'<tr id="span-{name}".*?</tr>', page, re.DOTALL) for name in ("1.1", "1.3"))
    assert known is not None
    assert unknown is not None
    assert ("300 ms</td>" in known[0], 'data-span="model"' in known[0]) == (True, True)
    assert ("–</td>" in unknown[0], 'data-span="model"' in unknown[0]) == (True, False)
    assert "time unknown</p>" in page
    assert not re.search(r"\b0 ms", page)
    assert not re.search(r"\b0 ms", pages.get(trial).text)


def test_tokens_are_at_least_what_was_told_where_a_call_told_none(pages: Any) -> None:
    silent = Event("usage", 900, usage=Usage("unknown", cost=None, is_least=True))
    turn = TurnRecord(
        "Find.", (Event("user_message"), Event("usage", 800, usage=spent(7, 300)), silent), duration_ms=900
    )

    page = pages.get(f"{stored(pages, turn)}/timeline").text

    rows = {name: re.search(rf'<tr id="span-{name}".*?</tr>', page, re.DOTALL) for name in ("1", "1.1", "1.2")}
    found = {name: re.findall(r"<td data-num>([^<]*→[^<]*)</td>", row[0]) for name, row in rows.items() if row}
    assert found == {"1": ["at least 7 → 5"], "1.1": ["7 → 5"], "1.2": []}
    assert "at least 12 tokens, cost unknown" in page


def test_events_without_any_time_are_not_all_at_zero(pages: Any) -> None:
    trial = stored(pages, TurnRecord("Find.", (Event("user_message"), Event("usage", usage=spent(7, 0)))))

    rows = re.findall(r"<tr><td data-num data-fit>(.*?)</td>", pages.get(trial).text)

    assert rows == ["–", "–"]


def test_a_trial_that_is_scored_again_shows_how_the_played_one_was_asked(pages: Any) -> None:
    address = stored(pages, prompts=asked(10))
    source = int(address.split("/")[2])

    again = stored(pages, source_run_id=source)

    assert "answer 0" in pages.get(f"{again}/timeline").text
    pages.desk.store.runs.set_status(source, "finished")
    pages.desk.store.runs.delete(source)
    assert "answer 0" not in pages.get(f"{again}/timeline").text


def test_a_trial_that_was_never_played_has_no_time_line(pages: Any) -> None:
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("dice", "dice"), "trips"), [CASE])

    assert pages.get(f"/runs/{run_id}/cases/0/trials/0/timeline").status_code == 404


def test_a_trial_has_its_time_line_as_one_line_where_times_were_recorded(pages: Any) -> None:
    page = pages.get(stored(pages)).text
    assert 'class="timestrip"' in page
    assert "3 model calls, 1 tool, 1 sub-agent, 1 wait" in page

    timeless = TurnRecord("Find.", (Event("tool_call", call=FIND), Event("tool_result", call=FIND)))
    address = stored(pages, timeless)
    assert 'class="timestrip"' not in pages.get(address).text
    assert "No times were recorded" in pages.get(f"{address}/timeline").text


def test_long_trials_open_one_turn_and_pages_stay_small(pages: Any) -> None:
    calls = [ToolCall(f"tool_{at}", {}, f"c{at}") for at in range(4 * MAX_ROWS)]
    events = [
        event for call in calls for event in (Event("tool_call", 1, call=call), Event("tool_result", 2, call=call))
    ]
    turns = [TurnRecord("q", tuple(events), duration_ms=5000.0) for _ in range(4)]
    address = stored(pages, *turns)

    page = pages.get(f"{address}/timeline?span=3.2").text

    assert page.count("<tr id=") <= MAX_ROWS
    assert 'id="span-3.2"' in page
    assert f'id="span-3.{8 * MAX_ROWS - 2}"' in pages.get(f"{address}/timeline?span=3.{8 * MAX_ROWS - 2}").text
    after = re.search(r'href="\?span=([\d.]+)#span-[\d.]+">\d+ later', page)
    assert after
    assert f'id="span-{after[1]}"' not in page
    assert f'id="span-{after[1]}"' in pages.get(f"{address}/timeline?span={after[1]}").text
    assert 'id="span-2.2"' not in page
    assert len(page) < 200_000
    assert len(pages.get(address).text.split('class="timestrip"')[1].split("</a>")[0]) < 60_000
    assert MAX_OPEN < MAX_ROWS


MESSAGES: Any = {
    "chat": {"role": "user", "content": "hi"},
    "parts": {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {}}]},
    "a call": {"role": "assistant", "tool_calls": [{"function": {"name": "find", "arguments": "{}"}}]},
    "a result": {"role": "tool", "tool_call_id": "c1", "content": "4"},
    "anthropic": {"role": "assistant", "content": [{"type": "tool_use", "name": "find", "input": {"a": 1}}]},
    "anthropic result": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "4"}]},
    "responses": {"type": "function_call", "name": "find", "arguments": "{}"},
    "responses result": {"type": "function_call_output", "call_id": "a", "output": "4"},
    "gemini": {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {}}}, {"text": "hi"}]},
    "otel": {"role": "assistant", "parts": [{"type": "tool_call", "name": "find", "arguments": {}}]},
    "thinking": {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
}
PIECES = {
    "chat": [("text", "hi")],
    "parts": [("text", "hi"), ("other", "")],
    "a call": [("call", "{}")],
    "a result": [("result", "4")],
    "anthropic": [("call", "")],
    "anthropic result": [("result", "4")],
    "responses": [("call", "{}")],
    "responses result": [("result", "4")],
    "gemini": [("call", "{}"), ("text", "hi")],
    "otel": [("call", "{}")],
    "thinking": [("text", "hm")],
}


@pytest.mark.parametrize("shape", MESSAGES)
def test_messages_are_read_in_the_shape_of_every_api(shape: str) -> None:
    [message] = PromptDrawing().messages(MESSAGES[shape])

    assert [(piece.kind, piece.text) for piece in message.pieces] == PIECES[shape]
    assert all(piece.name for piece in message.pieces if piece.kind == "call")


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "parts", "type", "text", "function", "name", "tool_calls", "x"]), inner
        )
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (
            [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}],
            ["web_search", "code_interpreter"],
        ),
        ([{"type": "mcp", "server_label": "wiki", "server_url": "https://wiki.example"}], ["wiki"]),
        ([{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}], ["web_search"]),
        (
            [{"type": "function", "function": {"name": "roll"}}, {"type": "function", "name": "check"}],
            ["roll", "check"],
        ),
        (
            [{"functionDeclarations": [{"name": "roll"}], "googleSearch": {}}, {"codeExecution": {}}],
            ["roll", "googleSearch", "codeExecution"],
        ),
    ],
    ids=["OpenAI", "MCP", "Anthropic", "functions", "Gemini"],
)
def test_tools_that_a_provider_runs_are_named_beside_functions(tools: list[Any], names: list[str]) -> None:
    assert [piece.name for piece in PromptDrawing().tools(tools)] == names


@given(JSON)
def test_no_message_is_of_a_shape_that_cannot_be_shown(value: Any) -> None:
    assert isinstance(PromptDrawing().messages(value), tuple)
    assert isinstance(PromptDrawing().tools(value), tuple)
    assert isinstance(PromptDrawing().settings(value), tuple)


def test_a_chat_has_a_time_line_with_its_prompts(pages: Any) -> None:
    sessions = pages.desk.store.sessions
    chat = sessions.create("dice", f"About {HOSTILE}")
    sessions.append_turn(chat.id, FIRST, prompts=asked(10, 20, 30))

    page = pages.get(f"/sessions/{chat.id}/timeline").text
    tool = pages.get(f"/sessions/{chat.id}/timeline?span=1.3").text
    raw = pages.get(f"/sessions/{chat.id}/calls/1").text

    assert "answer 0" in page
    assert "Time line of About &lt;/p&gt;&lt;script&gt;" in page
    assert "<script>alert(1)" not in page + tool + raw
    assert f'href="/sessions/{chat.id}#turn-1"' in tool
    assert "answer 1" in raw
    for address in ("calls/3", "timeline?span=9.9"):
        assert pages.get(f"/sessions/{chat.id}/{address}").status_code == 404
    assert pages.get("/sessions/nobody/timeline").status_code == 404
    assert pages.get("/sessions/nobody/calls/0").status_code == 404
