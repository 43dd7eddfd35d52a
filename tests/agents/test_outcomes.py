"""Guardrails that trip, refusals and limits of usage are outcomes of a turn, with a name, and no errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agents.installed import skip_without
from tests.agents.openai_agents_source import SCRIPT
from tests.agents.pydantic_ai_source import SCRIPT as PYDANTIC_AI

from evaldesk import evaluate
from evaldesk.model import Case, EvalSet, Expected, Session, Turn, default_criteria

pytestmark = pytest.mark.anyio

GUARDED = (
    SCRIPT
    + """
from agents import (
    GuardrailFunctionOutput, Runner, RunConfig, ToolGuardrailFunctionOutput, input_guardrail, output_guardrail,
    tool_input_guardrail, tool_output_guardrail,
)
from agents.exceptions import ModelRefusalError

@input_guardrail(name="off topic")
async def topic(context, agent, message):
    text = message if isinstance(message, str) else message[-1]["content"]
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="weather" in str(text))

@output_guardrail
async def no_prices(context, agent, output):
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="euros" in str(output))

@tool_input_guardrail
async def no_refunds(data):
    return ToolGuardrailFunctionOutput.raise_exception()

@tool_output_guardrail(name="no secrets")
async def secrets(data):
    return ToolGuardrailFunctionOutput.raise_exception()

@function_tool(tool_input_guardrails=[no_refunds])
def refund(order_id: str) -> str:
    return "done"

@function_tool(tool_output_guardrails=[secrets])
def lookup(order_id: str) -> str:
    return "key"

def answer(word, items):
    if word in ("refund", "lookup"):
        return called(word, {"order_id": "A17"})
    if word == "refuse":
        raise ModelRefusalError("I cannot help with that.")
    return said("It costs 3 euros." if word == "price" else f"You said {word}.")

sdk_agent = Agent(
    name="desk", model=Scripted(answer), input_guardrails=[topic], output_guardrails=[no_prices], tools=[refund, lookup]
)
"""
)
DIRECT = GUARDED + "root_agent = sdk_agent\n"
IN_A_FUNCTION = (
    GUARDED
    + """
async def root_agent(message):
    try:
        result = await Runner.run(sdk_agent, message, run_config=RunConfig(tracing_disabled=True))
    except ModelRefusalError as error:
        raise RuntimeError("no answer") from error
    return result.final_output
"""
)
TRIPS = {
    "weather": ("refused_by_guardrail", "off topic"),
    "price": ("refused_by_guardrail", "no_prices"),
    "refund": ("refused_by_guardrail", "no_refunds"),
    "lookup": ("refused_by_guardrail", "no secrets"),
    "refuse": ("refused_by_model", ""),
    "hello": ("answered", ""),
}


@pytest.mark.parametrize("source", [DIRECT, IN_A_FUNCTION], ids=["an agent", "a function around it"])
@pytest.mark.parametrize(("message", "wanted"), TRIPS.items(), ids=TRIPS)
async def test_a_guardrail_that_trips_is_an_outcome_with_its_name(
    loaded: Any, played: Any, source: str, message: str, wanted: tuple[str, str]
) -> None:
    skip_without("agents.exceptions")
    session = Session("s")

    record = await played(loaded(source), session, message)

    assert (record.stop_reason, record.guardrail) == wanted
    assert record.error is None
    assert bool(record.answer) == (message == "hello")
    assert bool(record.usages) == (
        source == DIRECT and message not in ("weather", "refuse")
    )  # a scripted model has no wire


async def test_the_conversation_goes_on_after_a_refusal(loaded: Any, played: Any) -> None:
    skip_without("agents.exceptions")
    agent, session = loaded(DIRECT), Session("s")

    turns = [await played(agent, session, message) for message in ("weather", "hello")]

    assert [turn.stop_reason for turn in turns] == ["refused_by_guardrail", "answered"]
    assert turns[1].answer == "You said hello."


LIMITED = (
    PYDANTIC_AI
    + """
from pydantic_ai.exceptions import ContentFilterError
from pydantic_ai.usage import UsageLimits

def answer(word, messages):
    if word == "filter":
        raise ContentFilterError("Content filter triggered")
    return called("look", {})

desk = Agent(scripted(answer))

@desk.tool_plain
def look() -> str:
    return "nothing"

async def root_agent(message):
    return (await desk.run(message, usage_limits=UsageLimits(total_tokens_limit=20))).output
"""
)


@pytest.mark.parametrize(("message", "wanted"), [("go", "usage_limit"), ("filter", "content_filter")])
async def test_a_limit_of_usage_and_a_content_filter_are_outcomes(
    loaded: Any, played: Any, message: str, wanted: str
) -> None:
    skip_without("pydantic_ai")

    record = await played(loaded(LIMITED), Session("s"), message)

    assert (record.stop_reason, record.error) == (wanted, None)


async def test_another_exception_is_an_error(loaded: Any, played: Any) -> None:
    source = "class GuardrailError(Exception): ...\ndef root_agent(message):\n    raise GuardrailError('tripped')\n"

    record = await played(loaded(source), Session("s"), "hi")

    assert (record.stop_reason, record.error.message) == ("error", "GuardrailError: tripped")


TRIPPED = """
class InputGuardrailTripwireTriggered(Exception):
    def __init__(self, name):
        self.guardrail = type("Guardrail", (), {"get_name": lambda self: name})()

def root_agent(message):
    if message == "weather":
        raise InputGuardrailTripwireTriggered("off topic")
    return "fine"
"""
EXPECTED = {
    "the guardrail by its name": ([{"outcome": "refused_by_guardrail", "guardrail": "off topic", "turn": 1}], "passed"),
    "any guardrail": ([{"outcome": "refused_by_guardrail", "turn": 1}], "passed"),
    "another guardrail": ([{"outcome": "refused_by_guardrail", "guardrail": "prices", "turn": 1}], "failed"),
    "an answer in place of the refusal": ([{"outcome": "answered", "turn": 1}], "failed"),
    "both turns": ([{"outcome": "refused_by_guardrail", "turn": 1}, {"outcome": "answered", "turn": 2}], "passed"),
    "the last turn": ([{"outcome": "answered"}], "passed"),
    "nothing": (None, "unscored"),
}


def test_the_criterion_is_a_default_where_a_case_has_outcomes() -> None:
    other, expecting = Case("a"), Case("b", extra={"expected_outcomes": [{"outcome": "refused_by_model"}]})

    assert [[each.metric for each in default_criteria([case])][2:] for case in (other, expecting)] == [[], ["outcome"]]


@pytest.mark.parametrize(("outcomes", "verdict"), EXPECTED.values(), ids=EXPECTED)
def test_a_case_expects_an_outcome(tmp_path: Path, own_imports: None, outcomes: Any, verdict: str) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "agent.py").write_text(TRIPPED)
    extra = {} if outcomes is None else {"expected_outcomes": outcomes}
    case = Case("refuses", (Turn("weather"), Turn("hello", Expected())), extra=extra)

    result = evaluate(
        str(tmp_path / "desk"), EvalSet("s", cases=(case,)), criteria={"outcome": 1.0}, workspace=str(tmp_path)
    )

    counts = result.counts
    assert {name for name in ("passed", "failed", "errored", "unscored") if getattr(counts, name)} == {verdict}
