"""Agents that go on after a decision, natively, with the real packages and scripted models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.agents.answering import answering
from tests.agents.installed import skip_without
from tests.agents.test_awaiting_approval import ADK, GRAPH, LONG, PENDING, PYDANTIC, SERVED, SHAPES
from tests.islands import of_tools

from evaldesk.agents import Agent, agent_ref, load_agent
from evaldesk.desk.adk_verdict import adk_failures
from evaldesk.desk.other_tools import as_adk_hears, as_tool_judges, difference
from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.player import play_trial, play_turn
from evaldesk.metrics import score_trial
from evaldesk.metrics.tools.match import ToolExact
from evaldesk.model import (
    DEFAULT_CRITERIA,
    AgentRef,
    Case,
    Criterion,
    Decision,
    Expected,
    JsonObject,
    Session,
    ToolCall,
    TrialSpec,
    Turn,
    TurnRecord,
    trial_verdict,
)
from evaldesk.wire import from_json, to_json

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

EXTERNAL = PYDANTIC.replace("@root_agent.tool(requires_approval=True)\n", "@root_agent.tool\n").replace(
    "    context.deps[", "    raise CallDeferred\n    context.deps["
)
EXTERNAL = "from pydantic_ai import CallDeferred\n" + EXTERNAL
ASKING = GRAPH.replace("    interrupt('Roll?')\n    return sides\n", "    return interrupt('How many?')\n")

APPROVED = [shape for shape in SHAPES if shape.id != "ADK long-running tool"]
ANSWERED = [
    pytest.param("google.adk", LONG, id="ADK long-running tool"),
    pytest.param("pydantic_ai", EXTERNAL, id="pydantic-ai call made elsewhere"),
    pytest.param("langgraph", ASKING, id="LangGraph interrupt"),
]
PLACES = pytest.mark.parametrize("is_same", [True, False], ids=["the same process", "another process"])
Loaded = Callable[..., Agent]


async def decided(
    loaded: Loaded,
    source: str,
    *decisions: Decision,
    is_same: bool = True,
    state: JsonObject | None = None,
    **fields: Any,
) -> TurnRecord:
    """A turn that waits and goes on as in a chat: in a session made of what is stored.

    Another process has another import of the agent and no memory.
    """
    agent = loaded(source)
    session = Session("s", state=dict(state or {}), **fields)
    record = await play_turn(agent, session, "Roll a d6", attempt=Attempt())
    assert (record.stop_reason, record.error) == ("awaiting_approval", None)
    stored = from_json(to_json(replace(record, paused=session.paused)), TurnRecord)
    later = Session("s", state=dict(stored.state_after), memory=session.memory if is_same else {}, **fields)
    later.paused = stored.paused
    return await play_turn(
        agent if is_same else loaded(source),
        later,
        stored.query,
        attempt=Attempt(),
        open_record=stored,
        decided=tuple(zip(stored.open_requests, decisions, strict=True)),
    )


def results(turn: TurnRecord) -> list[tuple[str, JsonObject, Any, bool]]:
    return [
        (event.call.name, event.call.args, event.result, event.is_error)
        for event in turn.events
        if event.kind == "tool_result" and event.call
    ]


@pytest.mark.parametrize(("package", "source"), APPROVED)
@pytest.mark.parametrize("is_streaming", [False, True], ids=["whole", "streaming"])
@PLACES
async def test_an_approved_call_is_made_and_answered_in_the_same_turn(
    loaded: Loaded, package: str, source: str, is_streaming: bool, is_same: bool
) -> None:
    skip_without(package)

    turn = await decided(
        loaded, source, Decision("approve"), is_same=is_same, state={"rolls": [1]}, is_streaming=is_streaming
    )

    assert (turn.error, turn.stop_reason, turn.answer.strip()) == (None, "answered", "got 6")
    assert [(call.name, call.args) for call in turn.tool_calls] == [("roll_die", {"sides": 6})]
    assert [(name, args, str(value), failed) for name, args, value, failed in results(turn)] == [
        ("roll_die", {"sides": 6}, "6", False)
    ]
    assert len(turn.usages) == 2
    assert [event.kind for event in turn.events if event.waiting] == ["waiting", "decision"]
    assert (turn.state_before["rolls"], turn.state_after["rolls"]) == ([1], [1, 6])
    assert turn.open_requests == ()


DENIED = [shape for shape in APPROVED if shape.id != "LangGraph interrupt"]


@pytest.mark.parametrize(("package", "source"), DENIED)
@PLACES
async def test_a_denied_call_is_not_made_and_the_agent_gets_the_denial(
    loaded: Loaded, package: str, source: str, is_same: bool
) -> None:
    skip_without(package)

    turn = await decided(loaded, source, Decision("deny", reason="Not now."), is_same=is_same, state={"rolls": [1]})

    assert (turn.error, turn.stop_reason) == (None, "answered")
    assert turn.answer.startswith("got ")
    assert turn.state_after["rolls"] == [1]
    assert len(results(turn)) == 1
    if package != "google.adk":  # which has words of its own
        assert turn.answer == "got Not now."


@pytest.mark.parametrize(("package", "source"), ANSWERED)
@PLACES
async def test_an_answer_is_the_result_of_the_call(loaded: Loaded, package: str, source: str, is_same: bool) -> None:
    skip_without(package)

    turn = await decided(loaded, source, Decision("answer", answer=4), is_same=is_same)

    assert (turn.error, turn.stop_reason, turn.answer) == (None, "answered", "got 4")
    assert [result[2] for result in results(turn)] in ([4], ["4"])


@pytest.mark.parametrize(("package", "source"), APPROVED)
async def test_the_next_turn_continues_after_a_resumed_one(loaded: Loaded, package: str, source: str) -> None:
    skip_without(package)
    agent, session = loaded(source), Session("s")
    record = await play_turn(agent, session, "Roll a d6", attempt=Attempt())
    session.turns.clear()
    await play_turn(
        agent,
        session,
        "Roll a d6",
        attempt=Attempt(),
        open_record=record,
        decided=[(record.open_requests[0], Decision("approve"))],
    )

    after = await play_turn(agent, session, "Roll a d8", attempt=Attempt())

    assert (after.error, after.stop_reason) == (None, "awaiting_approval")
    assert [waiting.args for waiting in after.open_requests] == [{"sides": 8}]


@pytest.mark.parametrize(("package", "source"), APPROVED)
async def test_a_person_may_change_the_state_while_a_turn_waits(loaded: Loaded, package: str, source: str) -> None:
    skip_without(package)
    agent, session = loaded(source), Session("s", state={"rolls": [1]})
    record = await play_turn(agent, session, "Roll a d6", attempt=Attempt())
    later = Session("s", state={"rolls": [9]}, memory=session.memory)

    turn = await play_turn(
        agent,
        later,
        "Roll a d6",
        attempt=Attempt(),
        open_record=record,
        decided=[(record.open_requests[0], Decision("approve"))],
    )

    assert (turn.error, turn.state_after["rolls"]) == (None, [9, 6])


def case_of(*decisions: Any, n_turns: int = 1) -> Case:
    wanted = Expected(tool_calls=(ToolCall("roll_die", {"sides": 6}),), reference="got 6")
    return Case("c", (Turn("Roll a d6", wanted),) * n_turns, extra={"human_decisions": list(decisions)})


def spec_of(case: Case) -> TrialSpec:
    return TrialSpec(1, 0, 0, case, AgentRef("some_agent", "some_agent.agent:root_agent"))


@pytest.mark.parametrize(("package", "source"), APPROVED)
async def test_a_trial_plays_the_decisions_of_its_case(loaded: Loaded, package: str, source: str) -> None:
    skip_without(package)
    case = case_of({"turn": 1, "tool": "roll_die", "decision": "approve"}, n_turns=2)
    if package == "langgraph":
        case = replace(case, extra={"human_decisions": [{"turn": 1, "decision": "approve"}]})

    result = await play_trial(loaded(source), spec_of(case))

    first, second = result.transcript.turns
    assert (result.status, result.stop_reason, result.error) == ("finished", "awaiting_approval", None)
    assert (first.stop_reason, first.answer) == ("answered", "got 6")
    assert [event.author for event in first.events if event.kind == "decision"] == ["case"]
    assert (second.stop_reason, second.answer) == ("awaiting_approval", "")
    scores = ToolExact().score(result.transcript, case)
    assert [score.value for score in scores if score.turn is not None] == [1.0, 0.0]


@pytest.mark.parametrize(("package", "source"), APPROVED)
async def test_a_decision_without_a_turn_holds_as_often_as_the_agent_waits(
    loaded: Loaded, package: str, source: str
) -> None:
    skip_without(package)

    result = await play_trial(loaded(source), spec_of(case_of({"decision": "approve"}, n_turns=3)))

    assert [turn.answer for turn in result.transcript.turns] == ["got 6"] * 3


@pytest.mark.parametrize(("package", "source"), SHAPES)
async def test_a_script_goes_on_after_a_turn_that_waits(loaded: Loaded, package: str, source: str) -> None:
    skip_without(package)
    case = Case("c", (Turn("Roll a d6"), Turn("hello")))

    result = await play_trial(loaded(source), spec_of(case))

    assert (result.status, result.stop_reason, result.error) == ("finished", "awaiting_approval", None)
    assert [turn.stop_reason for turn in result.transcript.turns] == ["awaiting_approval", "answered"]
    assert result.transcript.turns[1].answer


async def test_adk_counts_the_call_of_a_long_running_tool_as_made(loaded: Loaded) -> None:
    skip_without("google.adk")
    expected = Expected(tool_calls=(ToolCall("roll_die", {"sides": 6}),), reference="got {'status': 'pending'}")
    case = Case("c", (Turn("Roll a d6", expected), Turn("hello", Expected(tool_calls=(), reference="hello there"))))
    played = await play_trial(loaded(PENDING), spec_of(case))
    trial = replace(played, scores=score_trial(played.transcript, case, DEFAULT_CRITERIA))
    trial = replace(trial, verdict=trial_verdict(trial.scores, DEFAULT_CRITERIA, None))

    theirs = as_tool_judges("adk", case, trial, DEFAULT_CRITERIA)

    assert (trial.verdict, theirs.verdict) == ("failed", "passed"), theirs.scores
    assert "where a call that waits for a person was made" in difference("adk", case, trial, DEFAULT_CRITERIA)
    assert not adk_failures(CaseResult(case, (trial,), 1), DEFAULT_CRITERIA)


@pytest.mark.parametrize(("match", "verdict"), [("EXACT", "failed"), ("IN_ORDER", "passed"), ("ANY_ORDER", "passed")])
async def test_adk_counts_its_question_for_a_confirmation_as_a_call(loaded: Loaded, match: str, verdict: str) -> None:
    skip_without("google.adk")
    case = Case("c", (Turn("Roll a d6", Expected(tool_calls=(ToolCall("roll_die", {"sides": 6}),))),))
    criteria = [Criterion("tool_trajectory_avg_score", 1.0, {"match_type": match})]
    agent = loaded(ADK)
    played = await play_trial(agent, spec_of(case))
    trial = replace(played, scores=score_trial(played.transcript, case, criteria))
    trial = replace(trial, verdict=trial_verdict(trial.scores, criteria, None))

    theirs = as_tool_judges("adk", case, trial, criteria)

    heard = as_adk_hears(played.transcript).turns[0]
    assert [call.name for call in heard.tool_calls] == await _calls_in_adk(agent, "Roll a d6")
    assert (trial.verdict, theirs.verdict) == ("failed", verdict)
    assert (not adk_failures(CaseResult(case, (trial,), 1), criteria)) is (verdict == "passed")


async def _calls_in_adk(agent: Any, message: str) -> list[str]:
    """The names of the calls in the trajectory that ADK's own evaluation sees."""
    from google.adk.evaluation.eval_case import get_all_tool_calls
    from google.adk.evaluation.evaluation_generator import EvaluationGenerator
    from google.adk.runners import InMemoryRunner

    async with InMemoryRunner(agent.app.root_agent) as runner:
        events = await runner.run_debug(message, quiet=True)
    [invocation] = EvaluationGenerator.convert_events_to_eval_invocations(events)
    return [str(call.name) for call in get_all_tool_calls(invocation.intermediate_data)]


async def test_a_turn_resumes_only_with_a_decision_for_each_call(loaded: Loaded, played: Any) -> None:
    skip_without("pydantic_ai")
    source = PYDANTIC.replace(
        'return called("roll_die", {"sides": found}) if isinstance(found, int) else said(found)',
        """calls = [ToolCallPart(name, {"sides": found}, name) for name in ("roll_die", "drop_die")]
    return ModelResponse(parts=calls)""",
    )
    source += PYDANTIC.rpartition("@root_agent.tool")[1] + source.rpartition("@root_agent.tool")[2].replace(
        "roll_die", "drop_die"
    )
    one = case_of({"turn": 1, "tool": "roll_die", "decision": "approve"})
    both = case_of({"turn": 1, "tool": "drop_die", "decision": "deny"}, {"turn": 1, "decision": "approve"})

    first, second = [(await play_trial(loaded(source), spec_of(case))).transcript.turns[0] for case in (one, both)]

    assert (first.stop_reason, first.error) == ("awaiting_approval", None)
    assert [waiting.tool for waiting in first.open_requests] == ["roll_die", "drop_die"]
    assert "a decision of the case was not used: approve roll_die" in [event.text for event in first.events]
    made = [
        (event.waiting.tool, event.decision.decision) for event in second.events if event.decision and event.waiting
    ]
    assert made == [("roll_die", "approve"), ("drop_die", "deny")]
    assert (second.stop_reason, second.error) == ("answered", None)


BREAKPOINT = GRAPH.replace("    interrupt('Roll?')\n", "").replace(
    "checkpointer=InMemorySaver()", 'checkpointer=InMemorySaver(), interrupt_before=["tools"]'
)
MIDDLEWARE = GRAPH.replace(
    "    interrupt('Roll?')\n    return sides\n",
    """    request = {"action_requests": [{"name": "roll_die", "args": {"sides": sides}, "description": "Roll?"}],
        "review_configs": [{"action_name": "roll_die", "allowed_decisions": ["approve", "reject"]}]}
    found = interrupt(request)
    return sides if found == {"decisions": [{"type": "approve"}]} else 0
""",
)
INBOX = GRAPH.replace(
    "    interrupt('Roll?')\n    return sides\n",
    """    found = interrupt([{"action_request": {"action": "roll_die", "args": {"sides": sides}}, "config": {}}])
    return sides if found[0]["type"] == "accept" else found[0]["args"]
""",
)


@pytest.mark.parametrize("source", [BREAKPOINT, MIDDLEWARE, INBOX], ids=["breakpoint", "middleware", "agent-inbox"])
@PLACES
async def test_breakpoints_and_middleware_interrupts_are_resumed(loaded: Loaded, source: str, is_same: bool) -> None:
    skip_without("langgraph")

    turn = await decided(loaded, source, Decision("approve"), is_same=is_same)

    assert (turn.error, turn.stop_reason, turn.answer) == (None, "answered", "got 6")
    if source is not BREAKPOINT:
        assert [
            (each.waiting.tool, each.waiting.args) for each in turn.events if each.kind == "waiting" and each.waiting
        ] == [("roll_die", {"sides": 6})]


PAIR = (
    GRAPH.replace(
        """[said("", ("roll_die", {"sides": found})) if isinstance(found, int) else said(found)]""",
        """[said("", ("keep", {"sides": 3}), ("roll_die", {"sides": 2}), ("roll_die", {"sides": found}))]""",
    )
    .replace("@tool\ndef", "@tool\nasync def")
    .replace("ToolNode([roll_die])", "ToolNode([roll_die, keep])")
)
PAIR = PAIR.replace(
    """@tool
async def roll_die""",
    """@tool
async def keep(sides: int) -> str:
    \'\'\'Keep.\'\'\'
    return f"kept {sides}: {interrupt('Roll?')}"

@tool
async def roll_die""",
).replace("    interrupt('Roll?')\n    return sides\n", "    return f\"{sides}: {interrupt('Roll?')}\"\n")
PAIR = PAIR.replace(
    'said(f"got {last.content}")',
    'said("; ".join(each.content for each in state["messages"] if each.type == "tool"))',
).replace("-> int", "-> str")
APART = PAIR.replace(
    """    return "tools" if state["messages"][-1].tool_calls else END""",
    """    calls = state["messages"][-1].tool_calls
    return [Send("tools", [call]) for call in calls] if calls else END""",
).replace("import interrupt\n", "import Send, interrupt\n")
NODES = pytest.mark.parametrize("source", [PAIR, APART], ids=["one tool node", "a task for each call"])
OWN = "kept 3: False; 2: True; 6: 4"


@NODES
async def test_each_of_several_calls_of_a_graph_gets_its_own_decision(loaded: Loaded, source: str) -> None:
    skip_without("langgraph")
    rolls = [
        {"turn": 1, "tool": "roll_die", "decision": "approve"},
        {"turn": 1, "tool": "roll_die", "decision": "answer", "answer": 4},
    ]
    case = case_of(*rolls, {"turn": 1, "tool": "keep", "decision": "deny"})

    [turn] = (await play_trial(loaded(source), spec_of(case))).transcript.turns

    assert (turn.error, turn.stop_reason, turn.answer) == (None, "answered", OWN)
    asked = [(each.waiting.tool, each.waiting.args["sides"]) for each in turn.events if each.decision and each.waiting]
    assert asked == [("keep", 3), ("roll_die", 2), ("roll_die", 6)]


@NODES
@PLACES
async def test_approvals_work_in_a_chat(loaded: Loaded, source: str, is_same: bool) -> None:
    skip_without("langgraph")
    wanted = {3: Decision("deny"), 2: Decision("approve"), 6: Decision("answer", answer=4)}
    agent, session = loaded(source), Session("s")
    turn = await play_turn(agent, session, "Roll a d6", attempt=Attempt())

    while turn.open_requests:
        stored = from_json(to_json(replace(turn, paused=session.paused)), TurnRecord)
        session = Session("s", state=dict(stored.state_after), memory=session.memory if is_same else {})
        session.paused = stored.paused
        agent = agent if is_same else loaded(source)
        decisions = [(each, wanted[int(str(each.args["sides"]))]) for each in stored.open_requests]
        turn = await play_turn(agent, session, "Roll a d6", attempt=Attempt(), open_record=stored, decided=decisions)

    assert (turn.error, turn.stop_reason, turn.answer) == (None, "answered", OWN)


async def test_a_graph_without_a_checkpointer_cannot_resume(loaded: Loaded) -> None:
    skip_without("langgraph")
    source = GRAPH.replace(", checkpointer=InMemorySaver()", "")

    result = await play_trial(loaded(source), spec_of(case_of({"decision": "approve"})))

    assert result.status == "errored"
    assert result.error
    assert "compile it with one, such as InMemorySaver()" in result.error.message


@of_tools("adk")
async def test_a_server_of_adk_gets_the_confirmation_of_its_request() -> None:
    answer = {"author": "shop", "content": {"parts": [{"text": "refunded"}]}}
    result = {"author": "shop", "content": {"parts": [{"functionResponse": {"id": "c1", "name": "refund"}}]}}
    case = Case("c", (Turn("refund 7"),), extra={"human_decisions": [{"tool": "refund", "decision": "approve"}]})
    with answering() as (address, server):
        server.gives({"id": "s-77", "appName": "shop"})
        server.gives(*SERVED, kind="text/event-stream")
        server.gives(result, answer, kind="text/event-stream")
        agent = load_agent(agent_ref(f"adk:{address}/shop"))

        trial = await play_trial(agent, TrialSpec(1, 0, 0, case, AgentRef("shop", "")))

    [turn] = trial.transcript.turns
    assert (turn.error, turn.stop_reason, turn.answer) == (None, "answered", "refunded")
    assert [each.call and each.call.args for each in turn.events if each.kind == "tool_result"] == [{"order": 7}]
    asked = server.asked[-1][1]
    confirmed = {"id": "adk-2", "name": "adk_request_confirmation", "response": {"confirmed": True}}
    assert (asked["sessionId"], asked["newMessage"]["parts"]) == ("s-77", [{"functionResponse": confirmed}])


PYTHON = """
def root_agent(message, state, decisions):
    if not decisions:
        yield {"kind": "tool_call", "name": "refund", "args": {"order": 7}, "id": "c1"}
        yield {"kind": "waiting", "name": "refund", "args": {"order": 7}, "id": "c1", "question": "Sure?"}
        return
    [decision] = decisions
    if decision["decision"] == "approve":
        state["refunded"] = decision["args"]["order"]
    yield {"kind": "tool_result", "name": "refund", "id": "c1", "result": decision["decision"]}
    yield f"{decision['name']}: {decision['decision']} {decision['answer']} {decision['reason']}"
"""
CLASS = """
class root_agent:
    def reply(self, message):
        self.asked = message
        return {"kind": "waiting", "name": "refund", "args": {"order": 7}, "choices": ["approve", "deny"]}
    def resume(self, message, decisions):
        return f"{self.asked}: {decisions[0]['decision']}"
"""


async def test_a_function_that_takes_decisions_is_called_again_with_them(loaded: Loaded) -> None:
    turn = await decided(loaded, PYTHON, Decision("deny", reason="No."), is_same=False)

    assert (turn.error, turn.stop_reason, turn.answer) == (None, "answered", "refund: deny None No.")
    assert [waiting.question for event in turn.events if (waiting := event.waiting)] == ["Sure?", "Sure?"]


async def test_an_object_with_a_resume_method_is_resumed(loaded: Loaded) -> None:
    turn = await decided(loaded, CLASS, Decision("approve"))

    assert (turn.error, turn.answer) == (None, "Roll a d6: approve")


async def test_an_agent_without_resume_gets_a_hint(loaded: Loaded) -> None:
    source = CLASS.partition("    def resume")[0]

    result = await play_trial(loaded(source), spec_of(case_of({"decision": "approve"})))

    assert result.status == "errored"
    assert result.error
    assert "give it a method `resume(message, decisions)`" in result.error.message


async def test_an_agent_cannot_send_a_decision_event(loaded: Loaded, played: Any) -> None:
    source = """
from evaldesk import Event
from evaldesk.model import Decision, Waiting
def root_agent(message):
    yield Event("decision", waiting=Waiting("c1", "refund"), decision=Decision("approve"))
    yield "done"
"""
    turn = await played(loaded(source), Session("s"), "hi")

    assert turn.error
    assert "kind" in turn.error.message
    assert not [event for event in turn.events if event.decision]


FOREVER = """
def root_agent(message, decisions):
    return {"kind": "waiting", "name": "refund", "id": str(len(message))}
"""


async def test_an_agent_that_always_waits_ends_awaiting_approval(loaded: Loaded) -> None:
    result = await play_trial(loaded(FOREVER), spec_of(case_of({"decision": "approve"})))

    [turn] = result.transcript.turns
    assert (turn.stop_reason, turn.error) == ("awaiting_approval", None)
    assert sum(event.kind == "decision" for event in turn.events) == 100


WRONG = [
    ({}, "must be a list of decisions, got dict"),
    (["approve"], "human_decisions[0] must be an object, got str"),
    ([{"decision": "maybe"}], "human_decisions[0].decision must be approve, deny or answer, got 'maybe'"),
    ([{"decision": "answer"}], "human_decisions[0]: an answer has the key answer"),
    ([{"decision": "approve", "answer": 1}], "human_decisions[0]: an answer has the key answer"),
    ([{"decision": "approve", "reason": "x"}], "human_decisions[0]: only a denial has a reason"),
    ([{"decision": "approve", "turn": 0}], "human_decisions[0].turn must be the number of a turn, from 1, got 0"),
    ([{"decision": "approve", "tool": 3}], "human_decisions[0].tool must be text, got int"),
    ([{"decision": "approve", "call": "x"}], "human_decisions[0] has no key 'call'"),
]


@pytest.mark.parametrize(("raw", "sentence"), WRONG)
async def test_unreadable_decisions_are_an_error_of_the_trial(loaded: Loaded, raw: Any, sentence: str) -> None:
    case = replace(case_of(), extra={"human_decisions": raw})

    result = await play_trial(loaded(PYTHON), spec_of(case))

    assert (result.status, result.error and result.error.kind) == ("errored", "bad_case")
    assert result.error
    assert sentence in result.error.message
