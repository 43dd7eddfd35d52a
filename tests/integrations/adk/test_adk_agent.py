"""Agents of google-adk, with the real package and a scripted model: turns, sessions and their state."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.agents.adk_source import ROLLER, SCRIPT, asked, shown
from tests.agents.installed import skip_without

from evaldesk.metrics.state.state_path import StatePath
from evaldesk.model import Case, ModelOptions, Session, Transcript, Turn

skip_without("google.adk")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what google-adk warns of is not ours to mend


def _kinds(events: list[Any]) -> list[str]:
    return [event.kind for event in events if event.kind != "usage"]


async def test_a_turn_with_a_tool(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"})

    events = await play(agent, session, "Roll a d6")

    assert _kinds(events) == ["tool_call", "tool_result", "agent_message"]
    assert session.turns[0].answer == "got 6"
    assert session.state == {"player": "Ann", "rolls": [6]}
    assert [(event.usage.model, event.usage.tokens_in, event.usage.cost) for event in events if event.usage] == [
        ("scripted", 11, None),
        ("scripted", 11, None),
    ]


async def test_the_second_turn_remembers_the_first(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"})

    await play(agent, session, "Roll a d6")
    await play(agent, session, "hi")

    assert shown(agent) == ["Roll a d6", "roll_die", "roll_die", "got 6", "hi"]


async def test_a_new_worker_restores_the_conversation(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"})
    await play(agent, session, "Roll a d6")

    again = Session("s", state=dict(session.state), turns=list(session.turns))
    await play(agent, again, "hi")

    assert shown(agent) == ["Roll a d6", "roll_die", "roll_die", "got 6", "hi"]


async def test_the_next_turn_starts_from_a_state_edited_by_a_person(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"})
    await play(agent, session, "Roll a d6")

    session.state = {"player": "Bob", "rolls": []}
    await play(agent, session, "Roll a d8")

    assert session.state == {"player": "Bob", "rolls": [8]}
    assert asked(agent)[-1].config.system_instruction.startswith("Roll for Bob.")


async def test_text_is_streamed_in_a_chat_and_recorded_once(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"}, is_streaming=True)

    events = await play(agent, session, "hi")

    assert [event.text for event in events if event.is_partial] == ["hello", "there"]
    assert session.turns[0].answer == "hello there"


async def test_state_with_prefixes_stays_in_its_session(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
def note(tool_context) -> str:
    seen = [tool_context.state.get(key) for key in ("app:theme", "user:name", "temp:scratch")]
    tool_context.state["app:theme"] = "dark"
    tool_context.state["user:name"] = "Ann"
    tool_context.state["temp:scratch"] = 1
    tool_context.state["plain"] = [tool_context.state["user:from"], *seen]
    return "noted"

def answer(word, request):
    return said("done") if isinstance(word, dict) else said("", ("note", {}))

root_agent = LlmAgent(name="a", model=Scripted(answer=answer), tools=[note])
"""
    )
    agent = loaded(source)
    first, second = Session("1", state={"user:from": "Ulm"}), Session("2", state={"user:from": "Rome"})

    await play(agent, first, "go")
    kept = dict(first.state)
    await play(agent, first, "go")
    await play(agent, second, "go")

    assert kept == {"user:from": "Ulm", "app:theme": "dark", "user:name": "Ann", "plain": ["Ulm", None, None, None]}
    assert first.state["plain"] == ["Ulm", "dark", "Ann", None]
    assert second.state["plain"] == ["Rome", None, None, None]


async def test_reset_data_is_called_before_each_conversation(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
sold = []

def reset_data():
    sold.clear()

def sell() -> int:
    sold.append(1)
    return len(sold)

def answer(word, request):
    return said(str(word["result"])) if isinstance(word, dict) else said("", ("sell", {}))

root_agent = LlmAgent(name="a", model=Scripted(answer=answer), tools=[sell])
"""
    )
    agent = loaded(source)
    first, second = Session("1"), Session("2")

    for session in (first, first, second):
        await play(agent, session, "go")

    assert [turn.answer for turn in (*first.turns, *second.turns)] == ["1", "2", "1"]


async def test_max_turns_is_a_stop_of_its_own(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
def again() -> str:
    return "more"

root_agent = LlmAgent(name="a", model=Scripted(answer=lambda word, request: said("hm", ("again", {}))), tools=[again])
"""
    )
    session = Session("s", model_options=ModelOptions(max_turns=2))

    events = await play(loaded(source), session, "go")

    assert events[-1].error.kind == "max_turns"
    assert (len(session.turns[0].tool_calls), session.turns[0].answer) == (2, "")


async def test_a_failing_import_in_each_turn_fails_as_without_evaldesk(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """google-adk looks for its agents of A2A in each turn; their modules are read anew where the package is missing."""
    remote = "google.adk.agents.remote_a2a_agent"
    if find_spec("a2a"):
        pytest.skip("the package that the import needs is here")
    monkeypatch.setattr(
        sys, "meta_path", [each for each in sys.meta_path if type(each).__name__ != "_EarlyImportFailure"]
    )
    with pytest.raises(ImportError) as natively:
        import_module(remote)
    loaded(ROLLER)

    with pytest.raises(ImportError) as here:
        import_module(remote)

    assert (here.type, str(here.value), here.value.name) == (natively.type, str(natively.value), natively.value.name)
    assert "remote_a2a_agent.py" in {Path(entry.path).name for entry in natively.traceback}
    assert "remote_a2a_agent.py" not in {Path(entry.path).name for entry in here.traceback}


@pytest.mark.parametrize(("said", "total"), [(10, 21), (7, 21), (7, None)])
async def test_thoughts_included_in_the_answer_tokens_are_counted_once(
    loaded: Any, play: Any, said: int, total: int | None
) -> None:
    """As google-adk tells them of LiteLLM's models, of Gemini, and of a model that tells no total."""
    source = f"""{SCRIPT}
spent = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=11, candidates_token_count={said}, thoughts_token_count=3, total_token_count={total}
)

def answer(word, request):
    found = said("hello")
    found.usage_metadata = spent
    return found

root_agent = LlmAgent(name="a", model=Scripted(answer=answer))
"""
    session = Session("s")

    await play(loaded(source), session, "hi")

    assert [(usage.tokens_in, usage.tokens_out) for usage in session.turns[0].usages] == [(11, 10)]


SAVING = (
    SCRIPT
    + """
async def answer(word, request):
    return said("saved") if isinstance(word, dict) else said("", ("save", {"text": word}))

async def save(text: str, tool_context):
    data = b"\\xff\\x00" if text == "bytes" else text.encode()
    await tool_context.save_artifact("report.txt", types.Part.from_bytes(data=data, mime_type="text/plain"))
    return "ok"

root_agent = LlmAgent(name="clerk", model=Scripted(answer=answer), tools=[save])
"""
)


async def test_artifacts_are_seen_and_a_path_of_the_state_finds_them(loaded: Any, played: Any) -> None:
    agent, session = loaded(SAVING), Session("s")

    turns = [await played(agent, session, text) for text in ("first", "bytes", "Hello.")]

    assert [turn.error for turn in turns] == [None] * 3
    logs = [event.text for turn in turns for event in turn.events if event.author == "artifacts"]
    assert logs == ["report.txt:\nfirst", "report.txt:\n2 bytes that are not text", "report.txt:\nHello."]
    case = Case("c", tuple(Turn(turn.query) for turn in turns))
    metric = StatePath("$.artifacts['report.txt']", "every", "Hello.")
    [score] = metric.score(Transcript(tuple(turns)), case)
    assert score.value == 1.0
    assert "artifacts" not in turns[-1].state_after
