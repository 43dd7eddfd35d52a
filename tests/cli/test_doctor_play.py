"""`evaldesk doctor --play`: one turn of every agent, with what came back; nothing is "ok" that was not tried."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.agents.endpoint import served
from tests.forked_commands import ForkedCommands

from evaldesk.model.visibility import UNSEEN_CALLS, UNSEEN_STATE

COMMAND = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"kind": "tool_call", "name": "look", "args": {}}))
    print(json.dumps({"kind": "message", "text": f"you said {asked['message']}"}))
    print(json.dumps({"kind": "done"}), flush=True)
"""
QUIET = "\n".join(line for line in COMMAND.splitlines() if "tool_call" not in line)
TABLES = """
[agents.quiet]
command = "{python} -S quiet.py"
[agents.works]
command = "{python} -S works.py"
[agents.breaks]
command = "{python} -S exits.py"
[agents.chats]
url = "{address}"
model = "small"
[agents.gone]
url = "http://127.0.0.1:9/v1"
model = "small"
[agents.mute]
target = "mute:agent"
[agents.busy]
target = "busy:agent"
"""
BUSY = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()

def agent(message):
    return "busy"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "works.py").write_text(COMMAND)
    (tmp_path / "quiet.py").write_text(QUIET)
    (tmp_path / "exits.py").write_text("raise SystemExit(3)")
    (tmp_path / "mute.py").write_text("def agent(message):\n    return None\n")
    (tmp_path / "busy.py").write_text(BUSY)
    return tmp_path


def doctor(commands: ForkedCommands, home: Path, *words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code, and the mark and sentence of each subject."""
    done = commands.run("doctor", *words, "--trust", "--workspace", str(home), cwd=home)
    width = next(found.index("Evaldesk ") for found in done.stdout.splitlines() if " Evaldesk " in found)
    lines = (found for found in done.stdout.splitlines() if found)
    return done.returncode, {found[6:width].strip(): (found[:4].strip(), found[width:]) for found in lines}


def test_one_turn_of_each_agent_is_played_and_told(home: Path, commands: ForkedCommands) -> None:
    with served() as endpoint:
        (home / "evaldesk.toml").write_text(TABLES.format(python=sys.executable, address=endpoint.address))
        endpoint.says("ready")

        before = doctor(commands, home)
        code, found = doctor(commands, home, "--play")

    assert before[0] == 0
    for name in ("works", "breaks", "chats", "gone"):
        assert before[1][f"agent {name}"] == ("-", "not asked; `evaldesk doctor --play` plays one turn")
        assert f"agent {name}" not in found
    assert before[1]["agent mute"][0] == "ok"
    assert "turn works" not in before[1]
    if sys.platform == "linux":
        assert found["players busy"] == ("ok", "each player imports it anew: it keeps a thread running")
    assert "players mute" not in found
    assert code == 1
    for name, sentences in (
        ("quiet", (UNSEEN_CALLS, UNSEEN_STATE)),
        ("chats", (UNSEEN_CALLS,)),
        ("works", (UNSEEN_STATE,)),
    ):
        mark, words = found[f"seen of {name}"]
        assert mark == "look"
        assert [each for each in (UNSEEN_CALLS, UNSEEN_STATE) if each in words] >= [*sentences]
    assert UNSEEN_CALLS not in found["seen of works"][1]
    mark, words = found["turn works"]
    assert (mark, words.rpartition(",")[0]) == ("ok", "asked 'Hello', it said \"you said Hello\", called look")
    assert found["turn chats"][0] == "ok"
    assert ", 16 tokens, " in found["turn chats"][1]
    assert found["turn breaks"][0] == found["turn gone"][0] == "bad"
    assert "exit code 3" in found["turn breaks"][1]
    assert found["turn mute"][0] == "look"
    assert found["turn mute"][1].startswith("it said nothing")
    assert not (home / ".evaldesk" / "evaldesk.db").exists()


def test_an_agent_with_an_object_of_one_event_loop_is_named_after_its_turn(
    home: Path, commands: ForkedCommands
) -> None:
    locked = "import asyncio\nlock = asyncio.Lock()\nasync def root_agent(message):\n    return 'hello'\n"
    for name, source in (("locked", locked), ("free", locked.replace("lock = asyncio.Lock()", ""))):
        (home / name).mkdir()
        (home / name / "agent.py").write_text(source)

    code, found = doctor(commands, home, "--play")

    assert code == 0
    assert found["isolation locked"] == (
        "ok",
        "with isolation = 'auto' each trial has a process of its own: locked.agent.lock is an object of one event loop "
        "(asyncio.Lock)",
    )
    assert "isolation free" not in found
