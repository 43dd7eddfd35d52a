"""`evaldesk trash`: deleted eval sets and chats are listed, restored and removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evaldesk.cli import cli
from evaldesk.desk.desk import Desk
from evaldesk.errors import NotFoundError, UsageError, WorkspaceError
from evaldesk.settings import read_settings

SET = {"eval_set_id": "dice", "eval_cases": []}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["trash", *arguments])


def listed() -> dict[str, str]:
    """The ids in the trash by kind."""
    return {row["kind"]: row["id"] for row in json.loads(run("list", "--json").output)}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with an eval set and a chat in its trash."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dice.evalset.json").write_text(json.dumps(SET))
    desk = Desk.open(read_settings(tmp_path, (tmp_path,), environment={}))
    desk.evalsets.trash(desk.evalsets.list()[0].id)
    desk.store.sessions.delete(desk.store.sessions.create("hello", "A talk").id)
    desk.store.close()
    return tmp_path


def test_deleted_sets_and_chats_are_listed(home: Path) -> None:
    output = run("list").output

    assert "eval set  dice.evalset.json" in output
    assert "chat      A talk" in output


def test_both_come_back(home: Path) -> None:
    for item_id in listed().values():
        assert run("restore", item_id).output.endswith(" is back.\n")

    assert json.loads((home / "dice.evalset.json").read_text()) == SET
    assert run("list").output == "The trash is empty.\n"


def test_an_unknown_item_names_those_that_are_there(home: Path) -> None:
    assert isinstance(run("restore", "nothing").exception, NotFoundError)


def test_what_was_removed_is_gone_for_good(home: Path) -> None:
    found = listed()

    assert isinstance(run("empty").exception, UsageError)
    assert run("empty", "--yes").output == "Removed 2 of 2 items.\n"

    assert listed() == {}
    assert all(isinstance(run("restore", item_id).exception, NotFoundError) for item_id in found.values())


def test_a_trash_that_came_with_a_repository_writes_nowhere_else(home: Path) -> None:
    folder = home / ".evaldesk" / "trash" / "0123456789abcdef"
    folder.mkdir()
    (folder / "origin.json").write_text(json.dumps({"path": str(home.parent / "elsewhere.evalset.json")}))
    (folder / "elsewhere.evalset.json").write_text(json.dumps(SET))

    assert isinstance(run("restore", "0123456789abcdef").exception, UsageError)
    assert not (home.parent / "elsewhere.evalset.json").exists()


def test_without_a_database_there_is_no_trash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert isinstance(run("list").exception, WorkspaceError)
