"""`evaldesk agents`: what each agent is, or why it does not load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evaldesk.agents import load_agent
from evaldesk.cli import cli
from evaldesk.model import AgentDescription, AgentRef

pytestmark = pytest.mark.usefixtures("own_imports")

AGENT = '''
from evaldesk import LlmAgent

def roll_die(sides: int = 6) -> int:
    """Roll a die."""
    return sides

root_agent = LlmAgent(name="dice", model="openai/gpt-4o-mini", tools=[roll_die], instruction="Roll for {player}.")
'''


class Here:
    """Describes agents in this process."""

    async def describe(self, ref: AgentRef) -> AgentDescription:
        return load_agent(ref).describe()

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.desk.doctor.ChatPlayers", lambda **_: Here())
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "dice"
    folder.mkdir()
    folder.joinpath("agent.py").write_text(AGENT)
    return tmp_path


def _run(*words: str) -> Any:
    return CliRunner().invoke(cli, ["agents", *words])


def test_an_agent_is_said_with_what_it_lacks(home: Path) -> None:
    result = _run("--workspace", str(home))

    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "dice  key missing  LiteLLM  openai/gpt-4o-mini",
        f"  dice.agent:root_agent in {home / 'dice'}",
        "  not set: OPENAI_API_KEY",
        "  tool roll_die(sides: integer = 6)",
        "  tool calls, results, tokens and state seen; inner calls seen in part",
    ]
    assert list(home.iterdir()) == [home / "dice"]


def test_json_says_the_same(home: Path) -> None:
    result = _run(str(home), "--json", "--workspace", str(home))

    [found] = json.loads(result.output)
    assert (found["id"], found["state"], found["kind"], found["model"]) == (
        "dice",
        "ready",
        "litellm",
        "openai/gpt-4o-mini",
    )
    assert (found["instruction"], found["missing"]) == ("Roll for {player}.", ["OPENAI_API_KEY"])
    assert found["tools"][0]["parameters"]["properties"]["sides"]["type"] == "integer"


def test_one_that_does_not_load_is_said_with_its_trace(home: Path) -> None:
    (home / "dice" / "agent.py").write_text("import no_such_module\nroot_agent = 1\n")

    result = _run("--workspace", str(home))

    assert result.exit_code == 1
    assert result.output.startswith("dice  does not load\n  dice/agent.py, line 1: ModuleNotFoundError: No module")
    assert '    File "' in result.output.replace("      File", "    File")


def test_a_declared_agent_is_among_them(home: Path) -> None:
    (home / "evaldesk.toml").write_text("[agents.clerk]\nmodel = 'demo/dice'\n")

    result = _run("--workspace", str(home), "--json")

    assert [found["id"] for found in json.loads(result.output)] == ["clerk", "dice"]


def test_without_any_the_samples_are_shown(tmp_path: Path) -> None:
    result = _run("--workspace", str(tmp_path), "--json")

    assert "hello_world" in [found["id"] for found in json.loads(result.output)]
    assert list(tmp_path.iterdir()) == []


def test_what_an_agent_says_cannot_steer_the_terminal(home: Path) -> None:
    (home / "dice" / "agent.py").write_text(AGENT.replace("openai/gpt-4o-mini", "evil\\x1b[2Jmodel"))

    assert "\x1b" not in _run("--workspace", str(home)).output


def test_a_folder_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    result = _run(str(tmp_path / "nowhere"))

    assert result.exit_code != 0
    assert "is not a folder" in str(result.exception) + result.output


def test_an_agent_is_called_by_its_id_and_its_own_name_stands_beside_it(home: Path) -> None:
    source = AGENT.replace('name="dice"', 'name="Lucky Roller"')
    (home / "dice" / "agent.py").write_text(source)

    lines = _run("--workspace", str(home)).output.splitlines()
    [facts] = json.loads(_run("--json", "--workspace", str(home)).output)

    assert lines[0].startswith("dice  key missing")
    assert lines[2] == "  called Lucky Roller in its code"
    assert [facts[key] for key in ("id", "name", "own_name")] == ["dice", "dice", "Lucky Roller"]
