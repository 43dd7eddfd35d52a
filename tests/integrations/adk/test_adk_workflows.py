"""Workflows of google-adk 2: routes, joins, requests for input, tools, agents and workflows as nodes.

Each row of the table in docs/agents.md is a shape that is played here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents.adk_source import SCRIPT
from tests.agents.installed import skip_without

from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.player import play_turn
from evaldesk.model import ModelOptions, Session, TurnRecord
from evaldesk.model.agent_tree import agent_tree
from evaldesk.model.decisions import Decision

skip_without("google.adk.workflow")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what google-adk warns of is not ours to mend

DOC = Path(__file__).resolve().parents[3] / "docs" / "agents.md"
NODES = (
    SCRIPT
    + """
from google.adk.events.event import Event
from google.adk.events.request_input import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import DEFAULT_ROUTE, START, JoinNode, Workflow, node

ran = []

def text_of(node_input):
    return "".join(part.text or "" for part in node_input.parts)

def upper(node_input: str):
    ran.append("upper")
    return node_input.upper()

def kind_of(node_input: str):
    return Event(output=node_input, route="order" if "order" in node_input else "small talk")

def serve(node_input: str):
    ran.append("serve")
    return f"served: {node_input}"

def chat(node_input: str):
    ran.append("chat")
    return f"chatted: {node_input}"

def price(node_input):
    return 3

def stock(node_input):
    return 7

def both(node_input):
    return f"{node_input['price']} euros, {node_input['stock']} left"

def ask(node_input):
    yield RequestInput(interrupt_id="which", message="Which order?", response_schema=str)

def note(node_input):
    yield Event(message=f"noted {node_input}", state={"order": node_input})

def order_of(node_input):
    return {"order_id": "A17"}

def cancel(order_id: str) -> dict:
    ran.append("cancel")
    return {"cancelled": order_id}

def get_order(order_id: str) -> dict:
    return {"status": "shipped"}

def letters(node_input):
    return ["a", "b"]

@node(parallel_worker=True)
async def louder(node_input: str):
    return node_input + "!"

def joined(node_input: list):
    return " ".join(node_input)

async def dispatch(ctx, node_input):
    return await ctx.run_node(node(upper), "from inside")

def boom(node_input):
    raise ValueError("no stock")

def answer(word, request):
    if isinstance(word, dict):
        return said(f"It is {word['status']}.")
    return said("", ("get_order", {"order_id": word})) if "get_order" in request.tools_dict else said(f"{word}, bye.")

def clerk(name="clerk", **options):
    return LlmAgent(name=name, model=Scripted(answer=answer), **options)

root_agent = """
)


@dataclass(frozen=True)
class Shape:
    """A workflow, the steps that are seen of it, its answer, and how docs/agents.md says it."""

    workflow: str
    steps: list[tuple[str, str, str]]
    answer: str
    words: str


SHAPES = {
    "functions in a row": Shape(
        'Workflow(name="desk", edges=[(START, text_of, upper)])',
        [("log", "text_of", "gave my order"), ("agent_message", "desk", "MY ORDER")],
        "MY ORDER",
        "each output as a log of its node; the last one is the answer",
    ),
    "a route": Shape(
        'Workflow(name="desk", edges=[(START, text_of, kind_of, {"order": serve, DEFAULT_ROUTE: chat})])',
        [
            ("log", "text_of", "gave my order"),
            ("log", "kind_of", 'gave my order, takes the route "order"'),
            ("agent_message", "desk", "served: my order"),
        ],
        "served: my order",
        "the route with the output of its node; other branches do not run",
    ),
    "a join": Shape(
        'Workflow(name="desk", edges=[(START, (price, stock), JoinNode(name="all"), both)])',
        [
            ("log", "price", "gave 3"),
            ("log", "stock", "gave 7"),
            ("log", "all", 'gave {"price": 3, "stock": 7}'),
            ("agent_message", "desk", "3 euros, 7 left"),
        ],
        "3 euros, 7 left",
        "the outputs of all branches, then that of the join",
    ),
    "an agent as a node": Shape(
        'Workflow(name="desk", edges=[(START, text_of, clerk(tools=[get_order], mode="single_turn"))])',
        [
            ("log", "text_of", "gave my order"),
            ("tool_call", "clerk", "get_order"),
            ("tool_result", "clerk", "get_order"),
            ("agent_message", "clerk", "It is shipped."),
        ],
        "It is shipped.",
        "its calls, results, tokens and answer, below the workflow",
    ),
    "a function after an agent": Shape(
        'Workflow(name="desk", edges=[(START, clerk(), upper)])',
        [("agent_message", "clerk", "my order, bye."), ("agent_message", "desk", "MY ORDER, BYE.")],
        "MY ORDER, BYE.",
        "both messages; the last one is the answer",
    ),
    "a tool as a node": Shape(
        'Workflow(name="desk", edges=[(START, order_of, FunctionTool(cancel))])',
        [
            ("log", "order_of", 'gave {"order_id": "A17"}'),
            ("tool_call", "cancel", "cancel"),
            ("tool_result", "cancel", "cancel"),
            ("agent_message", "desk", '{"cancelled": "A17"}'),
        ],
        '{"cancelled": "A17"}',
        "call and result; doubles hold",
    ),
    "a workflow as a node": Shape(
        'Workflow(name="desk", edges=[(START, Workflow(name="inner", edges=[(START, text_of, upper)]), serve)])',
        [
            ("log", "text_of", "gave my order"),
            ("log", "upper", "gave MY ORDER"),
            ("agent_message", "desk", "served: MY ORDER"),
        ],
        "served: MY ORDER",
        "its nodes, below it",
    ),
    "a parallel worker": Shape(
        'Workflow(name="desk", edges=[(START, letters, louder, joined)])',
        [
            ("log", "letters", 'gave ["a", "b"]'),
            ("log", "louder", "gave a!"),
            ("log", "louder", "gave b!"),
            ("log", "louder", 'gave ["a!", "b!"]'),
            ("agent_message", "desk", "a! b!"),
        ],
        "a! b!",
        "the output of each item, and all together",
    ),
    "a node that a node runs": Shape(
        'Workflow(name="desk", edges=[(START, node(dispatch, rerun_on_resume=True))])',
        [("log", "upper", "gave FROM INSIDE"), ("agent_message", "desk", "FROM INSIDE")],
        "FROM INSIDE",
        "its output, below the node that runs it",
    ),
    "a message of a function": Shape(
        'Workflow(name="desk", edges=[(START, text_of, note)])',
        [("log", "text_of", "gave my order"), ("agent_message", "desk", "noted my order")],
        "noted my order",
        "the message; the state that it changes",
    ),
}
PAUSES = {
    "a request for input": "waits with its question; a case or a person answers, and the workflow goes on",
    "a tool or function that needs an approval": "waits with the call; approved it runs, denied it does not",
    "a node that fails": "the trial is errored with the exception of the node",
}


def in_order(text: str) -> str:
    """The text of an output, its keys sorted: branches of a join end in any order."""
    return f"gave {json.dumps(json.loads(text[5:]), sort_keys=True)}" if text.startswith("gave {") else text


def steps_of(record: TurnRecord) -> list[tuple[str, str, str]]:
    shown = ("log", "tool_call", "tool_result", "agent_message")
    return [
        (event.kind, event.author, event.call.name if event.call else in_order(event.text))
        for event in record.events
        if event.kind in shown and not event.text.startswith("adk_request")
    ]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
async def test_a_workflow_is_played_as_google_adk_plays_it(loaded: Any, played: Any, shape: Shape) -> None:
    session = Session("s")

    record = await played(loaded(NODES + shape.workflow), session, "my order")

    steps = steps_of(record)
    assert record.error is None
    assert sorted(steps[:-1]) == sorted(shape.steps[:-1])  # branches run side by side
    assert steps[-1] == shape.steps[-1]
    assert (record.answer, record.stop_reason) == (shape.answer, "answered")


async def test_other_branches_do_not_run(loaded: Any, played: Any) -> None:
    agent = loaded(NODES + SHAPES["a route"].workflow)

    answers = [(await played(agent, Session("s"), message)).answer for message in ("my order", "hello")]

    assert answers == ["served: my order", "chatted: hello"]


async def test_the_tree_of_a_workflow_has_its_nodes(loaded: Any, played: Any) -> None:
    source = (
        'Workflow(name="desk", edges=[(START, Workflow(name="inner", edges=[(START, text_of, upper)]), '
        'clerk(tools=[get_order], mode="single_turn"))])'
    )
    agent, session = loaded(NODES + source), Session("s")

    description = agent.describe()
    await played(agent, session, "A17")

    assert [(each.name, each.kind) for each in description.sub_agents] == [("inner", "Workflow"), ("clerk", "LlmAgent")]
    assert [each.name for each in description.sub_agents[0].sub_agents] == ["text_of", "upper"]
    tree = {each.name: (each.parent, each.n_calls, each.n_model_calls) for each in agent_tree(session.turns, "desk")}
    assert tree["clerk"] == ("desk", 1, 2)
    parents = {event.author: event.parent for event in session.turns[0].events if event.kind == "log"}
    assert parents == {"text_of": "inner", "upper": "inner"}


async def test_tools_of_a_workflow_are_described(loaded: Any) -> None:
    description = loaded(NODES + SHAPES["a tool as a node"].workflow).describe()

    assert [(tool.name, list(tool.parameters["properties"])) for tool in description.tools] == [
        ("cancel", ["order_id"])
    ]


async def decided(agent: Any, session: Session, record: TurnRecord, decision: Decision) -> TurnRecord:
    """The turn after a person decided what it waits for; played in the same session."""
    session.turns.pop()
    return await play_turn(
        agent,
        session,
        record.query,
        attempt=Attempt(),
        open_record=record,
        decided=tuple((request, decision) for request in record.open_requests),
    )


ASKING = 'Workflow(name="desk", edges=[(START, ask, note)])'


@pytest.mark.parametrize("place", ["the same process", "another process"])
async def test_a_request_for_input_waits_and_goes_on_by_its_answer(loaded: Any, played: Any, place: str) -> None:
    agent, session = loaded(NODES + ASKING), Session("s")

    waiting = await played(agent, session, "cancel it")
    [request] = waiting.open_requests
    if place == "another process":
        agent, session = loaded(NODES + ASKING), replace(session, memory={}, turns=list(session.turns))
    record = await decided(agent, session, waiting, Decision("answer", request.tool, answer="A17"))

    assert (waiting.stop_reason, request.question, request.choices) == (
        "awaiting_approval",
        "Which order?",
        ("answer",),
    )
    assert (record.stop_reason, record.answer, record.state_after) == ("answered", "noted A17", {"order": "A17"})


CONFIRMING = {
    "a tool": 'Workflow(name="desk", edges=[(START, order_of, FunctionTool(cancel, require_confirmation=True))])',
}


@pytest.mark.parametrize("source", CONFIRMING.values(), ids=CONFIRMING.keys())
@pytest.mark.parametrize("choice", ["approve", "deny"])
async def test_a_node_that_needs_an_approval_runs_only_when_it_is_approved(
    loaded: Any, played: Any, source: str, choice: Any
) -> None:
    agent, session = loaded(NODES + source), Session("s")

    waiting = await played(agent, session, "cancel it")
    [request] = waiting.open_requests
    record = await decided(agent, session, waiting, Decision(choice, request.tool))

    assert (request.tool, request.args, request.choices) == ("cancel", {"order_id": "A17"}, ("approve", "deny"))
    assert [call.name for call in record.tool_calls] == ["cancel"]
    [result] = [event for event in record.events if event.kind == "tool_result"]
    assert (result.result, result.is_error) == (
        ({"cancelled": "A17"}, False) if choice == "approve" else (result.result, True)
    )
    assert record.stop_reason == "answered"


async def test_a_node_that_fails_makes_the_turn_errored(loaded: Any, played: Any) -> None:
    record = await played(loaded(NODES + 'Workflow(name="desk", edges=[(START, boom)])'), Session("s"), "go")

    assert record.error.message == "ValueError: no stock"


async def test_agents_of_a_workflow_get_the_model_of_the_run(loaded: Any, endpoint: Any) -> None:
    source = 'Workflow(name="desk", edges=[(START, Workflow(name="inner", edges=[(START, clerk())]), upper)])'
    agent = loaded(NODES + source)
    endpoint.says("hello")
    options = ModelOptions(base_url=endpoint.address)

    record = await play_turn(
        agent, Session("s", model="hosted_vllm/big", model_options=options), "hi", attempt=Attempt()
    )

    assert (record.error, record.answer) == (None, "HELLO")
    assert {usage.model for usage in record.usages} == {"hosted_vllm/big"}


def test_the_table_of_workflows_is_that_of_these_tests() -> None:
    _, _, section = DOC.read_text("utf-8").partition("## Workflows of google-adk\n")
    rows = re.findall(r"^\| (.+) \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)

    assert rows[0] == ("a workflow with", "is seen as")
    assert rows[1:] == [*((name, shape.words) for name, shape in SHAPES.items()), *PAUSES.items()]
