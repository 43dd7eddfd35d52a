"""The cases of an eval set: found by an opaque key, and changed one at a time.

Each change is made to the file as it is now. A case that changed since it was read is refused; changes of other cases
of the same file are kept and are no conflict.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from evaldesk.desk.evalsets.case_trash import deleted_cases, edited_cases
from evaldesk.desk.evalsets.names import check_case_id, free_name
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.formats import AdkObject, case_from_text, case_to_json, evalset_format, read_evalset
from evaldesk.model import Case, EvalSet, SessionInit
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import CRITERIA, EditedCases, LargeCases, case_key, splice_cases
from evaldesk.model.tagged_cases import TagEdit, TaggedCases, tag_edits
from evaldesk.store.evalsets.files import EvalSetFiles
from evaldesk.store.evalsets.large import is_data_set
from evaldesk.wire import to_json

MAX_TRIES = 5
MOST_CASES = 5_000
"""Cases of one step: its undo has each of them."""
MAX_TAG = 64
"""Characters of a tag that is set here."""

T = TypeVar("T")

NoteEdit: TypeAlias = Callable[[str, EvalSet, EvalSet, str], None]
"""Notes who made one eval set of another, which is saved already, and in a few words how."""


NoteTags: TypeAlias = Callable[[str, Sequence[TagEdit], bool], None]
"""Notes tags of the cases of an eval set that a person changed, and whether they are in its file."""


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
    """A case in its set; `version` changes when the case does. `n_bytes` are those of its JSON without white space."""

    evalset: EvalSet
    index: int
    key: str
    version: str
    case: Case
    n_bytes: int


def evalset_of(source: EvalSet | AdkObject) -> EvalSet:
    """The eval set, also where it is an object of google-adk. Raises FormatError."""
    if isinstance(source, EvalSet):
        return source
    return read_evalset(source.model_dump_json(exclude_unset=True).encode(), source=type(source).__name__)


def case_keys(cases: Sequence[Case]) -> list[str]:
    """A key for each case that fits into an address for any id; the same as long as the id is."""
    return keys_of(cases, range(len(cases)))


def keys_of(cases: Sequence[Case], numbers: Sequence[int]) -> list[str]:
    """The keys of some cases by their places."""
    if isinstance(cases, LargeCases):
        case_keys = [case_key(cases.id_at(number)) for number in numbers]
        return [
            _numbered_key(key, cases.numbers_of(key).index(n) + 1) for key, n in zip(case_keys, numbers, strict=True)
        ]
    keys: list[str] = []
    n_of_id: dict[str, int] = {}
    for case in cases:
        n_of_id[case.id] = n_of_id.get(case.id, 0) + 1
        keys.append(_numbered_key(case_key(case.id), n_of_id[case.id]))
    return [keys[number] for number in numbers]


def _numbered_key(key: str, occurrence: int) -> str:
    """The key of a case; `occurrence` counts the cases of one id, from 1."""
    return key if occurrence == 1 else f"{key}.{occurrence}"


class CaseDesk:
    """The cases of all eval sets of a workspace; `trash` is the folder of deleted ones and of edits.

    Writing contents that ADK's old form cannot hold to such a file raises LossError, unless `as_new_form`.
    """

    def __init__(
        self,
        files: EvalSetFiles,
        evalset: Callable[[str], EvalSet],
        trash: Path,
        note_edit: NoteEdit = lambda *_: None,
        note_tags: NoteTags = lambda *_: None,
    ) -> None:
        self._files = files
        self._note_edit = note_edit
        self._note_tags = note_tags
        self._evalset = evalset
        self.deleted = deleted_cases(trash)
        self.edits = edited_cases(trash)
        self._last_found: FoundCase | None = None

    def find(self, evalset_id: str, key: str) -> FoundCase:
        """The case with that key. Raises NotFoundError."""
        evalset, last = self._evalset(evalset_id), self._last_found
        # A page of a long case, and each of its actions, ask for it anew; the set is another object once it changed.
        if last is None or last.evalset is not evalset or last.key != key:
            last = self._last_found = _find(evalset, key)
        return last

    def add(self, evalset_id: str, case: Case, *, as_new_form: bool = False) -> FoundCase:
        """Put a new case at the end. Raises CaseNameTakenError."""

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            check_id_is_free(evalset.cases, case.id)
            n = len(evalset.cases)
            return _splice_set(evalset, n, n, case), case_key(case.id)

        return self._edit_and_find(evalset_id, change, as_new_form)

    def put(self, evalset_id: str, case: Case, *, as_new_form: bool = False) -> FoundCase:
        """Put a case in the place of the one with the same id, or at the end when there is none."""

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            key, n = case_key(case.id), len(evalset.cases)
            index = next(iter(numbers_of(evalset.cases, key)), n)
            return _splice_set(evalset, index, min(index + 1, n), case), key

        return self._edit_and_find(evalset_id, change, as_new_form)

    def save(
        self, evalset_id: str, key: str, case: Case, version: str | None, *, as_new_form: bool = False
    ) -> FoundCase:
        """Put `case` in the place of the one with that key.

        `version` is that of the case as it was read; None saves over any version. Raises CaseChangedError,
        CaseNameTakenError when the new id is another case's, NotFoundError.
        """

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            current = _find(evalset, key)
            if version is not None and current.version != version and current.case != case:
                raise CaseChangedError("this case changed since you opened it")
            if case.id != current.case.id:
                check_id_is_free(evalset.cases, case.id)
            new_key = key if case.id == current.case.id else case_key(case.id)
            return _splice_set(evalset, current.index, current.index + 1, case), new_key

        earlier_tags = self.find(evalset_id, key).case.tags if self.is_data_set(evalset_id) else None
        saved_case = self._edit_and_find(evalset_id, change, as_new_form)
        if earlier_tags is not None:  # the file has all tags of the case now, and the database none
            bare_cases = Case(case.id, tags=earlier_tags), Case(case.id)
            self._note_tags(evalset_id, [*tag_edits([bare_cases]), *tag_edits([(bare_cases[1], case)])], True)
        return saved_case

    def duplicate(self, evalset_id: str, key: str) -> FoundCase:
        """Put a copy after the case, under a free name."""

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            original = _find(evalset, key)
            copy = replace(original.case, id=free_name(f"{original.case.id}_copy", CaseIds(evalset.cases)))
            return _splice_set(evalset, original.index + 1, original.index + 1, copy), case_key(copy.id)

        return self._edit_and_find(evalset_id, change)

    def move(self, evalset_id: str, key: str, step: int) -> FoundCase:
        """Move the case up (-1) or down (1); at the end it stays."""

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            case = _find(evalset, key)
            target = max(0, min(len(evalset.cases) - 1, case.index + step))
            others = _splice_set(evalset, case.index, case.index + 1)
            return _splice_set(others, target, target, case.case), key

        return self._edit_and_find(evalset_id, change)

    def delete(self, evalset_id: str, keys: Sequence[str]) -> str:
        """Take cases out of the set; the token brings them back. Raises NotFoundError."""
        token = secrets.token_hex(8)

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            cases = sorted((_find(evalset, key) for key in keys), key=lambda each: each.index)
            self.deleted.write(token, evalset_id, [(each.index, each.case) for each in cases])
            for each in reversed(cases):
                evalset = _splice_set(evalset, each.index, each.index + 1)
            return evalset, token

        return self._edit(evalset_id, change)

    def is_data_set(self, evalset_id: str) -> bool:
        """Whether the file of a set is so large that no step over many cases changes it."""
        return is_data_set(self._files.file(evalset_id).size)

    def check_small(self, evalset_id: str) -> None:
        """Raise UsageError for a data set, whose file is not changed."""
        if self.is_data_set(evalset_id):
            raise UsageError(
                f"the file {self._files.file(evalset_id).place} is above 64 MiB, so its cases are not changed here; "
                "copy them to another set"
            )

    def delete_ids(self, evalset_id: str, ids: Collection[str], token: str = "", note: str = "") -> str:
        """Take the cases with these ids out of the set; the token brings them back. Raises UsageError, NotFoundError.

        `token` is that of a step that put them elsewhere, and `note` its few words in the list of versions.
        """
        self.check_small(evalset_id)
        token = token or secrets.token_hex(8)

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            places = places_of(evalset.cases, ids)
            self.deleted.write(token, evalset_id, [(number, evalset.cases[number]) for number in places])
            for number in reversed(places):
                evalset = _splice_set(evalset, number, number + 1)
            return evalset, token

        return self._edit(evalset_id, change, note=note)

    def list_deleted_ids(self, evalset_id: str, token: str) -> list[str]:
        """The ids of the cases that the token would bring back; none for a token that is unknown or used up."""
        return [case.id for _, case in self.deleted.rows(token, evalset_id)]

    def restore(self, evalset_id: str, token: str) -> list[str]:
        """Put deleted cases back where they stood; gives their keys. Raises NotFoundError, CaseNameTakenError."""
        rows = self.deleted.rows(token, evalset_id)
        if not rows:
            raise NotFoundError("nothing to undo; the cases are already restored")

        def change(evalset: EvalSet) -> tuple[EvalSet, list[str]]:
            result = evalset
            for index, case in rows:
                alike = [evalset.cases[number] for number in numbers_of(evalset.cases, case_key(case.id))]
                if case in alike:  # an undo that was killed after the save
                    continue
                if alike:
                    raise _name_taken_error(evalset.cases, case.id)
                place = min(index, len(result.cases))
                result = _splice_set(result, place, place, case)
            return result, [case_key(case.id) for _, case in rows]

        keys = self._edit(evalset_id, change)
        self.deleted.discard(token)  # the cases are back; a token that is left says that their names are taken
        return keys

    def change_tags(
        self, evalset_id: str, ids: Collection[str], added_tags: Collection[str], removed_tags: Collection[str]
    ) -> str:
        """Add tags to cases and take others from them, in one step; the token takes the step back.

        The tags of a data set are kept in the database. Raises UsageError for no case, for a tag that cannot be and for
        too many tags of a data set, NotFoundError for an unknown id.
        """
        for tag in added_tags:
            if not 0 < len(tag.strip()) <= MAX_TAG or "," in tag or not tag.isprintable():
                raise UsageError(
                    f"a tag has 1 to {MAX_TAG} characters and no comma, not {tag[:MAX_TAG]!r}", field="tags"
                )
        if self.is_data_set(evalset_id):
            return self._tag_data_set(evalset_id, ids, added_tags, removed_tags)
        return self.change_many(evalset_id, ids, lambda case: _with_tags(case, added_tags, removed_tags))

    def _tag_data_set(
        self, evalset_id: str, ids: Collection[str], added_tags: Collection[str], removed_tags: Collection[str]
    ) -> str:
        cases = self._evalset(evalset_id).cases
        edits = []
        for case in with_ids(cases, {cases[number].id for number in places_of(cases, ids)}):
            new_tags = _with_tags(case, added_tags, removed_tags).tags
            if new_tags != case.tags:
                edits.append((Case(case.id, tags=case.tags), Case(case.id, tags=new_tags)))
        token = self.store_edits(evalset_id, edits)
        self._note_tags(evalset_id, tag_edits(edits), False)
        return token

    def change_many(
        self, evalset_id: str, ids: Collection[str], change_case: Callable[[Case], Case], note: str = ""
    ) -> str:
        """Change cases in one step; the token takes the step back. Raises UsageError for too many, NotFoundError."""
        self.check_small(evalset_id)
        token = secrets.token_hex(8)

        def change(evalset: EvalSet) -> tuple[EvalSet, str]:
            edits: list[tuple[Case, Case]] = []
            for number in places_of(evalset.cases, ids):
                case = evalset.cases[number]
                if (new_case := change_case(case)) != case:
                    edits.append((case, new_case))
                    evalset = _splice_set(evalset, number, number + 1, new_case)
            self.edits.write(token, evalset_id, edits)
            return evalset, token

        return self._edit(evalset_id, change, note=note)

    def tag_step_words(self, evalset_id: str, token: str) -> str:
        """`quarantine added to 2 cases`, or the number of changed cases; empty for an unknown token."""
        edits = self.edits.rows(token, evalset_id)
        if not edits:
            return ""
        before, after = edits[0]
        if before.extra.get(CRITERIA) != after.extra.get(CRITERIA):
            return f"criteria of {counted(len(edits), 'case')} changed"
        added_tags = [tag for tag in after.tags if tag not in before.tags]
        removed_tags = [tag for tag in before.tags if tag not in after.tags]
        words = [f"{', '.join(added_tags)} added to"] if added_tags else []
        words += [f"{', '.join(removed_tags)} taken from"] if removed_tags else []
        return f"{' and '.join(words) or 'a step changed'} {counted(len(edits), 'case')}"

    def store_edits(self, evalset_id: str, edits: Sequence[tuple[Case, Case]]) -> str:
        """Put cases into the trash as they are and as they will be; the token takes the edit back. Raises DiskError."""
        token = secrets.token_hex(8)
        self.edits.write(token, evalset_id, edits)
        return token

    def take_back(self, evalset_id: str, token: str) -> list[str]:
        """Give cases the content that they had before an edit; gives their ids.

        Raises NotFoundError for an unknown token or a case that is gone, CaseChangedError for one edited since.
        """
        edits = self.edits.rows(token, evalset_id)
        if not edits:
            raise NotFoundError("nothing to undo; the expectations are already as they were")
        if self.is_data_set(evalset_id):
            return self._untag_data_set(evalset_id, token, edits)

        def change(evalset: EvalSet) -> tuple[EvalSet, list[str]]:
            result = evalset
            for before, after in edits:
                current = _find(result, case_key(before.id))
                if current.case == before:  # an undo that was killed after the save
                    continue
                if current.case != after:
                    raise CaseChangedError(f"case {before.id!r} was edited since; its expectations stay as they are")
                result = _splice_set(result, current.index, current.index + 1, before)
            return result, [before.id for before, _ in edits]

        ids = self._edit(evalset_id, change)
        self.edits.discard(token)
        return ids

    def _untag_data_set(self, evalset_id: str, token: str, edits: Sequence[tuple[Case, Case]]) -> list[str]:
        """Give cases of a data set the tags that they had before a step; gives their ids."""
        ids = [before.id for before, _ in edits]
        tags_now = {case.id: set(case.tags) for case in with_ids(self._evalset(evalset_id).cases, set(ids))}
        for before, after in edits:
            if replace(before, tags=()) != replace(after, tags=()):
                self.check_small(evalset_id)
            if before.id not in tags_now:
                raise NotFoundError(f"this eval set has no case {before.id!r}; it may have been renamed or deleted")
            if tags_now[before.id] not in (set(after.tags), set(before.tags)):
                raise CaseChangedError(f"case {before.id!r} was edited since; its tags stay as they are")
        self._note_tags(evalset_id, tag_edits((after, before) for before, after in edits), False)
        self.edits.discard(token)
        return ids

    def _edit_and_find(
        self, evalset_id: str, change: Callable[[EvalSet], tuple[EvalSet, str]], as_new_form: bool = False
    ) -> FoundCase:
        def change_and_find(evalset: EvalSet) -> tuple[EvalSet, Callable[[], FoundCase]]:
            result, key = change(evalset)
            if isinstance(result.cases, EditedCases):  # the index of the new file finds it
                return result, lambda: self.find(evalset_id, key)
            case = _find(result, key)
            return result, lambda: case

        return self._edit(evalset_id, change_and_find, as_new_form)()

    def replace_all(self, evalset_id: str, change: Callable[[EvalSet], EvalSet], note: str = "") -> None:
        """Make a change of any cases in one step, which is one version; `note` says in a few words how."""
        self._edit(evalset_id, lambda evalset: (change(evalset), None), note=note)

    def _edit(
        self,
        evalset_id: str,
        change: Callable[[EvalSet], tuple[EvalSet, T]],
        as_new_form: bool = False,
        note: str = "",
    ) -> T:
        """Make a change to the file as it is now, again when another writer was quicker."""
        for attempt in range(1, MAX_TRIES + 1):
            evalset, version = self._files.read(evalset_id)
            result, answer = change(evalset)
            try:
                self._files.save(evalset_id, result, version, as_new_form=as_new_form)
                self._note_edit(evalset_id, evalset, result, note)
                break
            except ConflictError:
                if attempt == MAX_TRIES:
                    raise
        return answer


def _find(evalset: EvalSet, key: str) -> FoundCase:
    case_part = key.partition(".")[0]
    numbers = numbers_of(evalset.cases, case_part)
    number = next((n for n in range(1, len(numbers) + 1) if key == _numbered_key(case_part, n)), 0)
    if not number:
        raise NotFoundError("this eval set has no such case; it may have been renamed or deleted")
    index = numbers[number - 1]
    cases = evalset.cases
    case, file_cases = cases[index], cases.file_cases if isinstance(cases, TaggedCases) else cases
    saved_json = to_json(case_to_json(file_cases[index]))  # all that it says in its file, time stamps and tags included
    return FoundCase(evalset, index, key, hashlib.sha256(saved_json).hexdigest()[:16], case, len(saved_json))


def case_with_key(evalset: EvalSet, key: str) -> Case | None:
    """The case with that key; None where there is none."""
    try:
        return _find(evalset, key).case
    except NotFoundError:
        return None


def numbers_of(cases: Sequence[Case], key: str) -> Sequence[int]:
    """The places of the cases whose id has that key, counted from 0."""
    if isinstance(cases, LargeCases):
        return cases.numbers_of(key)
    return [number for number, case in enumerate(cases) if case_key(case.id) == key]


def places_of(cases: Sequence[Case], ids: Collection[str]) -> list[int]:
    """The places of the cases with these ids, in order, counted from 0.

    Raises UsageError for none and for more than MOST_CASES, NotFoundError for an id that no case has.
    """
    if not ids:
        raise UsageError("select the cases first", field="case")
    if len(ids) > MOST_CASES:
        raise UsageError(f"a step takes at most {MOST_CASES:,} cases, not {len(ids):,}", field="case")
    selected_ids = set(ids)
    if isinstance(cases, LargeCases):
        numbers_by_id = {case_id: cases.numbers_of(case_key(case_id)) for case_id in selected_ids}
        numbers = sorted(number for each in numbers_by_id.values() for number in each)
        unknown_ids = {case_id for case_id, each in numbers_by_id.items() if not each}
    else:
        numbers = [number for number, case in enumerate(cases) if case.id in selected_ids]
        unknown_ids = selected_ids - {cases[number].id for number in numbers}
    if unknown_ids:
        raise NotFoundError(f"this eval set has no case {min(unknown_ids)!r}; it may have been renamed or deleted")
    return numbers


def with_ids(cases: Sequence[Case], ids: Collection[str]) -> tuple[Case, ...]:
    """The cases that have one of the ids, in order."""
    if isinstance(cases, LargeCases):
        return cases.with_ids(ids)
    return tuple(case for case in cases if case.id in ids)


class CaseIds(Container[str]):
    """The ids of the cases of a set."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = cases
        self._ids = None if isinstance(cases, LargeCases) else {case.id for case in cases}

    def __contains__(self, case_id: object) -> bool:
        if self._ids is not None:
            return case_id in self._ids
        return any(self._cases[number].id == case_id for number in numbers_of(self._cases, case_key(str(case_id))))


def _with_tags(case: Case, added_tags: Collection[str], removed_tags: Collection[str]) -> Case:
    others = (tag for tag in case.tags if tag not in removed_tags)
    return replace(case, tags=tuple(dict.fromkeys((*others, *(tag.strip() for tag in added_tags)))))


def _splice_set(evalset: EvalSet, start: int, stop: int, *cases: Case) -> EvalSet:
    return replace(evalset, cases=splice_cases(evalset.cases, start, stop, cases))


def check_id_is_free(cases: Sequence[Case], case_id: str) -> None:
    """Raise CaseNameTakenError for the id of one of the cases."""
    if case_id in CaseIds(cases):
        raise _name_taken_error(cases, case_id)


def _name_taken_error(cases: Sequence[Case], case_id: str) -> CaseNameTakenError:
    return CaseNameTakenError(case_id, free_name(case_id, CaseIds(cases)))


def case_of_typed_json(case: Case, text: str) -> Case:
    """The case that JSON typed over `case` says. Raises FormatError, or UsageError for an id that cannot be one."""
    new_case = case_from_text(text, "")
    if new_case.id != case.id:
        check_case_id(new_case.id)
    return new_case


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
    cases = tuple(
        replace(case, initial_session=replace(case.initial_session or SessionInit(), app_name=app_name))
        for case in evalset.cases
    )
    return replace(evalset, cases=cases)
