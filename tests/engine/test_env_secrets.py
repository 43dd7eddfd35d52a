"""What an agent's own `.env` holds never leaves its worker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from evaldesk.agents import env_files
from evaldesk.engine import ChatPlayers, LocalExecutor, drive
from evaldesk.engine.frames import Play
from evaldesk.engine.worker.attempt import Attempt, without_env_secrets
from evaldesk.engine.worker.jobs import TrialJob
from evaldesk.model import AgentRef, Case, Criterion, Event, Expected, TrialSpec, Turn, TurnRecord, TurnSpec
from evaldesk.model.user_reply import UserReply
from evaldesk.process_setup import ProcessWatch

pytestmark = pytest.mark.anyio

SECRET = "hidden-in-a-file-9"
AGENT = "import os\ndef root_agent(message): return os.environ['SHOP_API_KEY'] + os.environ['SHOP_NAME']\n"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentRef:
    monkeypatch.setattr(env_files, "_from_files", set())
    for name in ("SHOP_API_KEY", "SHOP_NAME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    folder = tmp_path / "teller"
    folder.mkdir()
    folder.joinpath("agent.py").write_text(AGENT)
    folder.joinpath(".env").write_text(f"SHOP_API_KEY={SECRET}\nSHOP_NAME=books-and-more\n")
    return AgentRef("teller", "teller.agent:root_agent", root=str(tmp_path), folder=str(folder))


async def test_a_key_from_the_file_is_named_instead_of_told(agent: AgentRef) -> None:
    spec = TrialSpec(1, 0, 0, Case("c"), agent, ())

    work = TrialJob(Play(1, spec, first=UserReply("hi", is_last=True)), lambda _: None, ProcessWatch())
    assert isinstance(work.attempt, Attempt)

    frame = await work.run()

    assert SECRET.encode() not in frame
    assert b"[SHOP_API_KEY]books-and-more" in frame
    os.environ.pop("SHOP_API_KEY")
    os.environ.pop("SHOP_NAME")


REWARDS = """
import os
KEY = os.environ["SHOP_API_KEY"]
def has_key(solution_str, ground_truth, extra_info=None):
    print("asked with", KEY)
    return 1.0 if os.environ["SHOP_NAME"] == "books-and-more" else 0.0
"""
REDIRECTS = """
import os, pathlib
def root_agent(message):
    pathlib.Path(__file__).with_name(".env").write_text("SHOP_API_KEY=other-key-of-another\\nSHOP_NAME=another\\n")
    return "done"
"""


async def test_graders_have_the_file_as_it_was_before_the_first_trial(agent: AgentRef) -> None:
    folder = Path(agent.folder)
    (folder / "agent.py").write_text(REDIRECTS)
    (folder.parent / "shop_rewards.py").write_text(REWARDS)
    reward = Criterion("reward", 1.0, {"function": "shop_rewards:has_key", "root": agent.root})
    case = Case("c", turns=(Turn("hi", Expected(reference="done")),))
    executor = LocalExecutor(concurrency=1, folder=agent.folder)

    results = [
        found
        async for found in drive([TrialSpec(1, 0, index, case, agent, (reward,)) for index in range(2)], executor, 1)
    ]
    await executor.close()

    assert [result.verdict for result in results] == ["passed", "passed"], results
    assert "asked with [SHOP_API_KEY]" in results[0].logs
    assert SECRET not in str(results)
    assert "SHOP_API_KEY" not in os.environ


async def test_a_prompt_that_holds_a_key_leaves_the_worker_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_agent: Callable[..., AgentRef]
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", SECRET)
    agent = write_agent("""
        import os
        from evaldesk import LlmAgent

        agent = LlmAgent(name="a", model="demo/dice", instruction=f"The key is {os.environ['SHOP_TOKEN']}.")
        """)
    executor = LocalExecutor(concurrency=1)

    [result] = [
        found async for found in drive([TrialSpec(1, 0, 0, Case("c", turns=(Turn("hi"),)), agent, ())], executor, 1)
    ]
    await executor.close()

    assert result.prompts
    said = str(result.prompts.messages(0))
    assert SECRET not in said
    assert "The key is [SHOP_TOKEN]." in said


async def test_a_secret_is_not_told_in_pieces_of_a_stream(
    write_agent: Callable[..., AgentRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", SECRET)
    agent = write_agent("""
        import os
        from evaldesk.model import Event

        async def agent(message):
            text = f"it is {os.environ['SHOP_TOKEN']}, and no other"
            for start in range(0, len(text), 3):
                yield Event("agent_message", text=text[start:start + 3], is_partial=True)
            yield Event("agent_message", text=text)
        """)
    host = ChatPlayers()

    items = [item async for item in host.play_turn(TurnSpec("s", agent, "hello"))]

    await host.close()
    pieces = [item.text for item in items if isinstance(item, Event) and item.is_partial]
    assert "".join(pieces) == "it is [SHOP_TOKEN], and no other"
    assert len(pieces) > 3
    assert isinstance(items[-1], TurnRecord)
    assert items[-1].answer == "it is [SHOP_TOKEN], and no other"


def test_without_a_file_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_files, "_from_files", set())
    event = Event("agent_message", text=SECRET)

    assert without_env_secrets(event) is event
