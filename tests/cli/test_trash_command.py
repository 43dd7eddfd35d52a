"""`evaldesk trash`: deleted eval sets, cases, chats and runs are listed, restored and removed."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evaldesk.cli import cli
from evaldesk.desk.desk import Desk
from evaldesk.desk.workspace import open_settings
from evaldesk.errors import ConflictError, NotFoundError, UsageError, WorkspaceError
from evaldesk.model import AgentRef, Case, RunConfig
from evaldesk.model.evalset import case_key
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
        assert run("restore", item_id).output.startswith("Restored: ")

    assert json.loads((home / "dice.evalset.json").read_text()) == SET
    assert run("list").output == "The trash is empty.\n"


def test_a_sample_that_a_desk_deleted_comes_back_with_its_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    desk = Desk.open(open_settings(()))
    found = {file.name: file.id for file in desk.evalsets.list()}
    evalset_id = found["hello_world"]
    file = desk.settings.samples_folder / "hello_world.evalset.json"
    before = file.read_bytes()
    desk.evalsets.cases.delete(evalset_id, [case_key("roll_16")])
    desk.evalsets.trash(evalset_id)
    desk.store.close()

    for kind in ("eval set", "cases"):
        restored = run("restore", listed()[kind])
        assert restored.output.startswith("Restored: "), restored.exception

    assert file.read_bytes() == before


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


def delete_case(home: Path) -> None:
    """Make a set of two cases and delete the first."""
    cases = [{"eval_id": name, "conversation": [{"user_content": {"parts": [{"text": name}]}}]} for name in "ab"]
    (home / "pair.evalset.json").write_text(json.dumps({"eval_set_id": "pair", "eval_cases": cases}))
    desk = Desk.open(read_settings(home, (home,), environment={}))
    set_id = next(each.id for each in desk.evalsets.list() if each.name == "pair")
    desk.evalsets.cases.delete(set_id, [case_key("a")])
    desk.store.close()


def case_ids(home: Path) -> list[str]:
    return [case["eval_id"] for case in json.loads((home / "pair.evalset.json").read_text())["eval_cases"]]


def test_a_deleted_case_is_listed_and_comes_back_to_its_place(home: Path) -> None:
    delete_case(home)

    assert "cases     a of pair" in run("list").output
    assert run("restore", listed()["cases"]).output == "Restored: cases a of pair\n"

    assert case_ids(home) == ["a", "b"]
    assert "cases" not in listed()


def test_a_case_whose_id_is_taken_stays_in_the_trash(home: Path) -> None:
    delete_case(home)
    path = home / "pair.evalset.json"
    pair = json.loads(path.read_text())
    pair["eval_cases"][0]["eval_id"] = "a"
    path.write_text(json.dumps(pair))

    assert isinstance(run("restore", listed()["cases"]).exception, ConflictError)

    assert case_ids(home) == ["a"]
    assert "cases" in listed()


def test_deleted_cases_are_removed_for_good(home: Path) -> None:
    delete_case(home)

    assert run("empty", "--yes").output == "Removed 3 of 3 items.\n"
    assert not list((home / ".evaldesk" / "trash").glob("*.cases.json"))


def test_a_case_file_that_cannot_be_read_is_left_alone(home: Path) -> None:
    path = home / ".evaldesk" / "trash" / "0123456789abcdef.cases.json"
    path.write_text('{"cases": 7}')

    assert "cases" not in listed()
    assert run("empty", "--yes").output == "Removed 2 of 2 items.\n"
    assert path.exists()


def test_a_deleted_run_is_listed_restored_and_removed(home: Path) -> None:
    settings = read_settings(home, (home,), environment={})
    desk = Desk.open(settings)
    run_id = desk.store.runs.create(RunConfig(AgentRef("hello", "agent:root_agent"), "dice", n=3), [Case("a")])
    desk.store.runs.delete(run_id)

    assert f"run       {run_id}: hello on dice, 3 trials" in run("list").output
    assert run("restore", f"run-{run_id}").output == f"Restored: run {run_id}: hello on dice, 3 trials\n"
    assert [found.id for found in desk.store.runs.list()] == [run_id]
    assert isinstance(run("restore", f"run-{run_id}").exception, NotFoundError)

    desk.store.runs.delete(run_id)
    assert run("empty", "--yes").output == "Removed 3 of 3 items.\n"
    assert run("empty", "--yes").output == "The trash is empty.\n"
    assert isinstance(run("restore", f"run-{run_id}").exception, NotFoundError)
    desk.store.close()


@pytest.mark.long
def test_the_command_says_how_much_the_disk_got_back(home: Path) -> None:
    desk = Desk.open(read_settings(home, (home,), environment={}))
    notes = random.Random(7).randbytes(4_000_000).hex()
    desk.store.sessions.delete(desk.store.sessions.create("hello", "Large", {"notes": notes}).id)
    desk.store.close()

    said = run("empty", "--yes").output

    assert re.fullmatch(r"Removed 3 of 3 items\. The disk got \d+\.\d MB back\.\n", said)
