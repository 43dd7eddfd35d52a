"""The cases of an eval set: found by an opaque key, and changed one at a time.

Each change is made to the file as it is now. A case that changed since it was read is refused; changes of other cases
of the same file are kept and are no conflict.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from evaldesk.desk.evalsets.names import check_case_id, free_name
from evaldesk.durable_files import make_folder, remove_file, replace_file
from evaldesk.errors import ConflictError, DiskError, EvaldeskError, NotFoundError
from evaldesk.formats import case_from_json, case_from_text, case_to_json, evalset_format
from evaldesk.model import Case, EvalSet, JsonValue, SessionInit
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES
from evaldesk.store.regular_file import read_regular
from evaldesk.wire import from_json, to_json

MAX_TRIES = 5

_TOKEN = re.compile(r"[a-f0-9]{16}")

T = TypeVar("T")


class CaseFiles(Protocol):
    """The part of the eval set files that the cases use."""

    def read(self, file_id: str) -> tuple[EvalSet, str]:
        """An eval set and the version of its file."""

    def save(self, file_id: str, evalset: EvalSet, version: str, *, as_new_form: bool = False) -> str:
        """Write over that version. Raises ConflictError when the file has another, LossError."""


class CaseNameTakenError(ConflictError):
    """The eval set has a case of that name; `free` is a name it does not have."""

    def __init__(self, case_id: str, free: str) -> None:
        super().__init__(f"the eval set already has a case named {case_id!r}; {free!r} is free")
        self.case_id = case_id
        self.free = free


class CaseChangedError(ConflictError):
    """The case has changed since it was read."""


@dataclass(frozen=True, slots=True)
class FoundCase:
    """A case in its set; `version` changes when the case does."""

    evalset: EvalSet
    index: int
    key: str
    version: str

    @property
    def case(self) -> Case:
        """The case itself."""
        return self.evalset.cases[self.index]


def case_keys(cases: Sequence[Case]) -> list[str]:
    """A key for each case that fits into an address for any id; the same as long as the id is."""
    keys: list[str] = []
    seen: dict[str, int] = {}
    for case in cases:
        seen[case.id] = seen.get(case.id, 0) + 1
        keys.append(case_key(case.id, seen[case.id]))
    return keys


def case_key(case_id: str, occurrence: int = 1) -> str:
    """The key of the case with that id; `occurrence` counts the cases of one id, from 1."""
    digest = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).digest()[:12]
    key = base64.urlsafe_b64encode(digest).decode()
    return key if occurrence == 1 else f"{key}.{occurrence}"


def case_version(case: Case) -> str:
    """A hash of all that the case says in its file."""
    return hashlib.sha256(to_json(case_to_json(case))).hexdigest()[:16]


class _KeptCase(msgspec.Struct, frozen=True):
    index: int
    case: dict[str, JsonValue]


class _Kept(msgspec.Struct, frozen=True):
    """A file of deleted cases in the trash."""

    evalset: str
    cases: tuple[_KeptCase, ...]


class CaseDesk:
    """The cases of all eval sets of a workspace; `trash` is where deleted ones go.

    Writing contents that ADK's old form cannot hold to such a file raises LossError, unless `as_new_form`.
    """

    def __init__(self, files: CaseFiles, evalset: Callable[[str], EvalSet], trash: Path) -> None:
        self._files = files
        self._evalset = evalset
        self._trash = trash

    def find(self, evalset_id: str, key: str) -> FoundCase:
        """The case with that key. Raises NotFoundError."""
        return _find(self._evalset(evalset_id), key)

    def add(self, evalset_id: str, case: Case, *, as_new_form: bool = False) -> FoundCase:
        """Put a new case at the end. Raises CaseNameTakenError."""

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            _refuse_taken(evalset.cases, case.id)
            return replace(evalset, cases=(*evalset.cases, case)), case_key(case.id)

        return self._found(evalset_id, change, as_new_form)

    def put(self, evalset_id: str, case: Case, *, as_new_form: bool = False) -> FoundCase:
        """Put a case in the place of the one with the same id, or at the end when there is none."""

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            index = next((i for i, other in enumerate(evalset.cases) if other.id == case.id), len(evalset.cases))
            cases = (*evalset.cases[:index], case, *evalset.cases[index + 1 :])
            return replace(evalset, cases=cases), case_key(case.id)

        return self._found(evalset_id, change, as_new_form)

    def save(
        self, evalset_id: str, key: str, case: Case, version: str | None, *, as_new_form: bool = False
    ) -> FoundCase:
        """Put `case` in the place of the one with that key.

        `version` is that of the case as it was read; None saves over any version. Raises CaseChangedError,
        CaseNameTakenError when the new id is another case's, NotFoundError.
        """

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            found = _find(evalset, key)
            if version is not None and found.version != version and found.case != case:
                raise CaseChangedError("this case changed since you opened it")
            others = evalset.cases[: found.index] + evalset.cases[found.index + 1 :]
            if case.id != found.case.id:
                _refuse_taken(others, case.id)
            cases = (*evalset.cases[: found.index], case, *evalset.cases[found.index + 1 :])
            new_key = key if case.id == found.case.id else case_key(case.id)
            return replace(evalset, cases=cases), new_key

        return self._found(evalset_id, change, as_new_form)

    def duplicate(self, evalset_id: str, key: str) -> FoundCase:
        """Put a copy after the case, under a free name."""

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            found = _find(evalset, key)
            copy = replace(found.case, id=free_name(f"{found.case.id}_copy", {case.id for case in evalset.cases}))
            cases = (*evalset.cases[: found.index + 1], copy, *evalset.cases[found.index + 1 :])
            return replace(evalset, cases=cases), case_key(copy.id)

        return self._found(evalset_id, change)

    def move(self, evalset_id: str, key: str, step: int) -> FoundCase:
        """Move the case up (-1) or down (1); at the end it stays."""

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            found = _find(evalset, key)
            cases = list(evalset.cases)
            target = max(0, min(len(cases) - 1, found.index + step))
            cases.insert(target, cases.pop(found.index))
            return replace(evalset, cases=tuple(cases)), key

        return self._found(evalset_id, change)

    def delete(self, evalset_id: str, keys: Sequence[str]) -> str:
        """Take cases out of the set; the token brings them back. Raises NotFoundError."""
        token = secrets.token_hex(8)

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            found = sorted((_find(evalset, key) for key in keys), key=lambda each: each.index)
            gone = {each.index for each in found}
            self._keep(token, evalset_id, found)
            return replace(evalset, cases=tuple(c for i, c in enumerate(evalset.cases) if i not in gone)), token

        return self._edit(evalset_id, change)

    def deleted(self, evalset_id: str, token: str) -> list[str]:
        """The ids of the cases that the token would bring back; none for a token that is unknown or used up."""
        kept = self._kept(token)
        return [case.id for _, case in kept[1]] if kept and kept[0] == evalset_id else []

    def in_trash(self) -> Iterator[tuple[str, str, list[str], datetime, int]]:
        """Token, eval set, ids, time of deletion and size of deleted cases; a file that cannot be read is left out."""
        for path in sorted(self._trash.glob("*.cases.json")):
            token = path.name.partition(".")[0]
            try:
                seen = path.lstat()
                deleted_at = datetime.fromtimestamp(seen.st_mtime, UTC)
            except OSError:  # it was restored meanwhile
                continue
            if kept := self._kept(token):
                yield token, kept[0], [case.id for _, case in kept[1]], deleted_at, seen.st_size

    def discard(self, token: str) -> None:
        """Remove deleted cases for good; a disk that fails at this leaves them in the trash."""
        with suppress(DiskError):
            remove_file(self._path(token))

    def restore(self, evalset_id: str, token: str) -> list[str]:
        """Put deleted cases back where they stood; gives their keys. Raises NotFoundError, CaseNameTakenError."""
        kept = self._kept(token)
        if not kept or kept[0] != evalset_id:
            raise NotFoundError("nothing to undo; the cases are already restored")

        def change(evalset: EvalSet) -> tuple[EvalSet, list[str]]:
            cases = list(evalset.cases)
            for index, case in kept[1]:
                if case in cases:  # an undo that was killed after the save
                    continue
                _refuse_taken(cases, case.id)
                cases.insert(min(index, len(cases)), case)
            return replace(evalset, cases=tuple(cases)), [case_key(case.id) for _, case in kept[1]]

        keys = self._edit(evalset_id, change)
        with suppress(DiskError):  # the cases are back; a token that is left says that their names are taken
            remove_file(self._path(token))
        return keys

    def _keep(self, token: str, evalset_id: str, found: Sequence[FoundCase]) -> None:
        make_folder(self._trash)
        cases = [{"index": each.index, "case": case_to_json(each.case)} for each in found]
        text = json.dumps({"evalset": evalset_id, "cases": cases}, ensure_ascii=False)
        replace_file(self._path(token), text.encode())

    def _kept(self, token: str) -> tuple[str, list[tuple[int, Case]]] | None:
        """The eval set and its deleted cases with their places; None where there is no such file, or it is broken."""
        if not _TOKEN.fullmatch(token):
            return None
        path = self._path(token)
        try:
            kept = from_json(read_regular(path, MAX_RECORDED_BYTES), _Kept)
            return kept.evalset, [(each.index, case_from_json(each.case, path.name)) for each in kept.cases]
        except (EvaldeskError, OSError, msgspec.MsgspecError):
            return None

    def _path(self, token: str) -> Path:
        return self._trash / f"{token}.cases.json"

    def _found(
        self, evalset_id: str, change: Callable[[EvalSet], tuple[EvalSet, str]], as_new_form: bool = False
    ) -> FoundCase:
        def change_and_find(evalset: EvalSet) -> tuple[EvalSet, FoundCase]:
            changed, key = change(evalset)
            return changed, _find(changed, key)

        return self._edit(evalset_id, change_and_find, as_new_form)

    def _edit(self, evalset_id: str, change: Callable[[EvalSet], tuple[EvalSet, T]], as_new_form: bool = False) -> T:
        """Make a change to the file as it is now, again when another writer was quicker."""
        for attempt in range(1, MAX_TRIES + 1):
            evalset, version = self._files.read(evalset_id)
            changed, answer = change(evalset)
            try:
                self._files.save(evalset_id, changed, version, as_new_form=as_new_form)
                break
            except ConflictError:
                if attempt == MAX_TRIES:
                    raise
        return answer


def _find(evalset: EvalSet, key: str) -> FoundCase:
    for index, each in enumerate(case_keys(evalset.cases)):
        if each == key:
            return FoundCase(evalset, index, key, case_version(evalset.cases[index]))
    raise NotFoundError("this eval set has no such case; it may have been renamed or deleted")


def _refuse_taken(cases: Sequence[Case], case_id: str) -> None:
    taken = {case.id for case in cases}
    if case_id in taken:
        raise CaseNameTakenError(case_id, free_name(case_id, taken))


def retyped(case: Case, text: str) -> Case:
    """The case that JSON typed over `case` says. Raises FormatError, or UsageError for an id that cannot be one."""
    found = case_from_text(text, "")
    if found.id != case.id:
        check_case_id(found.id)
    return found


def with_session(evalset: EvalSet, session: SessionInit, source: str) -> EvalSet:
    """The eval set, its cases starting from `session` where they have none. Raises ValueError for ADK's new form."""
    if evalset_format(evalset) == "adk":
        raise ValueError(
            f"{source}: this file names the session of each case itself; initial_session_file is for older files"
        )
    cases = tuple(replace(case, initial_session=case.initial_session or session) for case in evalset.cases)
    return replace(evalset, cases=cases)


def with_app_name(evalset: EvalSet, app_name: str) -> EvalSet:
    """The eval set, its sessions being of the app `app_name`."""
    named = tuple(
        replace(case, initial_session=replace(case.initial_session or SessionInit(), app_name=app_name))
        for case in evalset.cases
    )
    return replace(evalset, cases=named)
