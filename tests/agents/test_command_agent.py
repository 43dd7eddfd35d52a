"""An agent that is a command and speaks JSON lines."""

from __future__ import annotations

import asyncio
import os
import re
import select
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents import Agent, load_agent
from evaldesk.agents.agent import close_session_resources
from evaldesk.agents.remote.command import CommandProcess
from evaldesk.engine import play_trial
from evaldesk.errors import AgentError
from evaldesk.model import AgentRef, Case, Limits, Session, TrialSpec, Turn

pytestmark = pytest.mark.anyio

COUNTING = """
import json, sys
n = 0
for line in sys.stdin:
    asked = json.loads(line)
    assert asked["type"] == "turn"
    n += 1
    if asked["message"] == "exit":
        print("I am off", file=sys.stderr)
        sys.exit(3)
    if asked["message"] == "garble":
        print("{this is no JSON", flush=True)
        continue
    if asked["message"] == "chatter":
        for number in range(300):
            print("loading", number)
        print("[1] null 7")
    if asked["message"] == "child":
        import subprocess
        child = subprocess.Popen(["sleep", "600"])
        print(json.dumps({"kind": "log", "text": str(child.pid)}), flush=True)
        continue
    print("turn", n, file=sys.stderr, flush=True)
    print(json.dumps({"kind": "state", "state": {**asked["session"]["state"], "n": n}}))
    print(json.dumps({"kind": "message", "text": f"{n}: {asked['message']}"}))
    print(json.dumps({"kind": "done"}), flush=True)
"""


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    (tmp_path / "agent.py").write_text(COUNTING)
    return load_agent(AgentRef("cmd", f"{sys.executable} -S agent.py", root=str(tmp_path), kind="command"))


async def test_one_process_plays_all_turns_of_a_session(agent: Agent, play: Any) -> None:
    session = Session("s", state={"k": 1})

    first = await play(agent, session, "hi")
    second = await play(agent, session, "again")
    close_session_resources(session.memory)

    assert [event.text for event in first if event.kind == "agent_message"] == ["1: hi"]
    assert [event.text for event in second if event.kind == "agent_message"] == ["2: again"]
    assert session.state == {"k": 1, "n": 2}
    kept = session.memory["command"]
    assert isinstance(kept, CommandProcess)
    assert not kept.is_alive


async def test_the_end_of_a_trial_ends_its_process(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[CommandProcess] = []
    start = CommandProcess.__init__

    def init(self: CommandProcess, *args: Any, **options: Any) -> None:
        begun.append(self)
        start(self, *args, **options)

    monkeypatch.setattr(CommandProcess, "__init__", init)
    case = Case("c", (Turn("a"), Turn("b")))

    result = await play_trial(agent, TrialSpec(1, 0, 0, case, AgentRef("cmd", ""), limits=Limits(30)))

    assert [turn.answer for turn in result.transcript.turns] == ["1: a", "2: b"]
    assert [process.is_alive for process in begun] == [False]


@pytest.mark.parametrize(
    ("message", "said"),
    [("exit", "exit code 3 before its turn was done"), ("garble", "not a JSON object: b'{this is no JSON")],
)
async def test_a_command_that_ends_early_or_writes_bad_json_is_an_error(
    agent: Agent, play: Any, message: str, said: str
) -> None:
    session = Session("s")

    with pytest.raises(AgentError, match=re.escape(said)):
        await play(agent, session, message)
    close_session_resources(session.memory)


async def test_lines_of_stdout_that_are_no_objects_are_a_log(agent: Agent, play: Any) -> None:
    session = Session("s")

    events = await play(agent, session, "chatter")
    close_session_resources(session.memory)

    [log] = [event.text.splitlines() for event in events if event.author == "stdout"]
    assert log == [*(f"loading {number}" for number in range(101, 300)), "[1] null 7"]
    assert [event.text for event in events if event.kind == "agent_message"] == ["1: chatter"]


async def test_cancelling_kills_the_command_and_its_children(agent: Agent) -> None:
    session = Session("s")
    heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def listen() -> None:
        async for event in agent.reply(session, "child"):
            heard.set_result(int(event.text))

    task = asyncio.create_task(listen())
    child = os.pidfd_open(await asyncio.wait_for(heard, 300))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert select.select([child], [], [], 20)[0], "the child of the command still runs"
    os.close(child)


async def test_a_missing_command_is_named(play: Any) -> None:
    with pytest.raises(AgentError, match="'no-such-command' cannot be started"):
        await play(load_agent(AgentRef("cmd", "no-such-command", kind="command")), Session("s"), "hi")


def test_an_unreadable_command_line_is_refused() -> None:
    with pytest.raises(AgentError, match="cannot be read"):
        load_agent(AgentRef("cmd", "python 'agent.py", kind="command"))


async def test_the_documented_command_answers(tmp_path: Path, play: Any) -> None:
    document = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
    source = re.findall(r"```python\n(.*?)```", document, re.DOTALL)[-2]
    (tmp_path / "documented.py").write_text(source)
    agent = load_agent(AgentRef("cmd", f"{sys.executable} -S documented.py", root=str(tmp_path), kind="command"))
    session = Session("s")

    [event] = await play(agent, session, "hi")
    close_session_resources(session.memory)

    assert event.text == "you said hi"
    assert "documented.py" in agent.describe().description


MODULES = {
    "python": (
        "evaldesk_agent.py",
        "agent.py",
        """
from evaldesk_agent import serve

def answer(turn):
    print("loading")
    if turn.message == "fail":
        raise KeyError("no")
    turn.tool_call("look", {"at": 1}, id="a")
    turn.tool_result("look", id="a", result=[1])
    turn.usage("small", 3, 4, 0.5)
    turn.state["n"] = turn.state.get("n", 0) + 1
    return f"you said {turn.message}"

serve(answer)
""",
    ),
    "typescript": (
        "evaldesk_agent.ts",
        "agent.ts",
        """
import { serve, type Turn } from "./evaldesk_agent.ts";

await serve((turn: Turn) => {
  console.log("loading");
  if (turn.message === "fail") throw new Error("no");
  turn.toolCall("look", { at: 1 }, "a");
  turn.toolResult("look", "a", [1]);
  turn.usage("small", 3, 4, 0.5);
  turn.state.n = ((turn.state.n as number) ?? 0) + 1;
  return `you said ${turn.message}`;
});
""",
    ),
}
TYPES_STRIPPED = (22, 18)  # the first Node that runs TypeScript as it is


def runner(language: str) -> str:
    """The command before the file; skips the test where the machine has none."""
    if language == "python":
        return f"{sys.executable} -S"
    node = shutil.which("node")
    version = subprocess.check_output([node, "--version"], text=True) if node else ""
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < TYPES_STRIPPED:
        pytest.skip("no Node that runs TypeScript is on PATH")
    return str(node)


@pytest.mark.parametrize("language", MODULES)
async def test_the_documented_module_suffices_for_a_command(language: str, tmp_path: Path, play: Any) -> None:
    command = runner(language)
    document = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
    library, name, source = MODULES[language]
    (tmp_path / library).write_text(re.findall(rf"```{language}\n(.*?)```", document, re.DOTALL)[-1])
    (tmp_path / name).write_text(source)
    agent = load_agent(AgentRef("cmd", f"{command} {name}", root=str(tmp_path), kind="command"))
    session = Session("s", state={"n": 4})

    events = await play(agent, session, "hi")
    failed = await play(agent, session, "fail")
    close_session_resources(session.memory)

    kinds = [event.kind for event in events if event.kind != "log"]
    assert kinds == ["tool_call", "tool_result", "usage", "agent_message"]
    assert [event.text for event in events if event.kind == "agent_message"] == ["you said hi"]
    assert next(event.usage for event in events if event.usage).cost == 0.5
    assert [event.error.message for event in failed if event.error] == ["'no'" if language == "python" else "Error: no"]
    assert session.state == {"n": 5}


WAITING = {
    "python": """
from evaldesk_agent import serve

def answer(turn):
    if not turn.decisions:
        turn.tool_call("refund", {"order": 7}, id="a")
        turn.wait("refund", {"order": 7}, id="a", question="Sure?", choices=["approve", "deny"])
        return None
    turn.tool_result("refund", id="a", result=turn.decisions[0]["decision"])
    return f"{turn.message}: {turn.decisions[0]['reason']}"

serve(answer)
""",
    "typescript": """
import { serve } from "./evaldesk_agent.ts";

await serve((turn) => {
  if (!turn.decisions.length) {
    turn.toolCall("refund", { order: 7 }, "a");
    turn.wait("refund", { order: 7 }, "a", "Sure?", ["approve", "deny"]);
    return;
  }
  turn.toolResult("refund", "a", turn.decisions[0].decision);
  return `${turn.message}: ${turn.decisions[0].reason}`;
});
""",
}


@pytest.mark.parametrize("language", WAITING)
async def test_a_command_waits_for_a_person_and_goes_on(language: str, tmp_path: Path) -> None:
    command = runner(language)
    document = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
    library, name, _ = MODULES[language]
    (tmp_path / library).write_text(re.findall(rf"```{language}\n(.*?)```", document, re.DOTALL)[-1])
    (tmp_path / name).write_text(WAITING[language])
    agent = load_agent(AgentRef("cmd", f"{command} {name}", root=str(tmp_path), kind="command"))
    decisions: Any = [{"tool": "refund", "decision": "deny", "reason": "No."}]
    case = Case("c", (Turn("refund 7"),), extra={"human_decisions": decisions})

    result = await play_trial(agent, TrialSpec(1, 0, 0, case, AgentRef("cmd", "")))

    [turn] = result.transcript.turns
    assert (turn.error, turn.stop_reason, turn.answer) == (None, "answered", "refund 7: No.")
    assert {waiting.choices for event in turn.events if (waiting := event.waiting)} == {("approve", "deny")}
    assert [event.result for event in turn.events if event.kind == "tool_result"] == ["deny"]


def test_an_exiting_process_kills_its_groups_without_a_warning() -> None:
    code = """
        import subprocess, sys
        from evaldesk.agents.group_guard import watch_group
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        watch_group(child.pid)
        print(child.pid, flush=True)
        sys.stdin.readline()
        child.returncode = 0  # ours to forget, so that nobody warns of it
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout
        child = os.pidfd_open(int(process.stdout.readline()))
        _, said = process.communicate("leave\n", timeout=300)

    assert (process.returncode, said) == (0, "")
    assert select.select([child], [], [], 60)[0], "the group of the process that left still runs"
    os.close(child)
