"""The cases of a data set with the tags that a person gave them beside its file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import overload

from evaldesk.model.case_facts import CaseFacts
from evaldesk.model.evalset import Case, CaseGroup, EditedCases, LargeCases, case_key


@dataclass(frozen=True, slots=True)
class TagEdit:
    """A tag that was added to a case, or taken away."""

    case_id: str
    tag: str
    is_added: bool


@dataclass(frozen=True, slots=True)
class TagChange:
    """The tags that a case has beside its file, and the tags of its file that do not count."""

    added_tags: tuple[str, ...] = ()
    removed_tags: tuple[str, ...] = ()

    def apply(self, case: Case) -> Case:
        """The case with the tags that count."""
        others = (tag for tag in case.tags if tag not in self.removed_tags)
        return replace(case, tags=tuple(dict.fromkeys((*others, *self.added_tags))))


@dataclass(frozen=True, slots=True)
class TagAuthor:
    """The person who changed a tag of a case at the desk last, and the time."""

    name: str
    changed_at: datetime
    is_added: bool


def tag_edits(pairs: Iterable[tuple[Case, Case]]) -> list[TagEdit]:
    """The tags that differ between each case and the same one later."""
    return [
        TagEdit(after.id, tag, tag in after.tags)
        for before, after in pairs
        for tag in dict.fromkeys((*before.tags, *after.tags))
        if (tag in before.tags) != (tag in after.tags)
    ]


def with_tag_changes(cases: Sequence[Case], changes: Mapping[str, TagChange]) -> Sequence[Case]:
    """The cases with these changes of their tags, by their ids. Doing it twice is doing it once."""
    if not changes:
        return cases
    if isinstance(cases, TaggedCases):
        return cases if cases.changes == changes else TaggedCases(cases.file_cases, changes)
    if isinstance(cases, LargeCases):
        return TaggedCases(cases, changes)
    return tuple(changes[case.id].apply(case) if case.id in changes else case for case in cases)


class TaggedCases(LargeCases):
    """The cases of a large set, some with other tags than its file has: `file_cases` are those of the file."""

    def __init__(self, file_cases: LargeCases, changes: Mapping[str, TagChange]) -> None:
        self.file_cases = file_cases
        self.changes = changes

    def __len__(self) -> int:
        return len(self.file_cases)

    @overload
    def __getitem__(self, index: int) -> Case: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Case, ...]: ...

    def __getitem__(self, index: int | slice) -> Case | tuple[Case, ...]:
        cases = self.file_cases[index]
        return self._tagged(cases) if isinstance(cases, Case) else tuple(map(self._tagged, cases))

    def __iter__(self) -> Iterator[Case]:
        return map(self._tagged, self.file_cases)

    def splice(self, start: int, stop: int, inserted_cases: Sequence[Case]) -> EditedCases:
        return self.file_cases.splice(start, stop, inserted_cases)

    def ids(self, groups: Collection[int] | None = None) -> Iterator[str]:
        return self.file_cases.ids(groups)

    def versions(self) -> Iterator[tuple[str, str]]:
        return self.file_cases.versions()

    def case_facts(self) -> Iterator[CaseFacts]:
        return self.file_cases.case_facts()

    def id_at(self, number: int) -> str:
        return self.file_cases.id_at(number)

    def with_ids(self, ids: Collection[str]) -> tuple[Case, ...]:
        return tuple(map(self._tagged, self.file_cases.with_ids(ids)))

    def repeated_ids(self) -> dict[str, tuple[int, ...]]:
        return self.file_cases.repeated_ids()

    def numbers_of(self, key: str) -> list[int]:
        return self.file_cases.numbers_of(key)

    def groups(self) -> tuple[CaseGroup, ...]:
        return self.file_cases.groups()

    def group_of(self, case_id: str) -> int:
        return self.file_cases.group_of(case_id)

    def has_key(self, key: str) -> bool:
        return self.file_cases.has_key(key)

    def first_app(self, names: Collection[str]) -> str:
        return self.file_cases.first_app(names)

    def search(
        self, text: str, tag: str, groups: Collection[int] | None, start: int, limit: int
    ) -> tuple[int, list[int]]:
        if not (text or tag):
            return self.file_cases.search(text, tag, groups, start, limit)
        numbers = set(self._search_file(text, "", groups)) | self._tagged_like(text, groups)
        if tag:
            numbers &= self._tagged_numbers(tag)
        ordered = sorted(numbers)
        return len(ordered), ordered[start : start + limit]

    def tags(self) -> Mapping[str, int]:
        return self._counts

    @cached_property
    def _counts(self) -> Mapping[str, int]:
        counts = dict(self.file_cases.tags())
        for tag in dict.fromkeys(
            tag for change in self.changes.values() for tag in (*change.added_tags, *change.removed_tags)
        ):
            counts[tag] = len(self._tagged_numbers(tag))
        return {tag: n for tag, n in counts.items() if n}

    @cached_property
    def _changed_numbers(self) -> Mapping[int, TagChange]:
        """The changes by the places of their cases; a case that is gone has none."""
        return {
            number: change
            for case_id, change in self.changes.items()
            for number in self.file_cases.numbers_of(case_key(case_id))
        }

    def _tagged_numbers(self, tag: str) -> set[int]:
        """The cases that have the tag."""
        changes = self._changed_numbers
        numbers = set(self._search_file("", tag, None)) if tag in self.file_cases.tags() else set()
        numbers.difference_update(number for number, change in changes.items() if tag in change.removed_tags)
        return numbers.union(number for number, change in changes.items() if tag in change.added_tags)

    def _tagged_like(self, text: str, groups: Collection[int] | None) -> set[int]:
        """The cases in some groups with an added tag in which the text stands."""
        if not text:
            return set()
        return {
            number
            for number, change in self._changed_numbers.items()
            if any(text in tag.casefold() for tag in change.added_tags)
            and (groups is None or self.file_cases.group_of(self.file_cases.id_at(number)) in groups)
        }

    def _search_file(self, text: str, tag: str, groups: Collection[int] | None) -> list[int]:
        return self.file_cases.search(text, tag, groups, 0, len(self.file_cases))[1]

    def _tagged(self, case: Case) -> Case:
        change = self.changes.get(case.id)
        return case if change is None else change.apply(case)
