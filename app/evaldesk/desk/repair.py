"""Files of a workspace that a kill, a full disk or a power failure left half: found, and mended when asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evaldesk.desk.evalsets.case_trash import added_cases, deleted_cases, edited_cases
from evaldesk.desk.imports.uploads import Uploads
from evaldesk.durable_files import create_file, leftovers, make_folder, move_file, remove_file, remove_leftovers
from evaldesk.errors import ConflictError, DamagedDatabaseError, EvaldeskError, FormatError
from evaldesk.formats import read_evalset
from evaldesk.model.conclusion import counted
from evaldesk.reading.regular_file import check_regular, read_regular, version_of
from evaldesk.reading.strict_json import MAX_BYTES
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.evalsets.found import find_files, folders_of
from evaldesk.store.evalsets.half_files import HalfFile, half_file
from evaldesk.store.evalsets.names import stem_and_suffix
from evaldesk.store.evalsets.trash import InTrash, trash_remains
from evaldesk.store.lock import LOCK_NAME, address_of_holder
from evaldesk.store.store import repair_marker


@dataclass(frozen=True, slots=True)
class Fault:
    """A broken part of the workspace, the words of its repair, and the repair, which returns a report."""

    fault: str
    plan: str
    mend: Callable[[], str]


def database_faults(settings: Settings) -> Iterator[Fault]:
    """A database whose pages are damaged, or whose repair was killed. Takes seconds for each gigabyte."""
    path = settings.database_file
    if settings.store:
        return  # the server checks and repairs its own
    plan = "recovers the rows that can be read, and keeps the damaged file"
    if repair_marker(path).exists():
        yield Fault(f"the repair of {path} is not finished", "finishes it", lambda: _recover_database(path))
    elif path.exists():
        try:
            with Store.open(path, must_exist=True) as store:
                store.check()
        except DamagedDatabaseError as error:
            yield Fault(str(error), plan, lambda: _recover_database(path))
        except EvaldeskError:
            return  # of a newer Evaldesk, or of another program


def _recover_database(path: Path) -> str:
    from evaldesk.store.recovery import recover

    return recover(path)


def file_faults(settings: Settings) -> Iterator[Fault]:
    """The broken files of a workspace; no file that a living process writes is among them."""
    yield from _leftovers(settings)
    yield from _half_sets(settings)
    yield from _unreadable_cases(settings)
    yield from _unknown_uploads(settings)
    yield from _trash_remains(settings)
    yield from _dead_lock(settings)


def _leftovers(settings: Settings) -> Iterator[Fault]:
    trash = settings.state_folder / "trash"
    own = (settings.state_folder, settings.state_folder / "uploads", trash, *trash.glob("*"))
    searched = folders_of(dict.fromkeys((*settings.roots, settings.evalset_folder)))
    folders = list(dict.fromkeys((*searched, *(folder for folder in own if folder.is_dir()))))
    words = "of writers that were killed"
    if n_found := sum(len(leftovers(folder)) for folder in folders):
        yield Fault(
            f"{counted(n_found, 'unfinished file')} {words}",
            "removes them",
            lambda: f"{counted(sum(map(remove_leftovers, folders)), 'unfinished file')} {words}, now removed",
        )


def _half_sets(settings: Settings) -> Iterator[Fault]:
    for file in find_files((*settings.roots, settings.evalset_folder), settings.workspace).values():
        with suppress(OSError, FormatError):
            data = read_regular(file.path, MAX_BYTES)
            if file.is_named and len(data) <= MAX_BYTES and not _is_json(data) and (half := half_file(data)):
                yield _half_set(file.path, half, version_of(data), settings)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _half_set(path: Path, half: HalfFile, version: str, settings: Settings) -> Fault:
    n_cases = _n_cases(half)
    stem, suffix = stem_and_suffix(path)
    recovered_path = path.with_name(f"{stem}_recovered{suffix}")
    case_words = f"its {counted(n_cases, 'whole case')}"

    def mend() -> str:
        if version_of(read_regular(path, MAX_BYTES)) != version:
            raise ConflictError("it was changed meanwhile; run the command again")
        if half.whole_cases and n_cases:
            _create_once(recovered_path, half.whole_cases)
        new_place = _move_aside(path, settings)
        return f"{path} ended too early: moved to {new_place}" + (
            f", {case_words} kept as {recovered_path.name}" if n_cases else ""
        )

    plan = f"moves it into the trash folder{f' and keeps {case_words} as {recovered_path.name}' if n_cases else ''}"
    return Fault(f"{path} ends too early and cannot be read", plan, mend)


def _n_cases(half: HalfFile) -> int:
    """The number of whole cases; 0 where the text in front of the cut is no eval set."""
    if half.whole_cases is None:
        return 0
    try:
        return len(read_evalset(half.whole_cases, source="").cases)
    except FormatError:
        return 0


def _create_once(path: Path, data: bytes) -> None:
    """Write a new file; one with these bytes is there already after a repair that was killed."""
    try:
        create_file(path, data)
    except ConflictError:
        if read_regular(path, MAX_BYTES) != data:
            raise


def _unreadable_cases(settings: Settings) -> Iterator[Fault]:
    folder = settings.state_folder / "trash"
    for trash, title in (
        (deleted_cases(folder), "deleted cases"),
        (edited_cases(folder), "replaced expectations"),
        (added_cases(folder), "undo of copied cases"),
    ):
        for path in sorted(folder.glob(f"*.{trash.kind}.json")):
            if path.name.partition(".")[0] not in trash and _is_regular(path):
                yield _aside(path, f"{title} that cannot be read", settings)


def _trash_remains(settings: Settings) -> Iterator[Fault]:
    for item, has_file in trash_remains(settings.state_folder / "trash"):
        yield _remains(item, settings, has_file=has_file)


def _remains(item: InTrash, settings: Settings, *, has_file: bool) -> Fault:
    path = item.folder / item.name
    what = f"{path} is a deleted file of unknown place" if has_file else f"{item.folder} is a folder without a file"

    def mend() -> str:
        where = f"moved to {_move_aside(path, settings)}" if has_file else "now removed"
        item.discard()
        return f"{what}: {where}"

    return Fault(what, "moves it aside in the trash folder" if has_file else "removes the folder", mend)


def _unknown_uploads(settings: Settings) -> Iterator[Fault]:
    folder = settings.state_folder / "uploads"
    tokens = {upload.token for upload in Uploads(folder).list()}
    for path in sorted(folder.glob("*.upload")):
        if path.stem not in tokens and _is_regular(path):
            yield _aside(path, "an upload that no import knows", settings)


def _aside(path: Path, what: str, settings: Settings) -> Fault:
    def mend() -> str:
        return f"{path} is {what}: moved to {_move_aside(path, settings)}"

    return Fault(f"{path} is {what}", "moves it aside in the trash folder", mend)


def _move_aside(path: Path, settings: Settings) -> Path:
    """Move a file into the trash folder under a name that says it is unreadable; a killed move is finished."""
    check_regular(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    target = settings.state_folder / "trash" / f"{path.name}.{digest.hexdigest()[:16]}.unreadable"
    make_folder(target.parent)
    try:
        move_file(path, target)
    except ConflictError:  # the same bytes were moved there before
        remove_file(path)
    return target


def _is_regular(path: Path) -> bool:
    try:
        check_regular(path)
    except (EvaldeskError, OSError):
        return False
    return True


def _dead_lock(settings: Settings) -> Iterator[Fault]:
    path = settings.state_folder / LOCK_NAME
    with suppress(OSError, FormatError):
        if not address_of_holder(path.parent) and read_regular(path, 1000):
            # Whoever holds the workspace during the repair empties the file at its end.
            yield Fault(
                f"{path} names a desk that is gone",
                "empties it",
                lambda: f"{path} named a desk that is gone; now empty",
            )
