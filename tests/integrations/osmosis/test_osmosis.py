"""Agents written for Osmosis, unchanged, without its package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.agents.installed import has_package
from tests.agents.osmosis_example import NEWER, OLDER, SERVER, forget_package, row, spec_at

from evaldesk.agents import Agent
from evaldesk.engine import play_trial
from evaldesk.errors import AgentError, ModelError
from evaldesk.model import ModelOptions, Session, TrialSpec
from evaldesk.model.transcript import reported_values

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(has_package("osmosis_ai"), reason="osmosis-ai itself is installed: nothing stands in for it"),
]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    forget_package()


@pytest.fixture
def spec(endpoint: Any) -> Callable[..., TrialSpec]:
    return partial(spec_at, endpoint.address)


@pytest.mark.parametrize("attribute", ["agent_loop", "app"])
async def test_a_loop_runs_with_its_tools_and_its_own_reward(
    endpoint: Any, loaded: Any, spec: Callable[..., TrialSpec], attribute: str
) -> None:
    agent = loaded(SERVER, attribute)
    endpoint.says("", ("c1", "add", '{"a": 25, "b": 17}')).says("#### 42")

    result = await play_trial(agent, spec(row("What is 25 + 17?", "42", system_prompt="Use the tools.")))

    assert result.status == "finished", result.error
    [turn] = result.transcript.turns
    kinds = [event.kind for event in turn.events]
    assert kinds == ["user_message", "usage", "tool_call", "tool_result", "usage", "agent_message", "log"]
    assert [(call.name, call.args) for call in turn.tool_calls] == [("add", {"a": 25, "b": 17})]
    assert turn.events[3].result == "42"
    assert turn.answer == "#### 42"
    assert reported_values(result.transcript) == {"reward": 1.0}
    assert (result.usages[0].tokens_in, result.usages[0].tokens_out) == (11, 5)


async def test_the_request_to_the_endpoint_equals_that_of_osmosis(
    endpoint: Any, loaded: Any, spec: Callable[..., TrialSpec]
) -> None:
    agent = loaded(SERVER, "agent_loop")
    endpoint.says("", ("c1", "add", '{"a": 1, "b": 2}')).says("#### 3")

    await play_trial(agent, spec(row("1 + 2?", "3", system_prompt="Add."), temperature=0.5, max_tokens=64))

    first, second = endpoint.asked
    assert first["messages"] == [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 2?"}]
    assert (first["temperature"], first["max_tokens"], first["model"]) == (0.5, 64, "small")
    assert first["tools"][0]["function"]["name"] == "add"
    called, given = second["messages"][2:]
    assert "content" not in called
    assert given == {"role": "tool", "content": "3", "tool_call_id": "c1"}


async def test_the_request_has_the_row_and_run_index(
    endpoint: Any, loaded: Any, spec: Callable[..., TrialSpec]
) -> None:
    agent = loaded(SERVER, "agent_loop")
    endpoint.says("#### 3")

    await play_trial(agent, spec(row("1 + 2?", "3", system_prompt="Add.", level="easy"), max_turns=4))

    request = sys.modules[type(agent.loop).__module__].SEEN[-1]
    assert request.rollout_id == "eval-3-run-2"
    assert (request.max_turns, request.max_tokens_total) == (4, 4096)
    expected = {"ground_truth": "3", "row_index": 3, "level": "easy", "execution_mode": "eval", "run_index": 2}
    assert request.metadata == expected


@pytest.mark.parametrize("source", [(SERVER, "agent_loop"), (NEWER, "app")], ids=["loop", "workflow"])
async def test_a_row_with_metadata_alone_has_no_message(
    endpoint: Any, loaded: Any, spec: Callable[..., TrialSpec], source: tuple[str, str]
) -> None:
    """No value is an empty list, not an empty message; the system prompt of a row stands alone."""
    agent = loaded(*source)
    endpoint.says("#### 3").says("#### 3")

    await play_trial(agent, spec(row("", "3", metadata={"task": 1})))
    await play_trial(agent, spec(row("", "3", metadata={"task": 1}, system_prompt="Add.")))

    assert [each["messages"] for each in endpoint.asked] == [[], [{"role": "system", "content": "Add."}]]


async def test_max_turns_is_a_stop_reason_of_its_own(
    endpoint: Any, loaded: Any, spec: Callable[..., TrialSpec]
) -> None:
    agent = loaded(SERVER, "agent_loop")
    endpoint.says("I think #### 42", ("c1", "add", '{"a": 25, "b": 17}'))

    result = await play_trial(agent, spec(row("25 + 17?", "42"), max_turns=1))

    assert (result.status, result.stop_reason, result.error) == ("finished", "max_turns", None)
    assert result.transcript.turns[0].answer == ""


async def test_a_later_turn_sees_the_earlier_ones(endpoint: Any, loaded: Any, play: Any) -> None:
    agent = loaded(SERVER, "agent_loop")
    session = Session("s", model="small", model_options=ModelOptions(endpoint.address))
    endpoint.says("", ("c1", "add", '{"a": 1, "b": 2}')).says("#### 3").says("You are welcome")

    await play(agent, session, "1 + 2?")
    events = await play(agent, session, "thanks")

    roles = [message["role"] for message in endpoint.asked[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert [event.text for event in events if event.kind == "agent_message"] == ["You are welcome"]


async def test_the_rows_of_a_data_set_all_run(endpoint: Any, loaded: Any, spec: Callable[..., TrialSpec]) -> None:
    agent = loaded(SERVER, "agent_loop")
    rows = [{"system_prompt": "Add.", "user_prompt": f"What is {n} + 1?", "ground_truth": str(n + 1)} for n in range(3)]
    for line in rows:
        endpoint.says(f"#### {line['ground_truth']}")

    results = [await play_trial(agent, spec(row(line["user_prompt"], line["ground_truth"], **line))) for line in rows]

    assert [reported_values(result.transcript) for result in results] == [{"reward": 1.0}] * 3
    assert endpoint.asked[0]["messages"][0] == {"role": "system", "content": rows[0]["system_prompt"]}


def test_a_loop_describes_its_tools(loaded: Any) -> None:
    described = loaded(SERVER, "Calculator").describe()

    assert (described.name, described.kind, described.description) == ("calculator", "osmosis", "Adds numbers.")
    assert described.model == ""
    assert [tool.name for tool in described.tools] == ["add"]


async def test_without_a_model_the_error_suggests_the_option(loaded: Any, play: Any) -> None:
    with pytest.raises(ModelError, match="--model"):
        await play(loaded(SERVER, "agent_loop"), Session("s"), "1 + 2?")


def test_a_class_that_needs_arguments_is_refused_by_name(loaded: Any) -> None:
    source = SERVER + "\nclass Needy(Calculator):\n    def __init__(self, key):\n        self.key = key\n"

    with pytest.raises(AgentError, match="Cannot instantiate 'Needy'"):
        loaded(source, "Needy")


def test_a_missing_name_in_the_stand_in_suggests_the_package(loaded: Any) -> None:
    with pytest.raises(AgentError, match="pip install osmosis-ai"):
        loaded("import osmosis_ai\nagent = osmosis_ai.evaluate_rubric\n", "agent")
    with pytest.raises(AgentError, match=r"has no osmosis_ai.rollout.integrations.agents.strands; pip install"):
        loaded("import osmosis_ai.rollout.integrations.agents.strands\n")


async def test_an_error_of_the_loop_is_an_error_event(endpoint: Any, loaded: Any, play: Any) -> None:
    broken = (
        "\nclass Broken(Calculator):\n    async def run(self, ctx):\n        return ctx.error('the server is gone')\n"
    )
    session = Session("s", model="small", model_options=ModelOptions(endpoint.address))

    [event] = await play(loaded(SERVER + broken, "Broken"), session, "1 + 2?")

    assert (event.error.kind, event.error.message) == ("rollout_error", "the server is gone")


async def test_a_workflow_asks_the_runs_model_over_http_and_is_graded(
    endpoint: Any, loaded: Any, spec: Callable[..., TrialSpec]
) -> None:
    agent: Agent = loaded(NEWER, "app")
    endpoint.says("42")

    result = await play_trial(agent, spec(row("6 * 7?", "42", system_prompt="Multiply.")))

    assert result.status == "finished", result.error
    [turn] = result.transcript.turns
    assert turn.answer == "42"
    assert reported_values(result.transcript) == {"factor": 2.0, "reward": 1.0}
    assert [usage.tokens_in for usage in result.usages] == [11]
    assert endpoint.asked[0]["model"] == "small"


ARTIFACTS = """
import os
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.grader import Grader

class Writes(AgentWorkflow):
    async def run(self, ctx):
        (ctx.artifacts_dir / "notes").mkdir()
        (ctx.artifacts_dir / "notes" / "plan.txt").write_text("first add")
        (ctx.artifacts_dir / "raw.bin").write_bytes(bytes([255, 254]))
        (ctx.artifacts_dir / "link.txt").symlink_to("/etc/hostname")
        return [{"role": "assistant", "content": str(ctx.artifacts_dir)}]

class Reads(Grader):
    async def grade(self, ctx):
        ctx.set_reward(1.0 if (ctx.artifacts_dir / "notes" / "plan.txt").read_text() == "first add" else 0.0)
"""


async def test_a_grader_reads_the_artifacts_of_its_workflow_and_the_trial_keeps_them(
    loaded: Any, spec: Callable[..., TrialSpec]
) -> None:
    agent: Agent = loaded(ARTIFACTS, "Writes")

    result = await play_trial(agent, spec(row("hello", "x")))

    assert result.status == "finished", result.error
    assert reported_values(result.transcript) == {"reward": 1.0}
    turn = result.transcript.turns[0]
    assert [event.text for event in turn.events if event.author == "artifacts"] == [
        "notes/plan.txt:\nfirst add",
        "raw.bin:\n2 bytes that are not text",
    ]
    assert not Path(turn.answer).exists()


async def test_a_workflow_of_several_samples_is_rewarded_by_their_mean(
    loaded: Any, spec: Callable[..., TrialSpec]
) -> None:
    agent: Agent = loaded(OLDER, "Echo")

    result = await play_trial(agent, spec(row("hello", "x")))

    assert result.status == "finished", result.error
    assert reported_values(result.transcript) == {"reward": 0.75}
    assert result.transcript.turns[0].intermediate[0][1] == "first hello"


def test_two_graders_in_one_module_are_refused(loaded: Any) -> None:
    with pytest.raises(AgentError, match=r"Multiple Graders found in .*Judge, Other"):
        loaded(OLDER + "\nclass Other(Judge):\n    pass\n", "Echo")


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("(solution_str: str, ground_truth: str)", "at least 3 parameters, got 2"),
        ("(solution_str, ground_truth: str, extra_info: dict = None)", "'solution_str' must be annotated as str"),
        ("(solution_str: str, truth: str, extra_info: dict = None)", "named 'ground_truth', got 'truth'"),
        ("(solution_str: str, ground_truth: str, extra_info: list = None)", "annotated as dict"),
        ("(solution_str: str, ground_truth: str, extra_info: dict)", "must have a default"),
    ],
)
def test_a_reward_with_the_wrong_parameters_is_refused(loaded: Any, signature: str, said: str) -> None:
    source = f"from osmosis_ai import osmosis_reward\n@osmosis_reward\ndef agent{signature}:\n    return 1.0\n"

    with pytest.raises(AgentError, match=said):
        loaded(source, "agent")
