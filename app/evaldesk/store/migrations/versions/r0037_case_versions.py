"""Versions of cases, also in baselines; ids of eval sets by the place of their file."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
import zstandard
from alembic import op

from evaldesk.errors import WorkspaceError
from evaldesk.matching.case_version import case_version
from evaldesk.model import Case
from evaldesk.model.comparison import Baseline
from evaldesk.store.evalsets.joining import join_evalsets
from evaldesk.store.tables.columns import pack, unpack

revision = "0037"
down_revision = "0036"

_ROWS = 500


def upgrade() -> None:
    connection = op.get_bind()
    versions: dict[str, str] = {}
    for (run_id,) in connection.execute(sa.text("SELECT id FROM run ORDER BY id")).all():
        _version_cases(connection, run_id, versions)
    _version_baselines(connection, versions)
    home = _home(connection)
    if home:
        join_evalsets(connection, home, datetime.now(UTC))


def _version_cases(connection: sa.Connection, run_id: int, versions: dict[str, str]) -> None:
    """Give each case of a run its version, from the stored case; an unreadable one has none."""
    find = sa.text(
        "SELECT run_case.case_index, run_case.digest, case_snapshot.codec, case_snapshot.data FROM run_case "
        "LEFT JOIN case_snapshot ON case_snapshot.run_id = run_case.run_id "
        "AND case_snapshot.case_index = run_case.case_index "
        "WHERE run_case.run_id = :run_id AND run_case.case_index > :after ORDER BY run_case.case_index LIMIT :n"
    )
    change = sa.text("UPDATE run_case SET digest = :digest WHERE run_id = :run_id AND case_index = :case_index")
    after = -1
    while rows := connection.execute(find, {"run_id": run_id, "after": after, "n": _ROWS}).all():
        after = rows[-1].case_index
        changes = []
        for row in rows:
            if row.digest not in versions:
                versions[row.digest] = _version(row.codec, row.data)
            changes.append({"run_id": run_id, "case_index": row.case_index, "digest": versions[row.digest]})
        connection.execute(change, changes)


def _version(codec: int | None, data: bytes | None) -> str:
    if codec is None or data is None:
        return ""
    try:
        return case_version(unpack(codec, data, Case))
    except (WorkspaceError, msgspec.MsgspecError, zstandard.ZstdError):
        return ""


def _version_baselines(connection: sa.Connection, versions: dict[str, str]) -> None:
    """A case of a baseline file that no stored run played has no version: it is compared by its name."""
    for run_id, codec, data in connection.execute(sa.text("SELECT run_id, codec, data FROM run_baseline")).all():
        try:
            baseline = unpack(codec, data, Baseline)
        except (WorkspaceError, msgspec.MsgspecError, zstandard.ZstdError):
            continue
        cases = tuple(
            replace(case, key=replace(case.key, digest=versions.get(case.key.digest, ""))) for case in baseline.cases
        )
        packed_baseline: dict[str, Any] = dict(
            zip(("codec", "data"), pack(replace(baseline, cases=cases)), strict=True)
        )
        change = sa.text("UPDATE run_baseline SET codec = :codec, data = :data WHERE run_id = :run_id")
        connection.execute(change, packed_baseline | {"run_id": run_id})


def _home(connection: sa.Connection) -> Path | None:
    """The workspace of an SQLite file; a server has runs of several, and each desk joins its own when it opens."""
    if connection.dialect.name != "sqlite":
        return None
    file = next(row[2] for row in connection.exec_driver_sql("PRAGMA database_list") if row[1] == "main")
    folder = Path(file).parent
    return folder.parent if folder.name == ".evaldesk" else None
