"""Eval sets in files: found, read, saved without overwriting other changes, renamed, and put into the trash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from stat import S_IMODE
from threading import RLock

from evaldesk.durable_files import (
    create_file,
    is_same_file,
    make_folder,
    move_file,
    prepared_file,
    replace_file,
)
from evaldesk.errors import ConflictError, DiskError, FormatError, LossError, NotFoundError, UsageError
from evaldesk.formats import evalset_format, format_of, losses, read_evalset, write_evalset
from evaldesk.formats.forms import form_named
from evaldesk.model import EvalSet
from evaldesk.model.stored import EvalSetFacts, EvalSetFile
from evaldesk.reading.json_stream import NotStreamedError
from evaldesk.reading.regular_file import bytes_of, check_folder, read_regular, version_of
from evaldesk.reading.strict_json import MAX_BYTES
from evaldesk.store.evalsets.case_index import IndexedCases
from evaldesk.store.evalsets.found import FoundFile, find_files, id_of_new, may_be_found, places_of
from evaldesk.store.evalsets.large import LargeSets, WholeContent, is_whole
from evaldesk.store.evalsets.lines import Lines, LineStore
from evaldesk.store.evalsets.names import check_free, check_name, identity_of, stem_and_suffix
from evaldesk.store.evalsets.set_writer import SetWriter
from evaldesk.store.evalsets.trash import InTrash, keep_in_trash, origin_of, put_in_trash, take_from_trash

NEW_SUFFIX = ".evalset.json"


class ChangedFileError(ConflictError):
    """The file changed since it was read; `theirs` is its present content, None when it is no eval set any more."""

    def __init__(self, message: str, *, version: str, their_version: str, theirs: EvalSet | None) -> None:
        super().__init__(message)
        self.version = version
        self.their_version = their_version
        self.theirs = theirs


@dataclass(frozen=True, slots=True)
class PreparedSet:
    """An eval set that is written and not in place yet.

    `put` puts it in place in one step, `take_back` undoes that; `id` and `path` are those that it has then, `version`
    is of its bytes.
    """

    id: str
    path: Path
    version: str
    write: Callable[[], None]
    take_back: Callable[[], None]


class EvalSetFiles:
    """The eval set files under some roots; new ones go to `folder`, deleted ones to `trash`. Threads may share it.

    `home` is the workspace, within which a file is known by its place.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        folder: Path,
        trash: Path,
        *,
        home: Path,
        lines: LineStore | None = None,
        indexes: Path | None = None,
        has_secrets: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self._home = Path(os.path.realpath(home))
        self._folder = Path(os.path.realpath(folder))
        self._trash = Path(os.path.realpath(trash))
        searched = (*(Path(os.path.realpath(root)) for root in roots), self._folder)
        self._roots = tuple(dict.fromkeys(searched))
        self._large = LargeSets(indexes or self._trash.with_name("indexes"))
        self._lines = Lines(self._facts, lines, has_secrets, self._large.sweep)
        self._known: dict[str, FoundFile] = {}
        self._gone: dict[str, FoundFile] = {}
        # Pages and the reading thread change these maps; methods that hold it call each other.
        self._lock = RLock()

    def list(self) -> list[EvalSetFile]:
        """The eval sets there are, by folder searched and path. Files that did not change are not read again."""
        with self._lock:
            self._look()
            return self._lines.of(self._known.values())

    @property
    def is_reading(self) -> bool:
        """Whether files are being read that a list did not wait for, or their lines being kept."""
        return self._lines.is_busy

    def file(self, file_id: str) -> EvalSetFile:
        """The line of one file in a list; folders are searched only for an unlisted file.

        That of a large file which nobody has read yet says that it is being read. Raises NotFoundError.
        """
        with self._lock:
            line = self._lines.of_one(self._find_file(file_id))
        if line is None:
            raise _not_here()
        return line

    def id_of(self, path: Path) -> str:
        """The id of a file; empty where it lies elsewhere. No file is read; a new one is searched for."""
        with self._lock:
            file_id = self._id_at(path)
            if file_id and path.is_file():
                return file_id
            if not may_be_found(path, self._roots):
                return ""
            self._look()
            return self._id_at(path)

    def identity_of(self, path: Path) -> str:
        """The id of the eval set in any file, served or not; nothing is searched."""
        return identity_of(path, self._home)

    def id_of_recorded(self, file_id: str, path: Path) -> str:
        """The id here of a file that had this id and path, maybe in another workspace; empty where it is not served.

        The folders are searched only where a file is at the place that id and path tell, or where they tell none.
        """
        if served_id := self.id_of(path):
            return served_id
        places = places_of(file_id, path, self._home)
        if places is None or any(may_be_found(place, self._roots) for place in places):
            with suppress(NotFoundError):
                return self.file(file_id).id
        return ""

    def moved_id(self, file_id: str) -> str:
        """The id of a file that was listed and that another program moved since; empty where that is not certain."""
        with self._lock:
            self._look()
            missing_file = self._gone.get(file_id)
            matching_ids = [file.id for file in self._known.values() if missing_file and file.is_same(missing_file)]
        return matching_ids[0] if len(matching_ids) == 1 else ""

    def read(self, file_id: str) -> tuple[EvalSet, str]:
        """The eval set, with LargeCases if it is large, and its version. Raises NotFoundError or FormatError."""
        with self._lock:
            file = self._find_file(file_id)
        cases = self._cases(file)
        if cases is not None:
            return cases.evalset, cases.facts.version
        with self._lock:
            data = _read(file)
            return _evalset(data, file.path.name), version_of(data)

    def save(self, file_id: str, evalset: EvalSet, version: str, *, as_new_form: bool = False) -> str:
        """Save over the version that was read, in the file's own format, and give the new version.

        `as_new_form` allows an old file to become a new one when its format cannot hold everything. Raises
        ChangedFileError when the file is another one by now, LossError, NotFoundError or FormatError.
        """
        with self._lock:
            file = self._find_file(file_id)
        cases = self._cases(file)
        if cases is not None:
            return self._save_large(file, cases, evalset, version)
        with self._lock:
            current = _read(file)
            if version_of(current) != version:
                current_set = None
                with suppress(FormatError):
                    current_set = _evalset(current, file.path.name)
                raise _change_error(file, version, version_of(current), current_set)
            data = _encode(evalset, format_of(current, file.path.name), as_new_form=as_new_form)
            if data != current:
                _evalset(data, file.path.name)
                replace_file(file.path, data)
            return version_of(data)

    def writer(self, file_id: str) -> Callable[[EvalSet], bytes]:
        """Gives the bytes that `save` would write; it raises LossError. Raises NotFoundError or FormatError itself."""
        with self._lock:
            file = self._find_file(file_id)
            return partial(_encode, file_format=format_of(_read(file), file.path.name), as_new_form=False)

    def create(self, name: str, evalset: EvalSet) -> str:
        """Write a new file in ADK's new form and give its id. Raises UsageError or ConflictError."""
        with self.prepared(name, evalset) as prepared:
            prepared.write()
            return prepared.id

    @contextmanager
    def prepared(self, name: str, evalset: EvalSet) -> Iterator[PreparedSet]:
        """A new file in ADK's new form, written and not in place yet. Raises as `create` does, and so may `put`."""
        check_name(name)
        path = self._folder / f"{name}{NEW_SUFFIX}"
        with self._lock:
            make_folder(self._folder)
            check_folder(path)
            check_free(path.name, os.listdir(path.parent))
            file_id = id_of_new(path, self._roots, self._home)
        with self._new_form(path, evalset) as content, prepared_file(path, content.data) as file:

            def write() -> None:
                file.create()
                self._tell(path, content.facts)

            yield PreparedSet(file_id, path, content.version, write, file.take_back)

    @contextmanager
    def prepared_over(self, file_id: str, evalset: EvalSet) -> Iterator[PreparedSet]:
        """Another eval set for a file, in ADK's new form; `put` keeps the old one in the trash.

        Raises NotFoundError, FormatError or DiskError, and so may `put`; the file holds the old set then.
        """
        with self._lock:
            path = self._find_file(file_id).path
            mode = S_IMODE(path.stat().st_mode)
        trash_entries: list[InTrash] = []

        def write() -> None:
            with self._lock:
                trash_entries.append(keep_in_trash(path, self._trash))
                try:
                    file.replace()
                except DiskError:
                    trash_entries.pop().discard()
                    raise
                self._tell(path, content.facts)

        def take_back() -> None:
            with self._lock:
                for entry in trash_entries:
                    replace_file(path, bytes_of(entry.folder / entry.name))
                    entry.discard()

        with self._new_form(path, evalset) as content, prepared_file(path, content.data, mode=mode) as file:
            yield PreparedSet(file_id, path, content.version, write, take_back)

    def holds(self, file_id: str, evalset: EvalSet) -> bool:
        """Whether the file has the text that `create` writes of this eval set. Raises NotFoundError, FormatError.

        A small file may be laid out otherwise, a large one is the same to the byte.
        """
        stored_set, version = self.read(file_id)
        path = self._find_file(file_id).path
        with self._new_form(path, evalset) as content:
            if isinstance(content, WholeContent):
                with self._new_form(path, stored_set) as stored_content:
                    return isinstance(stored_content, WholeContent) and _value(stored_content) == _value(content)
            for _ in content.data:
                pass
            return content.version == version

    def duplicate(self, file_id: str, name: str) -> str:
        """Copy a file beside itself under another name, in its own format, and give the copy's id."""
        check_name(name)
        with self._lock:
            file = self._find_file(file_id)
            target = file.path.with_name(name + stem_and_suffix(file.path)[1])
            check_folder(target)
            check_free(target.name, os.listdir(target.parent))
        cases = self._cases(file)
        if cases is None:
            create_file(target, _rename_in(_read(file), file, name, is_copy=True))
            return self._id_of(target)
        with self._large.content(replace(cases.evalset, id=name), target.name) as content:
            create_file(target, content.data)
        self._tell(target, content.facts)
        return self._id_of(target)

    def rename(self, file_id: str, name: str) -> str:
        """Give a file another name, in its folder, and give its new id. Raises as `create` and `read` do."""
        check_name(name)
        with self._lock:
            file = self._find_file(file_id)
            stem, suffix = stem_and_suffix(file.path)
            if stem == name:
                return file_id
            target = file.path.with_name(name + suffix)
            if not is_same_file(file.path, target):  # as a killed renaming leaves them
                check_free(target.name, set(os.listdir(target.parent)) - {file.path.name})
        cases = self._cases(file)
        facts = cases.facts if cases is not None else None
        with self._lock:
            if cases is None:
                data = _read(file)
                new_data = _rename_in(data, file, name, is_copy=False)
                if new_data != data:
                    replace_file(file.path, new_data)
            elif cases.facts.evalset_id == stem:
                with self._large.content(replace(cases.evalset, id=name), target.name) as content:
                    replace_file(file.path, content.data)
                facts = content.facts
            move_file(file.path, target)
            self._tell(target, facts)
            return self._id_of(target)

    def is_half_renamed(self, file_id: str, name: str) -> bool:
        """Whether a renaming to `name` was killed before the file lost its old name."""
        with self._lock:
            path = self._find_file(file_id).path
            return is_same_file(path, path.with_name(name + stem_and_suffix(path)[1]))

    def trash(self, file_id: str) -> str:
        """Move a file to the trash and give the token that restores it."""
        with self._lock:
            return put_in_trash(self._find_file(file_id).path, self._trash)

    def restore(self, token: str) -> str:
        """Bring a file back from the trash and give its id. Raises NotFoundError or ConflictError."""
        with self._lock:
            origin = origin_of(token, self._trash)
            if not any(origin.is_relative_to(root) for root in self._roots):
                raise UsageError(f"{origin.name} came from a folder that is not served now; start Evaldesk with it")
            return self._id_of(take_from_trash(token, self._trash))

    def _find_file(self, file_id: str) -> FoundFile:
        listed_file = self._known.get(file_id)
        file = listed_file and listed_file.as_it_is()
        if file:
            return file
        self._look()
        if file_id not in self._known:
            raise _not_here()
        return self._known[file_id]

    def _id_at(self, path: Path) -> str:
        return next((file.id for file in self._known.values() if file.path == path), "")

    def _look(self) -> None:
        files = find_files(self._roots, self._home)
        self._gone = {file_id: file for file_id, file in (self._gone | self._known).items() if file_id not in files}
        self._known = files

    def _id_of(self, path: Path) -> str:
        file_id = self.id_of(path)
        if not file_id:
            raise UsageError(f"{path.name} is written, but there are too many files to list it; serve fewer folders")
        return file_id

    def _facts(self, file: FoundFile) -> EvalSetFacts | None:
        """The list facts of the file; None for other JSON in an eval folder."""
        if is_whole(file.size):
            return _facts(file)
        try:
            return self._large.facts(file)
        except NotStreamedError:
            return _facts(file)
        except (FormatError, OSError) as error:
            if file.size <= MAX_BYTES and isinstance(error, FormatError):
                return _facts(file)  # of several faults the whole reader tells the first
            return EvalSetFacts(error=str(error)) if file.is_named else None

    def _cases(self, file: FoundFile) -> IndexedCases | None:
        """The cases of a large file, which is indexed if necessary; None for a file that is read whole."""
        if is_whole(file.size):
            return None
        line = self._lines.now(file)
        if line is None or (line.error and file.size <= MAX_BYTES):
            return None
        if line.error:
            raise FormatError(line.error)
        return self._large.open_cases(file, line.version)

    def _save_large(self, file: FoundFile, cases: IndexedCases, evalset: EvalSet, version: str) -> str:
        if cases.facts.version != version:
            raise _change_error(file, version, cases.facts.version, cases.evalset)
        if isinstance(evalset.cases, IndexedCases) and evalset == replace(cases.evalset, cases=evalset.cases):
            return version
        mode = S_IMODE(file.path.stat().st_mode)
        with (
            self._large.content(evalset, file.path.name) as content,
            prepared_file(file.path, content.data, mode=mode) as prepared,
            self._lock,
        ):
            if content.version == version:
                return version
            if file.as_it_is() != file:
                raise _change_error(file, version, "", None)
            prepared.replace()
            self._tell(file.path, content.facts)
        return content.version

    @contextmanager
    def _new_form(self, path: Path, evalset: EvalSet) -> Iterator[WholeContent | SetWriter]:
        """A set as the bytes of a new file at the path. Raises FormatError for an unreadable one."""
        named_set = evalset if evalset.id else replace(evalset, id=stem_and_suffix(path)[0])
        with self._large.content(named_set, path.name) as content:
            if isinstance(content, WholeContent):
                _evalset(content.data, path.name)
            yield content

    def _tell(self, path: Path, facts: EvalSetFacts | None) -> None:
        """Spare the reading of a large set that was just written."""
        if facts:
            self._lines.tell(path, facts)


def _value(content: WholeContent) -> object:
    return json.loads(content.data)


def _not_here() -> NotFoundError:
    return NotFoundError(
        "This eval set is not here: it was deleted or renamed, or lies in a folder that is not served."
    )


def _facts(file: FoundFile) -> EvalSetFacts | None:
    """The list facts of the file; None for other JSON in an eval folder."""
    try:
        data = read_regular(file.path, MAX_BYTES)
        if not file.is_named:
            format_of(data, file.path.name)
    except (FormatError, OSError) as error:
        return EvalSetFacts(error=str(error)) if file.is_named else None
    try:
        evalset = _evalset(data, file.path.name)
    except FormatError as error:
        return EvalSetFacts(version=version_of(data), error=str(error))
    return EvalSetFacts(
        version=version_of(data),
        format=evalset_format(evalset),
        evalset_id=evalset.id,
        title=evalset.name,
        description=evalset.description,
        n_cases=len(evalset.cases),
        n_turns=sum(len(case.turns) for case in evalset.cases),
        tags=tuple(sorted({tag for case in evalset.cases for tag in case.tags})),
        app_names=tuple(sorted({case.initial_session.app_name for case in evalset.cases if case.initial_session})),
    )


@lru_cache(maxsize=2)
def _evalset(data: bytes, source: str) -> EvalSet:
    """The eval set that a file holds; a list, a page and a save read the same bytes one after another."""
    return read_evalset(data, source=source)


def _read(file: FoundFile) -> bytes:
    try:
        return read_regular(file.path, MAX_BYTES)
    except OSError as error:
        raise FormatError(f"the file cannot be read: {error.strerror}", source=file.path.name) from error


def _encode(evalset: EvalSet, file_format: str, *, as_new_form: bool) -> bytes:
    loss_texts = losses(evalset, file_format)
    if not loss_texts:
        return write_evalset(evalset, file_format)
    if not as_new_form:
        title = form_named(file_format).title
        reason = f"the form of this file, {title}, cannot hold all of this; save the file in ADK's new format"
        raise LossError(f"{reason}: {'; '.join(loss_texts[:3])}", loss_texts)
    return write_evalset(evalset, "adk")


def _rename_in(data: bytes, file: FoundFile, name: str, *, is_copy: bool) -> bytes:
    """The bytes under another name: a set called as its file follows it; a copy always does, ids being unique."""
    evalset = _evalset(data, file.path.name)
    stem, _ = stem_and_suffix(file.path)
    if evalset_format(evalset) != "adk" or not (is_copy or evalset.id == stem):
        return data
    return write_evalset(replace(evalset, id=name))


def _change_error(file: FoundFile, version: str, their_version: str, current_set: EvalSet | None) -> ChangedFileError:
    message = f"{file.path.name} changed on disk since you opened it; look at both versions before you save"
    return ChangedFileError(message, version=version, their_version=their_version, theirs=current_set)
