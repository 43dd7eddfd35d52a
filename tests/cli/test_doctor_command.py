"""`evaldesk doctor`: what stands in the way of a run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.agents.endpoint import Endpoint, served

from evaldesk.agents import load_agent
from evaldesk.cli import cli
from evaldesk.llm.client import open_litellm
from evaldesk.model import AgentDescription, AgentRef
from evaldesk.store import Store

pytestmark = pytest.mark.usefixtures("own_imports")

AGENT = 'from evaldesk import LlmAgent\nroot_agent = LlmAgent(name="a", model="{model}")\n'


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


def _doctor(home: Path, *words: str, model: str = "hosted_vllm/small") -> Any:
    folder = home / "one"
    folder.mkdir(exist_ok=True)
    folder.joinpath("agent.py").write_text(AGENT.format(model=model))
    return CliRunner().invoke(cli, ["doctor", *words, "--workspace", str(home)])


def _line(output: str, about: str) -> str:
    return next(line for line in output.splitlines() if line[6:].startswith(about))


def test_all_is_well(tmp_path: Path) -> None:
    result = _doctor(tmp_path)

    assert result.exit_code == 0
    assert _line(result.output, "database").endswith("none yet; the first run or chat makes it")
    assert _line(result.output, "agent one").startswith("ok")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]


def test_what_a_killed_writer_left_is_removed_and_counted(tmp_path: Path) -> None:
    left = [tmp_path / "evalsets" / ".a.json.0123456789abcdef.evaldesk-tmp", tmp_path / ".evaldesk" / "trash" / "0"]
    left[1] = left[1] / ".origin.json.0123456789abcdef.evaldesk-tmp"
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half")
    (tmp_path / "evalsets" / ".a.json.swp").write_bytes(b"an editor's")

    found = _doctor(tmp_path)
    assert all(path.exists() for path in left)
    result = _doctor(tmp_path, "--repair")

    assert found.exit_code == 1
    assert _line(found.output, "files").endswith("were killed; evaldesk doctor --repair removes them")
    assert result.exit_code == 0
    assert _line(result.output, "files").endswith("2 unfinished files of writers that were killed, now removed")
    assert [path for path in left if path.exists()] == []
    assert (tmp_path / "evalsets" / ".a.json.swp").exists()
    assert "unfinished" not in _doctor(tmp_path).output


def test_a_missing_key_is_named_and_is_no_obstacle(tmp_path: Path) -> None:
    result = _doctor(tmp_path, model="openai/gpt-4o-mini")

    assert result.exit_code == 0
    assert "OPENAI_API_KEY not set" in _line(result.output, "model openai/gpt-4o-mini")


def test_an_agent_that_does_not_load_is_an_obstacle(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "agent.py").write_text("import no_such_module\nroot_agent = 1\n")

    result = _doctor(tmp_path)

    assert result.exit_code == 1
    assert "No module named 'no_such_module'" in _line(result.output, "agent two")


def test_the_runs_of_the_workspace_are_counted(tmp_path: Path) -> None:
    (tmp_path / ".evaldesk").mkdir()
    Store.open(tmp_path / ".evaldesk" / "evaldesk.db").close()

    assert _line(_doctor(tmp_path).output, "database").endswith("evaldesk.db, 0 runs")


def test_a_database_that_cannot_be_read_is_an_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".evaldesk").mkdir()
    (tmp_path / ".evaldesk" / "evaldesk.db").write_bytes(b"not a database, " * 100)

    result = _doctor(tmp_path)

    assert result.exit_code == 1
    assert _line(result.output, "database").startswith("bad")


def test_a_damaged_page_that_nobody_reads_is_found(tmp_path: Path) -> None:
    (tmp_path / ".evaldesk").mkdir()
    database = tmp_path / ".evaldesk" / "evaldesk.db"
    with Store.open(database) as store:
        for number in range(50):
            store.sessions.create("one", f"Session {number}", {"text": "x" * 500})
    assert _doctor(tmp_path).exit_code == 0
    _overwrite_first_leaf(database, "session")
    before = database.read_bytes()

    result = _doctor(tmp_path)

    assert result.exit_code == 1
    assert _line(result.output, "database").startswith("bad")
    assert "evaldesk.db is damaged (" in _line(result.output, "database")
    assert database.read_bytes() == before


def _overwrite_first_leaf(database: Path, table: str) -> None:
    """Damage the first page of rows; where it is stands in the root page (SQLite's file format, section 1.6)."""
    with closing(sqlite3.connect(database)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(database.read_bytes())
    page = data[(root - 1) * size : root * size]
    assert page[0] == 5  # the table has more than one page
    cell = int.from_bytes(page[12:14])
    leaf = int.from_bytes(page[cell : cell + 4])
    data[(leaf - 1) * size : leaf * size] = b"\xff" * size
    database.write_bytes(data)


def test_each_model_is_called_once_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "a-key-for-the-tests")
    open_litellm()
    with served() as endpoint:
        good = _called(tmp_path, endpoint.says("ready"))
        bad = _called(tmp_path, endpoint.fails(401, "who are you"))

    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert "answers in" in _line(good.output, "call hosted_vllm/small")
    assert "at an unknown price" in _line(good.output, "call hosted_vllm/small")
    assert "no valid key" in _line(bad.output, "call hosted_vllm/small")
    assert len(endpoint.asked) == 2


def _called(home: Path, endpoint: Endpoint) -> Any:
    (home / "evaldesk.toml").write_text(f'[model]\nbase_url = "{endpoint.address}"\n')
    return _doctor(home, "--call")


def test_a_limit_that_does_not_hold_for_an_agent_is_said(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text("[limits]\ntool_timeout_s = 5\n")
    folder = tmp_path / "plain"
    folder.mkdir()
    folder.joinpath("agent.py").write_text("def root_agent(message):\n    return message\n")

    said = _line(_doctor(tmp_path).output, "limits")

    assert "tool_timeout_s = 5 does not hold for plain," in said


@pytest.mark.parametrize(
    ("problem", "has_bubblewrap", "words"),
    [
        ("", False, "shared, process, sandbox"),
        ("forbidden", True, "shared, process, sandbox by bubblewrap"),
        ("forbidden", False, "shared, process; no sandbox: forbidden"),
    ],
)
def test_the_isolation_that_this_machine_can_give_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str, has_bubblewrap: bool, words: str
) -> None:
    monkeypatch.setattr("evaldesk.desk.doctor.sandbox_problem", lambda: problem)
    monkeypatch.setattr("evaldesk.desk.doctor.has_bubblewrap", lambda: has_bubblewrap)
    monkeypatch.setattr("evaldesk.desk.doctor.CLIENTS", ())

    assert _line(_doctor(tmp_path).output, "isolation").endswith(words)
