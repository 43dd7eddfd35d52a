"""Indexes that came in the `.evaldesk` of a clone are made again."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from evaldesk.desk.desk import Desk
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
        desk.search.catch_up(pause_factor=0)
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
