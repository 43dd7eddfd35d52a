"""Agents that wait for a person, with the real packages and scripted models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agents import adk_source, langgraph_source, openai_agents_source, pydantic_ai_source
from tests.agents.answering import answering
from tests.agents.installed import skip_without
from tests.islands import of_tools

from evaldesk.agents import agent_ref, load_agent
from evaldesk.formats.files import load_format
from evaldesk.matching.allowed import apply_allowances
from evaldesk.metrics import METRICS, build_metric, metric_info, metric_options
from evaldesk.metrics.judges.material import steps_text
from evaldesk.metrics.tools.used import ToolUsed
from evaldesk.model import (
    Case,
    Criterion,
    Event,
    Expected,
    ModelOptions,
    Session,
    ToolCall,
    Transcript,
    Turn,
    TurnRecord,
    Waiting,
)
from evaldesk.model.transcript import AWAITING, UNMADE, Capture, StopReason
from evaldesk.transcripts.recorded import RecordedRun, recorded_trial

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

OPENAI = openai_agents_source.ROLLER.replace("@function_tool\n", "@function_tool(needs_approval=True)\n")
PYDANTIC = pydantic_ai_source.ROLLER.replace(
    "@root_agent.tool\n", "@root_agent.tool(requires_approval=True)\n"
).replace("deps_type=dict)", "deps_type=dict, output_type=[str, DeferredToolRequests])")
PYDANTIC = "from pydantic_ai import DeferredToolRequests\n" + PYDANTIC
GRAPH = langgraph_source.ROLLER.replace("    return sides\n", "    interrupt('Roll?')\n    return sides\n").replace(
    'graph.compile(name="dice")', 'graph.compile(name="dice", checkpointer=InMemorySaver())'
)
GRAPH = "from langgraph.checkpoint.memory import InMemorySaver\nfrom langgraph.types import interrupt\n" + GRAPH

ADK = "from google.adk.tools.function_tool import FunctionTool\n" + adk_source.ROLLER.replace(
    "tools=[roll_die]", "tools=[FunctionTool(roll_die, require_confirmation=True)]"
)
LONG = "from google.adk.tools.long_running_tool import LongRunningFunctionTool\n" + adk_source.ROLLER.replace(
    "tools=[roll_die]", "tools=[LongRunningFunctionTool(roll_die)]"
).replace("    return sides\n", "    return None\n")

PENDING = LONG.replace("    return None\n", '    return {"status": "pending"}\n')

SHAPES = [
    pytest.param("google.adk", ADK, id="ADK confirmation"),
    pytest.param("google.adk", LONG, id="ADK long-running tool"),
    pytest.param("agents", OPENAI, id="OpenAI needs_approval"),
    pytest.param("pydantic_ai", PYDANTIC, id="pydantic-ai deferred tool"),
    pytest.param("langgraph", GRAPH, id="LangGraph interrupt"),
]


FIRST_RESULTS = [*SHAPES, pytest.param("google.adk", PENDING, id="ADK long-running tool with a first result")]


@pytest.mark.parametrize(("package", "source"), FIRST_RESULTS)
@pytest.mark.parametrize("is_streaming", [False, True], ids=["whole", "streaming"])
async def test_a_call_that_waits_for_a_person_satisfies_no_trajectory(
    loaded: Any, played: Any, package: str, source: str, is_streaming: bool
) -> None:
    skip_without(package)

    turn = await played(loaded(source), Session("s", is_streaming=is_streaming), "Roll a d6")

    assert (turn.stop_reason, turn.error, turn.answer) == ("awaiting_approval", None, "")
    assert [call.name for call in turn.tool_calls] == ["roll_die"]
    told = [event.result for event in turn.events if event.kind == "tool_result"]
    assert told == ([{"status": "pending"}] if source is PENDING else [])
    check_nothing_is_satisfied(turn)


JUDGES_OF_CALLS = [name for name in METRICS if metric_info(name).needs == "tool_calls"]


def check_nothing_is_satisfied(turn: TurnRecord) -> None:
    """No metric that judges calls takes the calls of the turn for expected ones; a call that is forbidden was made."""
    wanted = Expected(tool_calls=tuple(ToolCall(call.name, call.args) for call in turn.tool_calls))
    transcript, case = Transcript((turn,)), Case("c", (Turn("Roll a d6", wanted),))
    used = {"tool": "roll_die"}
    for name, options in [*((name, {}) for name in JUDGES_OF_CALLS), ("tool_used", used)]:
        scopes = [{"scope": "turn"}, {"scope": "conversation"}]
        for scoped in scopes if any(option.name == "scope" for option in metric_options(name)) else [{}]:
            scores = build_metric(Criterion(name, 1.0, {**options, **scoped})).score(transcript, case)
            assert isinstance(scores, list)
            assert scores[-1].value == 0.0, (name, scoped)
    never = ToolUsed(tool="roll_die", at_least=0, at_most=0)
    assert never.score(transcript, case)[-1].value == 0.0
    allowed = replace(case, extra={"also_accepted": [{"turn": 1, "tool": "roll_die", "argument": "x", "ignore": True}]})
    assert not apply_allowances(allowed, transcript)[1]
    if turn.stop_reason == AWAITING:
        assert "Waits for a person: " in steps_text(turn)


def again(source: str, old: str, new: str) -> str:
    """The source of a rolling agent whose model calls a tool in each answer."""
    assert old in source
    return source.replace(old, new)


OPENAI_AGAIN = again(
    openai_agents_source.ROLLER, "Scripted(answer)", "Scripted(lambda *_: called('roll_die', {'sides': 6}))"
)
PYDANTIC_AGAIN = again(
    pydantic_ai_source.ROLLER, "scripted(answer),", "scripted(lambda *_: called('roll_die', {'sides': 6})),"
)
GRAPH_AGAIN = again(langgraph_source.ROLLER, 'if last.type == "tool":', "if False:").replace(
    "found = await decided(word)", "found = 6"
)
BOUNDED = [
    pytest.param("agents", OPENAI_AGAIN, id="OpenAI"),
    pytest.param("pydantic_ai", PYDANTIC_AGAIN, id="pydantic-ai"),
    pytest.param("langgraph", GRAPH_AGAIN, id="LangGraph"),
]


@pytest.mark.parametrize(("package", "source"), BOUNDED)
async def test_at_the_limit_of_a_turn_only_calls_with_a_result_count(
    loaded: Any, played: Any, package: str, source: str
) -> None:
    skip_without(package)

    turn = await played(loaded(source), Session("s", model_options=ModelOptions(max_turns=1)), "Roll a d6")

    n_results = sum(event.kind == "tool_result" for event in turn.events)
    assert (turn.stop_reason, len(turn.tool_calls)) == ("max_turns", 1)
    assert [call.name for call in turn.judged_calls] == (["roll_die"] if n_results else [f"roll_die{UNMADE[0]}"])
    if not n_results:
        check_nothing_is_satisfied(turn)


async def test_a_request_to_the_person_is_no_call_of_the_agent(loaded: Any, played: Any) -> None:
    skip_without("google.adk")

    turn = await played(loaded(ADK), Session("s"), "Roll a d6")

    logs = [event.text for event in turn.events if event.kind == "log"]
    assert "adk_request_confirmation: roll_die" in logs
    assert "roll_die waits for a confirmation" in logs
    [waiting] = turn.open_requests
    assert (waiting.tool, waiting.args, waiting.choices) == ("roll_die", {"sides": 6}, ("approve", "deny"))


SERVED = [
    {
        "author": "shop",
        "content": {"parts": [{"functionCall": {"id": "c1", "name": "refund", "args": {"order": 7}}}]},
    },
    {
        "author": "shop",
        "content": {
            "parts": [
                {
                    "functionCall": {
                        "id": "adk-2",
                        "name": "adk_request_confirmation",
                        "args": {"originalFunctionCall": {"id": "c1", "name": "refund", "args": {"order": 7}}},
                    }
                }
            ]
        },
        "longRunningToolIds": ["adk-2"],
    },
    {
        "author": "shop",
        "content": {"parts": [{"functionResponse": {"id": "c1", "name": "refund", "response": {"error": "confirm"}}}]},
        "actions": {"requestedToolConfirmations": {"c1": {"hint": "sure?"}}},
    },
]


@of_tools("adk")
async def test_an_agent_behind_a_server_of_adk_waits(played: Any) -> None:
    with answering() as (address, server):
        server.gives({"id": "s-77", "appName": "shop"})
        server.gives(*SERVED, kind="text/event-stream")

        turn = await played(load_agent(agent_ref(f"adk:{address}/shop")), Session("s"), "refund 7")

    assert (turn.stop_reason, turn.error, turn.answer) == ("awaiting_approval", None, "")
    assert [call.name for call in turn.tool_calls] == ["refund"]
    assert not [event for event in turn.events if event.kind == "tool_result"]


CALL = ToolCall("roll_die", {"sides": 6}, "c1")
PENDING_RESULT = Event("tool_result", call=CALL, result={"status": "pending"})


def waited(*events: Event, waiting: Waiting) -> TurnRecord:
    asked = Event("waiting", waiting=waiting)
    return TurnRecord("Roll a d6", (Event("user_message", text="Roll a d6"), *events, asked), stop_reason=AWAITING)


LIKENESS = [
    pytest.param(Waiting("c1", "roll_die", {"sides": 6}), id="same id"),
    pytest.param(Waiting("adk-2", "roll_die", {"sides": 6}), id="same arguments"),
    pytest.param(Waiting("", "roll_die"), id="same name"),
    pytest.param(Waiting("c1", "roll_die", {"sides": 20}), id="other arguments to decide about"),
]


@pytest.mark.parametrize("waiting", LIKENESS)
def test_a_pending_call_is_matched_by_id_or_name(waiting: Waiting) -> None:
    turn = waited(Event("tool_call", call=CALL), PENDING_RESULT, waiting=waiting)

    check_nothing_is_satisfied(turn)


CUT: list[StopReason] = ["max_turns", "max_iterations", "error", "timed_out", "cancelled", "interrupted"]


@pytest.mark.parametrize("reason", CUT)
@pytest.mark.parametrize("captures", [("adapter",), ("told",), ("spans",), ("gateway",), ()])
def test_a_call_without_a_result_does_not_count_in_an_interrupted_turn(
    reason: StopReason, captures: tuple[Capture, ...]
) -> None:
    first, last = Event("tool_call", call=CALL), Event("tool_call", call=replace(CALL, id="c2"))
    result = Event("tool_result", call=CALL, result=6)
    cut = TurnRecord("Roll", (first, result, last), stop_reason=reason, captures=captures)
    untold = replace(cut, events=(first,))
    names = ["roll_die", "roll_die, which has no result"]
    is_of_file = not captures and reason in {"max_turns", "max_iterations", "interrupted"}

    assert [call.name for call in cut.judged_calls] == names
    assert [call.name for call in untold.judged_calls] == [names["adapter" in captures or is_of_file]]
    assert replace(cut, stop_reason="answered").judged_calls == cut.tool_calls
    if "adapter" in captures:
        check_nothing_is_satisfied(untold)


def test_the_reason_names_the_call_that_waits() -> None:
    turn = waited(Event("tool_call", call=CALL), waiting=Waiting("c1", "roll_die", {"sides": 6}))
    case = Case("c", (Turn("Roll", Expected(tool_calls=(ToolCall("roll_die", {"sides": 6}),))),))

    scores = build_metric(Criterion("tool_exact", 1.0)).score(Transcript((turn,)), case)

    assert isinstance(scores, list)
    assert scores[0].reason == "Of the calls, 1 missing, 1 extra: roll_die, which waits for an answer."


def test_only_the_pending_call_does_not_count() -> None:
    first, second = replace(CALL, id=None), replace(CALL, args={"sides": 8}, id=None)
    made = [Event("tool_call", call=first), Event("tool_result", call=first, result=6)]
    done = waited(*made, waiting=Waiting("", "roll_die", {"sides": 8}))
    both = waited(
        *made,
        Event("tool_call", call=second),
        Event("tool_result", call=second, result="asked"),
        waiting=Waiting("", "roll_die", {"sides": 8}),
    )
    twice = waited(*made, Event("tool_call", call=first), waiting=Waiting("", "roll_die", {"sides": 6}))

    assert [call.name for call in done.judged_calls] == ["roll_die"]
    assert [call.name for call in both.judged_calls] == ["roll_die", "roll_die, which waits for an answer"]
    assert [call.name for call in twice.judged_calls] == ["roll_die", "roll_die, which waits for an answer"]


@pytest.mark.parametrize("waiting", [Waiting("c1", "roll_die", {"sides": 6}), Waiting("adk-2", "roll_die", CALL.args)])
@pytest.mark.parametrize("form", ["adk-results", "otel", pytest.param("atif", marks=of_tools("atif"))])
def test_a_paused_trial_is_equal_after_export_and_import(form: str, waiting: Waiting) -> None:
    turn = waited(Event("tool_call", call=CALL), PENDING_RESULT, waiting=waiting)
    result = recorded_trial((turn,))
    run = RecordedRun("run", "dice", (Case("c", (Turn("Roll a d6"),)),), (replace(result, stop_reason=AWAITING),))

    [read] = load_format(form).read(load_format(form).write(run), source="run.json").runs

    [trial] = read.results
    [back] = trial.transcript.turns
    assert (trial.stop_reason, back.stop_reason, back.answer) == (AWAITING, AWAITING, "")
    assert [(each.tool, each.args) for each in back.open_requests] == [("roll_die", {"sides": 6})]
    check_nothing_is_satisfied(back)
