"""Migrations: the tables as declared, copies before upgrades, all or nothing, never a newer database."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from tests.postgresql_server import ENGINES
from tests.store.conftest import end_trial, plan_run
from tests.store.older_schema import make_older

from evaldesk.errors import WorkspaceError
from evaldesk.model import Transcript, TurnRecord, Usage
from evaldesk.settings import DatabaseUrl
from evaldesk.store import Store, store, upgrade
from evaldesk.store.tables import METADATA

pytestmark = pytest.mark.usefixtures("databases_made_anew")

TODAY = store.HEAD
NEXT, LATER = (f"{int(TODAY) + by:04}" for by in (1, 2))
MIGRATION = '''"""A step that a test takes."""
from alembic import op

revision = "{revision}"
down_revision = "{before}"


def upgrade():
    op.execute("ALTER TABLE run ADD COLUMN {column} TEXT")
    {then}
'''


def test_the_head_in_the_code_is_the_last_migration() -> None:
    assert ScriptDirectory.from_config(upgrade.alembic_config()).get_heads() == [store.HEAD]


def test_each_migration_has_a_greater_number_than_the_one_before() -> None:
    scripts = [*ScriptDirectory.from_config(upgrade.alembic_config()).walk_revisions()][::-1]

    assert [script.revision for script in scripts] == sorted(script.revision for script in scripts)


def test_migrations_make_the_declared_tables(tmp_path: Path) -> None:
    upgrade.upgrade(tmp_path / "migrated.db")
    engine = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})

        difference = compare_metadata(context, METADATA)

    engine.dispose()
    assert difference == []


def test_a_new_database_is_to_the_letter_what_all_migrations_lead_to(database: Path, tmp_path: Path) -> None:
    upgrade.upgrade(tmp_path / "migrated.db")

    Store.open(database).close()

    assert _statements(database) == _statements(tmp_path / "migrated.db")
    assert store.stored_revision(database) == store.stored_revision(tmp_path / "migrated.db") == TODAY


def test_a_database_that_was_left_while_it_was_made_is_made_again(database: Path) -> None:
    database.parent.mkdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")

    Store.open(database).close()

    assert store.stored_revision(database) == TODAY


def test_a_new_database_is_made_whole_or_not_at_all(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store, "REVISIONS", "CREATE TABLE twice, twice")
        with pytest.raises(WorkspaceError, match="syntax error"):
            Store.open(database)

    assert _statements(database) == {}
    Store.open(database).close()
    assert store.stored_revision(database) == TODAY


def test_a_newer_database_is_refused_and_not_touched(database: Path) -> None:
    Store.open(database).close()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = database.read_bytes()

    with pytest.raises(WorkspaceError, match=r"newer Evaldesk \(revision 9999"):
        Store.open(database)

    assert database.read_bytes() == before
    assert not list(database.parent.glob("*.before-*"))


def test_an_upgrade_keeps_a_private_copy_of_what_was_there(database: Path, next_migrations: Path) -> None:
    _write(next_migrations, NEXT, TODAY, "colour")

    Store.open(database).close()

    copy = database.with_name(f"evaldesk.db.before-{LATER}")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert store.stored_revision(copy) == TODAY
    assert _kept_session(copy) == _kept_session(database) == "kept"


def test_a_migration_that_fails_leaves_the_step_before_it(database: Path, next_migrations: Path) -> None:
    _write(next_migrations, NEXT, TODAY, "colour")
    _write(next_migrations, LATER, NEXT, "weight", then="raise RuntimeError('no room')")

    with pytest.raises(RuntimeError, match="no room"):
        Store.open(database)

    statement = _statements(database)["run"]
    assert store.stored_revision(database) == NEXT
    assert "colour" in statement
    assert "weight" not in statement


def test_a_migration_may_not_leave_rows_that_belong_to_nothing(database: Path, next_migrations: Path) -> None:
    orphan = "op.execute(\"INSERT INTO session_turn VALUES ('nobody', 0, 0, x'00')\")"
    _write(next_migrations, NEXT, TODAY, "colour", then=orphan)

    with pytest.raises(WorkspaceError, match="belong to nothing"):
        Store.open(database)

    assert store.stored_revision(database) == TODAY


@pytest.mark.parametrize("place", ENGINES, indirect=True)
def test_runs_of_earlier_versions_tell_whether_their_trials_are_whole_and_what_history_they_are_of(
    place: Path | DatabaseUrl, store: Store, tmp_path: Path
) -> None:
    told, untold = TurnRecord("Roll.", captures=("told",)), TurnRecord("Roll.")
    least, whole = Usage("m", is_least=True), Usage("m", tokens_in=1, cost=0.1)
    run = plan_run(store, n_cases=2, n=3)
    shapes = [
        ((told,), (whole,), 1.0),
        ((told,), (whole, least), 2.0),
        ((untold,), (), 0.0),
        ((untold,), (replace(whole, cost=None),), 4.0),
        ((), (), 5.0),
    ]
    store.runs.record(
        [
            end_trial(run, at // 3, at % 3, transcript=Transcript(turns), usages=usages, duration_ms=ms)
            for at, (turns, usages, ms) in enumerate(shapes)
        ]
    )
    before, summary = _sums(store), store.runs.summary(run)

    with store._database.writing() as connection:
        make_older(connection, "0034", tmp_path)
    store.close()

    with Store.open(place) as again:
        assert _sums(again) == before
    assert (summary.n_uncounted, summary.n_timed) == (3, 4)


def _sums(store: Store) -> list[list[tuple[Any, ...]]]:
    asked = (
        "SELECT is_least FROM trial ORDER BY case_index, trial_index",
        "SELECT n_uncounted, n_timed, history_class FROM run",
    )
    cases = "SELECT n_uncounted, n_timed FROM run_case ORDER BY case_index"
    with store._database.reading() as connection:
        return [[tuple(row) for row in connection.execute(text(each))] for each in (*asked, cases)]


@pytest.fixture
def next_migrations(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of today with a session in it, and a folder for the migrations of tomorrow."""
    with Store.open(database) as opened:
        opened.sessions.create("hello", "kept")
    folder = tmp_path / "migrations"
    shutil.copytree(Path(upgrade.__file__).parent / "migrations", folder, ignore=shutil.ignore_patterns("__pycache__"))
    config = Config()
    config.set_main_option("script_location", str(folder))
    monkeypatch.setattr(upgrade, "alembic_config", lambda: config)
    monkeypatch.setattr(store, "HEAD", LATER)
    return folder / "versions"


def _write(folder: Path, revision: str, before: str, column: str, *, then: str = "pass") -> None:
    text = MIGRATION.format(revision=revision, before=before, column=column, then=then)
    (folder / f"r{revision}.py").write_text(text)


def _statements(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {name: re.sub(r"\s+", "", sql) for name, sql in rows}


def _kept_session(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT title FROM session").fetchone()[0])
