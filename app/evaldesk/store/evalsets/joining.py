"""Joins the runs and cases of one eval set that were stored under several ids. (decision 455)"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path, PurePath

from sqlalchemy import Connection, bindparam, delete, select, update

from evaldesk.paths import SAMPLES_FOLDER
from evaldesk.store.database import execute_many
from evaldesk.store.evalsets.found import find_files
from evaldesk.store.evalsets.lines import note_moved
from evaldesk.store.evalsets.names import evalset_file_id, identity_of, stem_and_suffix
from evaldesk.store.runs.planning import NO_EVALSET
from evaldesk.store.runs.trash import name_last_run_of
from evaldesk.store.tables.runs import LAST_RUN, RUN
from evaldesk.store.tables.sessions import SESSION_CASE

_EVERY_CASE = 2**31 - 1


def join_evalsets(connection: Connection, home: Path, now: datetime) -> None:
    """Give every run, last verdict and made case of a workspace the id of its eval set's file.

    The id used to hang on the folder that a desk or a command was started with. The file is told by the path that a run
    noted; of a workspace that was moved since, and of a case without a run, by the id itself. One that leads to no file
    or to several keeps its id.
    """
    current_ids = _ids_of_files(home)
    rows = connection.execute(
        select(RUN.c.id, RUN.c.evalset_id, RUN.c.config)
        .where(RUN.c.evalset_id.not_like(f"{NO_EVALSET}%"))
        .order_by(RUN.c.id)
    ).all()
    new_ids: dict[str, str] = {}
    changes = []
    changed_ids: set[str] = set()
    played_runs: list[tuple[int, str]] = []
    for run_id, stored_id, config_json in rows:
        config = json.loads(config_json)
        current_id = _id_by_path(config.get("evalset_path", ""), home) or current_ids.get(stored_id, stored_id)
        if config.get("source_run_id") is None:
            played_runs.append((run_id, current_id))
        if current_id != stored_id:
            config["evalset_id"] = current_id
            changes.append(
                {"of_run": run_id, "evalset_id": current_id, "config": json.dumps(config, ensure_ascii=False)}
            )
            new_ids[stored_id] = current_id
            changed_ids |= {stored_id, current_id}
    execute_many(connection, update(RUN).where(RUN.c.id == bindparam("of_run")), changes)
    execute_many(connection, delete(LAST_RUN).where(LAST_RUN.c.evalset_id == bindparam("of_set")), _sets(changed_ids))
    for run_id, of_set in played_runs:
        if of_set in changed_ids:
            name_last_run_of(connection, run_id, 0, _EVERY_CASE)
    set_ids = connection.scalars(select(SESSION_CASE.c.evalset_id).distinct())
    for stored_id, current_id in ({each: current_ids.get(each, each) for each in set_ids} | new_ids).items():
        if current_id != stored_id:
            _move_cases(connection, stored_id, current_id)
            note_moved(connection, stored_id, current_id, now)


def _sets(ids: set[str]) -> list[dict[str, str]]:
    return [{"of_set": each} for each in sorted(ids)]


def _move_cases(connection: Connection, old_id: str, new_id: str) -> None:
    """A case that both ids have was made once."""
    twin = SESSION_CASE.alias()
    same = (twin.c.session_id == SESSION_CASE.c.session_id) & (twin.c.case_id == SESSION_CASE.c.case_id)
    both = select(twin.c.session_id).where(twin.c.evalset_id == new_id, same)
    own = SESSION_CASE.c.evalset_id == old_id
    connection.execute(delete(SESSION_CASE).where(own, both.exists()))
    connection.execute(update(SESSION_CASE).where(own).values(evalset_id=new_id))


def _id_by_path(path: str, home: Path) -> str:
    """The id of the file at a noted path; empty without a path, and for a missing file outside of the workspace."""
    if not path:
        return ""
    is_here = Path(path).is_relative_to(home)
    return identity_of(Path(path), home) if is_here or Path(path).is_file() else ""


def _ids_of_files(home: Path) -> dict[str, str]:
    """The ids that the eval sets of a workspace had for one folder or another, with those they have now."""
    ids: dict[str, set[str]] = {}
    for current_id, file in find_files([home, home / SAMPLES_FOLDER], home).items():
        stem, _ = stem_and_suffix(file.path)
        parts = file.path.parts
        for n in range(len(parts)):
            ids.setdefault(evalset_file_id(stem, PurePath(*parts[n:]).as_posix()), set()).add(current_id)
    return {past_id: next(iter(current_id)) for past_id, current_id in ids.items() if len(current_id) == 1}
