"""The trash of a workspace: deleted eval sets, cases, chats, runs and replaced expectations, restored or removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.case_trash import TrashFile
from evaldesk.desk.trust import check_store
from evaldesk.errors import NotFoundError, WorkspaceError
from evaldesk.model.conclusion import counted
from evaldesk.settings import Settings
from evaldesk.store.database import FreedSpace
from evaldesk.store.evalsets.trash import InTrash, list_trash
from evaldesk.store.runs.run_store import DELETED_RUNS_KEPT
from evaldesk.store.store import check_exists

EVALSET, CASES, EDITS, SESSION, RUN = "eval set", "cases", "expectations", "chat", "run"


@dataclass(frozen=True, slots=True)
class TrashItem:
    """A deleted eval set, chat or run, or cases that were deleted together or had their expectations changed.

    `parent` is the eval set of cases.

    The size of a run is about that of its transcripts. `kept_until` is None where only a person empties the trash.
    """

    id: str
    kind: str
    name: str
    deleted_at: datetime
    n_bytes: int
    parent: str = ""
    kept_until: datetime | None = None


@contextmanager
def open_desk(settings: Settings) -> Iterator[Desk]:
    """A desk of the workspace and its copied samples, which plays nothing. Raises WorkspaceError without a database."""
    check_store(settings)
    check_exists(settings.database)
    desk = Desk.open(replace(settings, roots=(*settings.roots, settings.samples_folder)))
    try:
        yield desk
    finally:
        desk.store.close()


def trash_items(desk: Desk) -> Sequence[TrashItem]:
    """Everything in the trash, the newest first."""
    items = [TrashItem(token, EVALSET, name, at, size) for token, name, at, size in list_trash(_folder(desk))]
    names = {file.id: file.name for file in desk.evalsets.list()}
    for deleted in desk.evalsets.cases.deleted.files():
        items.append(_case_item(CASES, deleted, [case.id for _, case in deleted.rows], names))
    for edited in desk.evalsets.cases.edits.files():
        items.append(_case_item(EDITS, edited, [before.id for before, _ in edited.rows], names))
    for key, title, at, size in desk.store.sessions.deleted():
        items.append(TrashItem(key, SESSION, title or "Untitled", at, size))
    runs = desk.store.runs.deleted()
    sizes = desk.store.runs.sizes([run.id for run, _ in runs])
    for run, at in runs:
        trials = counted(run.n_trials, "trial")
        name = f"{run.id}: {run.config.agent.id} on {run.config.evalset_name}, {trials}"
        items.append(TrashItem(f"run-{run.id}", RUN, name, at, sizes[run.id], kept_until=at + DELETED_RUNS_KEPT))
    return sorted(items, key=lambda item: (item.deleted_at, item.id), reverse=True)


def _case_item(kind: str, file: TrashFile[Any], case_ids: Sequence[str], names: Mapping[str, str]) -> TrashItem:
    """The item of cases that were deleted or edited together; `names` are those of the eval sets by their ids."""
    name = f"{', '.join(case_ids)} of {names.get(file.evalset_id, 'an eval set that is gone')}"
    name += ", before a change was accepted" if kind == EDITS else ""
    return TrashItem(file.token, kind, name, file.changed_at, file.n_bytes, parent=file.evalset_id)


def restore_item(desk: Desk, item_id: str) -> tuple[TrashItem, str]:
    """Bring an item back; gives it and the id of the set, chat or run, for cases of their set.

    Raises NotFoundError, ConflictError, UsageError or DiskError.
    """
    items = {item.id: item for item in trash_items(desk)}
    if item_id not in items:
        raise NotFoundError.among("item in the trash", item_id, items)
    item = items[item_id]
    if item.kind == EVALSET:
        return item, desk.evalsets.restore(item_id)
    if item.kind == CASES:
        desk.evalsets.cases.restore(item.parent, item_id)
        return item, item.parent
    if item.kind == EDITS:
        desk.evalsets.cases.take_back(item.parent, item_id)
        return item, item.parent
    if item.kind == RUN:
        run_id = item_id.removeprefix("run-")
        desk.store.runs.restore(int(run_id))
        return item, run_id
    desk.store.sessions.restore(item_id)
    return item, item_id


def empty(desk: Desk, until: datetime) -> tuple[int, FreedSpace]:
    """Remove all items deleted up to `until` for good; returns their number and their space."""
    items = [item for item in trash_items(desk) if item.deleted_at <= until]
    for item in items:
        if item.kind == CASES:
            desk.evalsets.cases.deleted.discard(item.id)
        elif item.kind == EDITS:
            desk.evalsets.cases.edits.discard(item.id)
        elif item.kind == EVALSET:
            InTrash(item.id, _folder(desk) / item.id, item.name).discard()
    for step in desk.evalsets.steps.added.files():  # nothing is lost with it but its undo
        if step.changed_at <= until:
            desk.evalsets.steps.added.discard(step.token)
    desk.store.sessions.remove_deleted(until)
    desk.store.runs.remove_deleted(until=until)
    with suppress(WorkspaceError):  # the next desk looks again
        desk.store.search.forget_removed()
    remaining_ids = {item.id for item in trash_items(desk)}
    return sum(item.id not in remaining_ids for item in items), desk.store.give_back()


def _folder(desk: Desk) -> Path:
    return desk.settings.state_folder / "trash"
