"""Eval sets in files: found, read, saved without overwriting what changed, renamed, and put into the trash."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock

from evaldesk.errors import ConflictError, FormatError, NotFoundError, UsageError
from evaldesk.formats import evalset_format, format_of, losses, read_evalset, write_evalset
from evaldesk.formats.atomic_file import write_atomically, write_new
from evaldesk.formats.strict_json import MAX_BYTES
from evaldesk.model import EvalSet
from evaldesk.store.evalset_names import check_free, check_name, stem_and_suffix
from evaldesk.store.evalset_search import FoundFile, find_files
from evaldesk.store.evalset_trash import origin_of, put_in_trash, take_from_trash
from evaldesk.store.regular_file import check_folder, read_regular, version_of

NEW_SUFFIX = ".evalset.json"


@dataclass(frozen=True, slots=True)
class EvalSetFile:
    """What a list shows of one file. `error` says why a file that means to be an eval set cannot be read.

    `place` is the path under the folder that was searched; `modified_ns` is the file's own time.
    """

    id: str
    name: str
    place: str
    path: Path
    size: int
    modified_ns: int
    version: str = ""
    format: str = ""
    evalset_id: str = ""
    title: str | None = None
    description: str | None = None
    n_cases: int = 0
    n_turns: int = 0
    tags: tuple[str, ...] = ()
    error: str = ""


class ChangedFileError(ConflictError):
    """The file changed since it was read; `theirs` is what it holds now, None when it is no eval set any more."""

    def __init__(self, message: str, *, version: str, their_version: str, theirs: EvalSet | None) -> None:
        super().__init__(message)
        self.version = version
        self.their_version = their_version
        self.theirs = theirs


class LossError(UsageError):
    """The file's own format cannot hold what is to be saved; `losses` says what, one sentence each."""

    def __init__(self, message: str, lost: tuple[str, ...]) -> None:
        super().__init__(message)
        self.losses = lost


class EvalSetFiles:
    """The eval set files under some roots; new ones go to `folder`, deleted ones to `trash`. Threads may share it."""

    def __init__(self, roots: Sequence[Path], folder: Path, trash: Path) -> None:
        self._folder = Path(os.path.realpath(folder))
        self._trash = Path(os.path.realpath(trash))
        searched = (*(Path(os.path.realpath(root)) for root in roots), self._folder)
        self._roots = tuple(dict.fromkeys(searched))
        self._shown: dict[Path, tuple[tuple[int, int, int], EvalSetFile | None]] = {}
        self._known: dict[str, FoundFile] = {}
        self._lock = RLock()

    def list(self) -> list[EvalSetFile]:
        """The eval sets there are, by folder searched and path. Files that did not change are not read again."""
        with self._lock:
            found = self._known = find_files(self._roots)
            shown = {file.path: self._show(file) for file in found.values()}
            self._shown = {path: self._shown[path] for path in shown}
            return [file for file in shown.values() if file is not None]

    def file(self, file_id: str) -> EvalSetFile:
        """What a list shows of one file; the folders are not searched for one that was listed. Raises NotFoundError."""
        with self._lock:
            shown = self._show(self._found(file_id))
            if shown is None:
                raise _not_here()
            return shown

    def read(self, file_id: str) -> tuple[EvalSet, str]:
        """The eval set and its version. Raises NotFoundError or FormatError."""
        with self._lock:
            file = self._found(file_id)
            data = _read(file)
            return read_evalset(data, source=file.path.name), version_of(data)

    def save(self, file_id: str, evalset: EvalSet, version: str, *, as_new_form: bool = False) -> str:
        """Save over the version that was read, in the file's own format, and give the new version.

        `as_new_form` allows an old file to become a new one when its format cannot hold everything. Raises
        ChangedFileError when the file is another one by now, LossError, NotFoundError or FormatError.
        """
        with self._lock:
            file = self._found(file_id)
            current = _read(file)
            if version_of(current) != version:
                raise _changed(file, current, version)
            data = _written(evalset, format_of(current, file.path.name), as_new_form=as_new_form)
            if data != current:
                read_evalset(data, source=file.path.name)
                write_atomically(file.path, data)
            return version_of(data)

    def create(self, name: str, evalset: EvalSet) -> str:
        """Write a new file in ADK's new form and give its id. Raises UsageError or ConflictError."""
        check_name(name)
        with self._lock:
            self._folder.mkdir(parents=True, exist_ok=True)
            data = write_evalset(evalset if evalset.id else replace(evalset, id=name))
            return self._write_new(self._folder / f"{name}{NEW_SUFFIX}", data)

    def duplicate(self, file_id: str, name: str) -> str:
        """Copy a file beside itself under another name, in its own format, and give the copy's id."""
        check_name(name)
        with self._lock:
            file = self._found(file_id)
            data = _read(file)
            _, suffix = stem_and_suffix(file.path)
            return self._write_new(file.path.with_name(name + suffix), _renamed(data, file, name, is_copy=True))

    def rename(self, file_id: str, name: str) -> str:
        """Give a file another name, in its folder, and give its new id. Raises as `create` and `read` do."""
        check_name(name)
        with self._lock:
            file = self._found(file_id)
            stem, suffix = stem_and_suffix(file.path)
            if stem == name:
                return file_id
            target = file.path.with_name(name + suffix)
            data = _read(file)
            check_free(target.name, set(os.listdir(target.parent)) - {file.path.name})
            renamed = _renamed(data, file, name, is_copy=False)
            if renamed != data:
                write_atomically(file.path, renamed)
            file.path.rename(target)
            return self._id_of(target)

    def trash(self, file_id: str) -> str:
        """Move a file to the trash and give the token that restores it."""
        with self._lock:
            return put_in_trash(self._found(file_id).path, self._trash)

    def restore(self, token: str) -> str:
        """Bring a file back from the trash and give its id. Raises NotFoundError or ConflictError."""
        with self._lock:
            origin = origin_of(token, self._trash)
            if not any(origin.is_relative_to(root) for root in self._roots):
                raise UsageError(f"{origin.name} came from a folder that is not served now; start Evaldesk with it")
            return self._id_of(take_from_trash(token, self._trash))

    def _found(self, file_id: str) -> FoundFile:
        known = self._known.get(file_id)
        file = known and known.as_it_is()
        if file:
            return file
        self._known = find_files(self._roots)
        if file_id not in self._known:
            raise _not_here()
        return self._known[file_id]

    def _id_of(self, path: Path) -> str:
        self._known = find_files(self._roots)
        file_id = next((file.id for file in self._known.values() if file.path == path), None)
        if file_id is None:
            raise UsageError(f"{path.name} is written, but there are too many files to list it; serve fewer folders")
        return file_id

    def _write_new(self, path: Path, data: bytes) -> str:
        check_folder(path)
        check_free(path.name, os.listdir(path.parent))
        read_evalset(data, source=path.name)
        write_new(path, data)
        return self._id_of(path)

    def _show(self, file: FoundFile) -> EvalSetFile | None:
        stamp = (file.modified_ns, file.size, file.inode)
        known = self._shown.get(file.path)
        if known is None or known[0] != stamp or (known[1] and known[1].id != file.id):
            known = (stamp, _shown(file))
            self._shown[file.path] = known
        return known[1]


def _not_here() -> NotFoundError:
    return NotFoundError(
        "This eval set is not here: it was deleted or renamed, or lies in a folder that is not served."
    )


def _shown(file: FoundFile) -> EvalSetFile | None:
    """What a list shows of the file; None when it is some other JSON in an eval folder."""
    stem, _ = stem_and_suffix(file.path)
    bare = EvalSetFile(file.id, stem, file.place, file.path, file.size, file.modified_ns)
    try:
        data = read_regular(file.path, MAX_BYTES)
        if not file.is_named:
            format_of(data, file.path.name)
    except (FormatError, OSError) as error:
        return replace(bare, error=str(error)) if file.is_named else None
    try:
        evalset = read_evalset(data, source=file.path.name)
    except FormatError as error:
        return replace(bare, version=version_of(data), error=str(error))
    return replace(
        bare,
        version=version_of(data),
        format=evalset_format(evalset),
        evalset_id=evalset.id,
        title=evalset.name,
        description=evalset.description,
        n_cases=len(evalset.cases),
        n_turns=sum(len(case.turns) for case in evalset.cases),
        tags=tuple(sorted({tag for case in evalset.cases for tag in case.tags})),
    )


def _read(file: FoundFile) -> bytes:
    try:
        return read_regular(file.path, MAX_BYTES)
    except OSError as error:
        raise FormatError(f"the file cannot be read: {error.strerror}", source=file.path.name) from error


def _written(evalset: EvalSet, file_format: str, *, as_new_form: bool) -> bytes:
    lost = losses(evalset, file_format)
    if not lost:
        return write_evalset(evalset, file_format)
    if not as_new_form:
        reason = "ADK's old form, which this file has, cannot hold all of this; save it in the new form"
        raise LossError(f"{reason}: {'; '.join(lost[:3])}", lost)
    return write_evalset(evalset, "adk")


def _renamed(data: bytes, file: FoundFile, name: str, *, is_copy: bool) -> bytes:
    """The bytes under another name: a set called as its file follows it; a copy always does, ids being unique."""
    evalset = read_evalset(data, source=file.path.name)
    stem, _ = stem_and_suffix(file.path)
    if evalset_format(evalset) != "adk" or not (is_copy or evalset.id == stem):
        return data
    return write_evalset(replace(evalset, id=name))


def _changed(file: FoundFile, current: bytes, version: str) -> ChangedFileError:
    try:
        theirs = read_evalset(current, source=file.path.name)
    except FormatError:
        theirs = None
    return ChangedFileError(
        f"{file.path.name} changed on disk since you opened it; look at both versions before you save",
        version=version,
        their_version=version_of(current),
        theirs=theirs,
    )
