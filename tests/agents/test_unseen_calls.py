"""What cannot be seen of an agent is not judged."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.agents.installed import skip_without
from tests.agents.test_wire_calls import HEAD

from evaldesk.agents import load_agent
from evaldesk.agents.framework_calls import called_agent
from evaldesk.diff.acceptance import acceptable_changes
from evaldesk.diff.conversation_diff import turn_diffs
from evaldesk.diff.divergence import first_divergence
from evaldesk.engine import play_trial
from evaldesk.metrics.scoring import score_trial
from evaldesk.model import (
    AgentRef,
    Capture,
    Case,
    Criterion,
    Event,
    Expected,
    Limits,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    TrialSpec,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.model.visibility import UNSEEN_CALLS, UNSEEN_STATE

pytestmark = pytest.mark.anyio

TEXT = "def root_agent(message):\n    return 'It comes.'\n"
PROCESS = """
import subprocess, sys

def root_agent(message):
    return subprocess.run([sys.executable, "-Sc", "print('It comes.', end='')"], capture_output=True, text=True).stdout
"""
CONNECTION = """
import asyncio

async def root_agent(message):
    address = "{address}".partition("//")[2].partition("/")[0]
    host, _, port = address.partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()
    return "It comes."
"""
AGAIN = """
import subprocess, sys

ANSWERS = "import sys; sys.stdin.readline(); print('It comes.', end='')"
processes = []

def root_agent(message):
    if not processes:
        processes.append(subprocess.Popen([sys.executable, "-Sc", ANSWERS], stdin=-1, stdout=-1))
        return "It comes."
    return processes.pop().communicate(b"hi\\n")[0].decode()
"""
IN_PROCESS = """
import types

llama_cpp = types.ModuleType("llama_cpp")

def root_agent(message):
    return "It comes."
"""
DECLARED = PROCESS + "\nroot_agent.tells_calls = True\n"
TEXTS = PROCESS.replace("return", "yield")
GENERATOR = TEXTS.replace("import subprocess", "from evaldesk import Event\nimport subprocess") + (
    "    yield Event('log', text='asked')\n"
)
EVENT = """
import subprocess, sys
from evaldesk import Event

def root_agent(message):
    subprocess.run([sys.executable, "-Sc", ""])
    return Event("agent_message", text="It comes.")
"""
NO_TOOLS = HEAD + "\ndef root_agent(message):\n    return ask([{'role': 'user', 'content': message}]).content\n"
TOOLS = (
    HEAD
    + """
TOOL = {"type": "function", "function": {"name": "get_order", "parameters": {"type": "object", "properties": {}}}}

def root_agent(message):
    return ask([{"role": "user", "content": message}], tools=[TOOL]).content
"""
)
SHOWN = {
    "a text without any call": TEXT,
    "declared": DECLARED,
    "a generator": GENERATOR,
    "an event": EVENT,
    "tools that the model could call": TOOLS,
}
HIDDEN = {
    "a process": PROCESS,
    "a generator of texts": TEXTS,
    "a connection": CONNECTION,
    "a model in its own process": IN_PROCESS,
    "a model without tools": NO_TOOLS,
}
EXPECTED = Expected(tool_calls=(ToolCall("get_order", {}),))
CASES = {"a call": Case("c", (Turn("hi", EXPECTED),)), "no call": Case("c", (Turn("hi", Expected(tool_calls=())),))}
CRITERIA = (
    Criterion("tool_trajectory_avg_score", 1.0),
    Criterion("tool_in_order", 1.0),
    Criterion("tool_used", 1.0, {"tool": "get_order", "at_least": 0, "at_most": 0}),
    Criterion("tool_call_count_v1", 0.0),
)


async def scores_of(ref: AgentRef, case: Case) -> list[Score]:
    """The scores of the trial, without those of turns."""
    result = await play_trial(load_agent(ref), TrialSpec(1, 0, 0, case, ref, limits=Limits(60)))
    assert (result.error, [turn.answer for turn in result.transcript.turns]) == (None, ["It comes."])
    return [score for score in score_trial(result.transcript, case, CRITERIA) if score.turn is None]


async def scores_of_source(source: str, case: Case, endpoint: Endpoint, folder: Path) -> list[Score]:
    if "openai" in source:
        skip_without("openai")
    endpoint.says("It comes.")
    (folder / "agent.py").write_text(source.replace("{address}", endpoint.address))
    return await scores_of(AgentRef("a", "agent:root_agent", str(folder)), case)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("source", HIDDEN.values(), ids=HIDDEN)
async def test_metrics_of_calls_are_unscored_where_calls_cannot_be_seen(
    source: str, case: Case, endpoint: Endpoint, tmp_path: Path
) -> None:
    scores = await scores_of_source(source, case, endpoint, tmp_path)

    assert [(score.value, score.passed, score.is_applicable) for score in scores] == [(None, None, True)] * len(
        CRITERIA
    )
    assert {score.reason for score in scores} == {UNSEEN_CALLS}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("source", SHOWN.values(), ids=SHOWN)
async def test_metrics_of_calls_are_judged_where_a_call_would_be_seen(
    source: str, case: Case, endpoint: Endpoint, tmp_path: Path
) -> None:
    scores = await scores_of_source(source, case, endpoint, tmp_path)

    is_right = case is CASES["no call"]
    assert [score.passed for score in scores] == [is_right, is_right, True, True]


async def test_a_process_of_an_earlier_trial_may_be_used_again(tmp_path: Path, own_imports: None) -> None:
    (tmp_path / "agent.py").write_text(AGAIN)
    ref, case = AgentRef("a", "agent:root_agent", str(tmp_path)), CASES["no call"]
    agent = load_agent(ref)

    results = [await play_trial(agent, TrialSpec(1, 0, at, case, ref, limits=Limits(60))) for at in range(2)]

    assert [result.transcript.turns[0].answer for result in results] == ["It comes."] * 2
    scores = [score for result in results for score in score_trial(result.transcript, case, (FORBIDDEN,))]
    assert {(score.passed, score.reason) for score in scores} == {(None, UNSEEN_CALLS)}


@pytest.mark.parametrize(("tells_calls", "passed"), [(False, None), (True, True)])
async def test_an_agent_of_a_framework_is_judged_by_requests_or_by_its_events(
    tells_calls: bool, passed: bool | None
) -> None:
    ref = AgentRef("a", "agent:root_agent")
    agent = called_agent(ref, "agno", lambda message, session: "It comes.", tells_calls=tells_calls)

    result = await play_trial(agent, TrialSpec(1, 0, 0, CASES["no call"], ref, limits=Limits(60)))

    [score] = score_trial(result.transcript, CASES["no call"], (FORBIDDEN,))
    assert score.passed is passed


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_metrics_of_calls_are_unscored_for_a_chat_endpoint(case: Case, endpoint: Endpoint) -> None:
    endpoint.says("It comes.")

    scores = await scores_of(AgentRef("c", endpoint.address, kind="http_chat"), case)

    assert {(score.passed, score.reason) for score in scores} == {(None, UNSEEN_CALLS)}


PROTOCOL = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["message"] == "order":
        print(json.dumps({"kind": "tool_call", "name": "get_order", "args": {}, "id": "c1"}))
        print(json.dumps({"kind": "tool_result", "name": "get_order", "id": "c1", "result": 1}))
    if asked["message"] == "state":
        print(json.dumps({"kind": "state", "state": asked["session"]["state"]}))
    print(json.dumps({"kind": "message", "text": "It comes."}))
    print(json.dumps({"kind": "done"}), flush=True)
"""
FORBIDDEN = Criterion("tool_used", 1.0, {"tool": "refund", "at_least": 0, "at_most": 0})


async def trial_of_command(folder: Path, messages: Sequence[str], **table: object) -> TrialResult:
    """A trial of a command by the protocol that tells a call where the message asks for one."""
    (folder / "says.py").write_text(PROTOCOL)
    target = f"{sys.executable} -S {folder / 'says.py'}"
    ref = AgentRef("c", target, str(folder), kind="command", declared=json.dumps(table))
    case = Case("c", tuple(Turn(message) for message in messages), final_state={"order": "A7"})
    return await play_trial(load_agent(ref), TrialSpec(1, 0, 0, case, ref, limits=Limits(60)))


@pytest.mark.parametrize(
    ("messages", "table", "passed"),
    [
        (["hi"], {}, None),
        (["hi"], {"tells_calls": True}, True),
        (["order"], {}, True),
        (["hi", "order"], {}, True),
        (["order", "hi"], {}, True),
        (["hi", "hi"], {"model_gateway": True}, None),
    ],
    ids=["a message", "a promise", "a call", "a call later", "a call before", "a gateway that was not asked"],
)
async def test_calls_of_a_command_are_judged_once_it_tells_one(
    messages: list[str], table: dict[str, object], passed: bool | None, tmp_path: Path
) -> None:
    result = await trial_of_command(tmp_path, messages, **table)

    assert result.error is None
    case = Case("c", tuple(Turn(message) for message in messages))
    assert [score.passed for score in score_trial(result.transcript, case, (FORBIDDEN,))] == [passed]


@pytest.mark.parametrize(("messages", "passed"), [(["hi"], None), (["hi", "state"], False)])
async def test_the_final_state_of_a_command_is_judged_once_it_tells_one(
    messages: list[str], passed: bool | None, tmp_path: Path
) -> None:
    result = await trial_of_command(tmp_path, messages)

    case = Case("c", tuple(Turn(message) for message in messages), final_state={"order": "A7"})
    scores = score_trial(result.transcript, case, (Criterion("final_state_match", 1.0),))
    assert [score.passed for score in scores if score.turn is None] == [passed]


def test_a_trial_with_an_unseen_turn_is_neither_judged_nor_compared() -> None:
    seen, unseen = turn_of("call", "result"), turn_of(captures=("answers",))
    turn = Turn("hi", Expected(tool_calls=(ToolCall("get_order", {}),)))
    transcript, case = Transcript((seen, unseen)), Case("c", (turn, turn))

    scores = score_trial(transcript, case, CRITERIA)

    assert {(score.value, score.reason) for score in scores} == {(None, f"In some turns only: {UNSEEN_CALLS}")}
    assert first_divergence(case, transcript, scores) is None
    assert acceptable_changes(case, transcript, scores) == ()
    assert [diff.summary for diff in turn_diffs(case, transcript, scores)] == ["1 call", "calls not seen"]


def test_a_state_that_cannot_be_seen_is_not_compared() -> None:
    transcript = Transcript((turn_of("call", "result", unseen=("state",)),))
    case = Case("c", (Turn("hi"),), final_state={"order": "A7"})

    assert first_divergence(case, transcript) is None
    assert acceptable_changes(case, transcript) == ()


STATELESS = "def root_agent(message):\n    return 'It comes.'\n"
STATE_READER = "def root_agent(message, state):\n    return 'It comes.'\n"
STATE_TELLER = """
def root_agent(message):
    yield {"kind": "state", "state": {"order": "A7"}}
    yield "It comes."
"""
STATE_CASE = Case("c", (Turn("hi"),), final_state={"order": "A7"})
STATE_CRITERIA = (
    Criterion("final_state_match", 1.0),
    Criterion("state_path", 1.0, {"path": "$.order", "want": "absent"}),
)


async def state_scores(ref: AgentRef) -> list[Score]:
    result = await play_trial(load_agent(ref), TrialSpec(1, 0, 0, STATE_CASE, ref, limits=Limits(60)))
    assert result.error is None
    return [score for score in score_trial(result.transcript, STATE_CASE, STATE_CRITERIA) if score.turn is None]


@pytest.mark.parametrize(
    ("source", "passed"),
    [(STATELESS, [None, None]), (STATE_READER, [False, True]), (STATE_TELLER, [True, False])],
    ids=["a function without state", "a function that takes it", "a function that tells it"],
)
async def test_the_final_state_is_judged_where_the_agent_can_change_it(
    source: str, passed: list[bool | None], tmp_path: Path, own_imports: None
) -> None:
    (tmp_path / "agent.py").write_text(source)

    scores = await state_scores(AgentRef("a", "agent:root_agent", str(tmp_path)))

    assert [score.passed for score in scores] == passed
    assert [score.reason for score in scores if score.passed is None] == [UNSEEN_STATE] * passed.count(None)


async def test_the_final_state_of_a_chat_endpoint_is_unscored(endpoint: Endpoint) -> None:
    endpoint.says("It comes.")

    scores = await state_scores(AgentRef("c", endpoint.address, kind="http_chat"))

    assert {(score.passed, score.reason) for score in scores} == {(None, UNSEEN_STATE)}


def test_a_cost_of_which_a_part_is_unknown_passes_no_limit() -> None:
    usages = (Usage("small", tokens_in=10, cost=0.01), Usage("small", tokens_in=10, cost=0.01, is_least=True))
    turn = TurnRecord("hi", tuple(Event("usage", usage=usage) for usage in usages))

    scores = score_trial(Transcript((turn,)), Case("c", (Turn("hi"),)), (Criterion("cost", 1.0),))

    assert {score.passed for score in scores} == {None}


def turn_of(*kinds: str, captures: tuple[Capture, ...] = ("told",), **fields: Any) -> TurnRecord:
    call = ToolCall("get_order", {}, "c1")
    made = {
        "call": Event("tool_call", call=call),
        "result": Event("tool_result", call=call, result=1),
        "usage": Event("usage", usage=Usage("small", tokens_in=1)),
        "least": Event("usage", usage=Usage("small", is_least=True)),
    }
    return TurnRecord("hi", tuple(made[kind] for kind in kinds), captures=captures, **fields)


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        (
            [turn_of("call", "result", "usage", captures=("adapter",))],
            "tool calls, results, tokens and state seen; inner calls seen in part",
        ),
        (
            [turn_of("call", "result", captures=("adapter", "spans"))],
            "tool calls, results, inner calls, tokens and state seen",
        ),
        ([turn_of("call", "usage")], "tool calls, tokens and state seen; results and inner calls seen in part"),
        (
            [turn_of("usage", captures=("answers",), unseen=("state",))],
            "tokens seen; tool calls, results, inner calls and state not seen",
        ),
        (
            [turn_of("usage", "least"), turn_of(captures=("answers",))],
            "state seen; tool calls, results, inner calls and tokens seen in part",
        ),
        ([turn_of()], "tool calls, results and state seen; inner calls and tokens seen in part"),
        ([turn_of(captures=())], "tool calls, results, tokens and state seen; inner calls seen in part"),
    ],
    ids=["an adapter", "spans", "a call without a result", "a chat", "two turns", "nothing told", "a file"],
)
def test_a_trial_knows_what_can_be_seen_of_its_agent(turns: list[TurnRecord], words: str) -> None:
    assert Transcript(tuple(turns)).visibility.words == words
