"""A workspace moved from its file to a server, or back: by the names that a person types, while nobody works in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from evaldesk.desk.chat.running_turn import is_turn_played
from evaldesk.desk.process_owner import is_at_work
from evaldesk.desk.runs.stored_runs import is_held
from evaldesk.desk.trust import Answers
from evaldesk.errors import ConflictError, UsageError
from evaldesk.paths import workspace_folder
from evaldesk.settings import DatabaseUrl, Settings, database_url
from evaldesk.store import Store
from evaldesk.store.copy_places import place_of
from evaldesk.store.copying import TableCopy, Watch, copy_database
from evaldesk.store.database import Clock, Database, utc_now

__all__ = ["TableCopy", "copy_store", "named_database"]


def named_database(text: str, where: str) -> Path | DatabaseUrl:
    """The database at an address, or that of the workspace in a folder; `where` names the text in messages.

    A folder stands for its file, also where its `evaldesk.toml` names a server. Raises UsageError.
    """
    if "://" in text:
        return database_url(text, where)
    folder = workspace_folder(text)
    if not folder.is_dir():
        raise UsageError(f"{where}: {folder} is not a folder; name the folder that holds .evaldesk, or a server")
    return Settings(folder, (folder,)).database_file


def copy_store(source: Path | DatabaseUrl, target: Path | DatabaseUrl, watch: Watch) -> Sequence[TableCopy]:
    """Copy a database into an empty one, or finish a copy that broke off; gives the tables, which are alike.

    The rows of a database that this user's desk did not make stay those of others in a file of one's own. Raises
    ConflictError while somebody works in the source, and for a target that holds something else.
    """
    answers = Answers(os.environ)
    is_ours = isinstance(source, Path) and answers.is_made(source.parent)
    if isinstance(target, Path) and not is_ours and answers.is_made(target.parent):
        answers.mark_own(target.parent, is_made=False)
    return copy_database(place_of(source), place_of(target), watch, _check_still)


def _check_still(database: Database) -> None:
    store = Store(database, Clock(utc_now, lambda: 0.0))
    for run in store.runs.unfinished_runs():
        if is_held(store.runs, run):
            raise ConflictError(f"run {run.id} of {database.name} is being played; stop it, or wait for its end")
    for one in store.imports.list(is_unfinished=True):
        if is_at_work(one.owner, is_leased=one.is_leased):
            raise ConflictError(f"import {one.id} into {database.name} is under way; cancel it, or wait for its end")
    for session_id, turn in store.sessions.open_turns():
        if is_turn_played(turn):
            raise ConflictError(f"session {session_id} of {database.name} is answering; stop it, or wait for its end")
