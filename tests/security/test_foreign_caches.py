"""Indexes that came in the `.evaldesk` of a clone are made again, and git of others runs no command."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.file_places import _git
from evaldesk.desk.trust import Trust
from evaldesk.settings import Settings


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A workspace as another person made it, with indexes that hide cases and trials, and a recorded answer."""
    home = tmp_path / "anna"
    home.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of anna"))
    Trust(Settings(home, (home,))).opened_store().close()
    shutil.copytree(home, tmp_path / "clone")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings = Settings(tmp_path / "clone", (tmp_path / "clone",))
    for name in ("indexes/0123.2.cases", "recordings/01/answer.json"):
        path = settings.state_folder / name
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    with closing(sqlite3.connect(settings.state_folder / "search.db")) as connection:
        connection.execute("CREATE TABLE forged (x)")
    return settings


@pytest.mark.parametrize("is_trusted", [False, True], ids=["before the answer", "after the answer"])
def test_indexes_of_a_clone_are_made_again(clone: Settings, is_trusted: bool) -> None:
    if is_trusted:
        assert Trust(clone).give()
    desk = Desk.open(clone)
    try:
        desk.search.catch_up(rest=0)
    finally:
        desk.store.close()

    with closing(sqlite3.connect(clone.state_folder / "search.db")) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "forged" not in tables
    assert not (clone.state_folder / "indexes" / "0123.2.cases").exists()
    assert (clone.state_folder / "recordings" / "01" / "answer.json").exists()  # data of a mode, marked where replayed


def test_indexes_that_this_user_made_in_a_clone_stay(clone: Settings) -> None:
    Trust(clone).opened_store().close()
    path = clone.state_folder / "search.db"
    path.write_bytes(b"")

    Trust(clone).opened_store().close()
    is_there = path.exists()
    assert Trust(clone).give()
    Trust(clone).opened_store().close()

    assert is_there
    assert path.exists()


@pytest.mark.parametrize(
    "key",
    [
        "core.fsmonitor",
        "filter.strange.clean",
        "filter.with=sign.clean",
        "filter.strange.process",
        "filter.strange.smudge",
        "diff.strange.textconv",
        "diff.external",
    ],
)
def test_a_git_configuration_of_others_runs_no_command(key: str, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    git = [shutil.which("git") or "git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    mark = tmp_path / "ran"
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\nexec cat\n")
    hook.chmod(0o755)
    name = key.split(".")[1]
    (folder / ".gitattributes").write_text(f"*.txt filter={name} diff={name}\n")
    (folder / "a.txt").write_text("first")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "first"), ("config", key, str(hook))):
        subprocess.run([*git, *command], check=True)
    (folder / "a.txt").write_text("other")

    state = _git(folder, "status", "--porcelain")
    _git(folder, "diff")
    _git(folder, "worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"), _git(folder, "rev-parse", "HEAD"))

    assert state == "M a.txt"
    assert (tmp_path / "tree/a.txt").read_text() == "first"
    assert not mark.exists()
