"""What SQLite alone understands stays in its own modules, and both engines get the SQL they understand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import literal, select
from sqlalchemy.dialects import postgresql, sqlite

import evaldesk.store
from evaldesk.store.tables.columns import ConfigText, upsert
from evaldesk.store.tables.imports import IMPORTED_RUN
from evaldesk.store.tables.runs import RUN

FOLDER = Path(evaldesk.store.__file__).parent
OF_ONE_ENGINE = {
    *("sqlite.py", "space.py", "recovery.py", "upgrade.py", "store.py", "migrations/env.py"),
    *("backups.py", "broken_rows.py", "damaged_rows.py", "tables/columns.py"),
    *("postgresql.py", "copy_places.py", "evalsets/case_index.py", "migrations/versions/r0037_case_versions.py"),
}
"""Of a file: connections, space, backups, repair, upgrade, creation, and the check after a migration. Of a server: all.
Of both: the places of a copy, the search for broken rows, rows of a JSON array, and the migration that asks a file for
its workspace. The index of a large eval set is a file of its own beside any store."""
WORDS = re.compile(r"PRAGMA|sqlite_master|sqlite3\b|OR IGNORE|OR REPLACE|json_each|\browid|GLOB|VACUUM|exec_driver_sql")
DIALECTS: dict[str, Any] = {"sqlite": sqlite, "postgresql": postgresql}


def test_only_its_own_modules_speak_to_sqlite() -> None:
    found = {
        str(path.relative_to(FOLDER)): sorted(set(WORDS.findall(_without_options(path))))
        for path in FOLDER.rglob("*.py")
    }

    assert {name: words for name, words in found.items() if words and name not in OF_ONE_ENGINE} == {}


def _without_options(path: Path) -> str:
    """The text without the table options that PostgreSQL ignores."""
    return path.read_text("utf-8").replace("sqlite_with_rowid", "")


@pytest.mark.parametrize(
    ("dialect", "wanted"),
    [
        ("sqlite", "json_extract(run.config, '$.' || 'model')"),
        ("postgresql", "((run.config)::json ->> 'model')"),
    ],
)
def test_a_text_of_the_configuration_is_asked_for_in_the_words_of_each(dialect: str, wanted: str) -> None:
    statement = select(ConfigText(RUN.c.config, literal("model")))

    text = str(statement.compile(dialect=DIALECTS[dialect].dialect(), compile_kwargs={"literal_binds": True}))

    assert wanted in text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_row_that_is_there_is_written_over_by_each(dialect: str) -> None:
    fresh = upsert(dialect, IMPORTED_RUN)
    key = list(IMPORTED_RUN.primary_key)

    text = str(fresh.on_conflict_do_update(index_elements=key, set_={"digest": fresh.excluded.digest}).compile())

    assert "ON CONFLICT (run_id) DO UPDATE SET digest = excluded.digest" in text
