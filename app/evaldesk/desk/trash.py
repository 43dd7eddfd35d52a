"""The trash of a workspace: deleted eval sets, cases, chats and runs, listed, restored, and removed for good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from evaldesk.desk.desk import Desk
from evaldesk.errors import NotFoundError
from evaldesk.settings import Settings
from evaldesk.store.evalsets.trash import empty_trash, list_trash
from evaldesk.store.store import check_exists

EVALSET, CASES, SESSION, RUN = "eval set", "cases", "chat", "run"


@dataclass(frozen=True, slots=True)
class TrashItem:
    """A deleted eval set, chat or run, or cases that were deleted together; `parent` is the eval set of cases."""

    id: str
    kind: str
    name: str
    deleted_at: datetime
    parent: str = ""


@contextmanager
def open_desk(settings: Settings) -> Iterator[Desk]:
    """A desk whose database is open; it plays nothing. Raises WorkspaceError without a database."""
    check_exists(settings.database)
    desk = Desk.open(settings)
    try:
        yield desk
    finally:
        desk.store.close()


def trash_items(desk: Desk) -> Sequence[TrashItem]:
    """Everything in the trash, the newest first."""
    folder = desk.settings.state_folder / "trash"
    found = [TrashItem(token, EVALSET, name, at) for token, name, at in list_trash(folder)]
    names = {file.id: file.name for file in desk.evalsets.list()}
    for token, set_id, ids, at in desk.evalsets.cases.in_trash():
        name = f"{', '.join(ids)} of {names.get(set_id, 'an eval set that is gone')}"
        found.append(TrashItem(token, CASES, name, at, set_id))
    found += [TrashItem(key, SESSION, title or "Untitled", at) for key, title, at in desk.store.sessions.deleted()]
    for run, at in desk.store.runs.deleted():
        trials = "1 trial" if run.n_trials == 1 else f"{run.n_trials:,} trials"
        name = f"{run.id}: {run.config.agent.id} on {run.config.evalset_id}, {trials}"
        found.append(TrashItem(f"run-{run.id}", RUN, name, at))
    return sorted(found, key=lambda item: (item.deleted_at, item.id), reverse=True)


def restore_item(desk: Desk, item_id: str) -> TrashItem:
    """Bring an item back. Raises NotFoundError, ConflictError, UsageError or DiskError."""
    items = {item.id: item for item in trash_items(desk)}
    if item_id not in items:
        raise NotFoundError.among("item in the trash", item_id, items)
    item = items[item_id]
    if item.kind == EVALSET:
        desk.evalsets.restore(item_id)
    elif item.kind == CASES:
        desk.evalsets.cases.restore(item.parent, item_id)
    elif item.kind == RUN:
        desk.store.runs.restore(int(item_id.removeprefix("run-")))
    else:
        desk.store.sessions.restore(item_id)
    return item


def empty(desk: Desk) -> int:
    """Remove everything in the trash for good; gives the number of items."""
    items = trash_items(desk)
    for item in items:
        if item.kind == CASES:
            desk.evalsets.cases.discard(item.id)
    empty_trash(desk.settings.state_folder / "trash")
    desk.store.sessions.remove_deleted()
    desk.store.runs.remove_deleted()
    return len(items) - len(trash_items(desk))
