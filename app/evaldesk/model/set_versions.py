"""Versions of an eval set: the list of them, and the case-by-case difference of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, TypeAlias

from evaldesk.model.comparison import PlayedCase, match_cases
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import JsonValue, numbered_keys

Origin: TypeAlias = Literal["first", "desk", "outside", "run"]
CaseKeys: TypeAlias = Sequence[tuple[str, str]]
"""The id and the `case_version` of each case of a set, in order."""
SHORT = 8
"""Characters of a version in a sentence; as many as tell it apart are enough to name one."""


@dataclass(frozen=True, slots=True)
class SetContent:
    """The cases of a version, and the criteria of its set. Of a set with too many cases for a list it `is_cut`."""

    cases: tuple[tuple[str, str], ...] = ()
    criteria: JsonValue = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class SetVersion:
    """An eval set as it was from `noted_at` on; `number` orders the versions of all sets as they were noted.

    `origin` is `desk` for a change of `author` at the desk, which `note` tells in a few words, `outside` for one of the
    file by another program, `run` for a set that was first seen when a run began, `first` when a page or command saw
    it. `revision` is the commit that has the file as it is, and `revision_author` its author; empty without.
    """

    number: int
    evalset_id: str
    version: str
    noted_at: datetime
    author: str
    origin: Origin
    note: str
    revision: str
    revision_author: str
    n_cases: int
    n_added: int
    n_changed: int
    n_removed: int
    n_renamed: int

    @property
    def short_name(self) -> str:
        """The first characters of the version."""
        return self.version[:SHORT]

    @property
    def source(self) -> str:
        """`jo, commit 3f2a91c`, `jo, restored 07c6ba95` or `changed outside`."""
        if self.revision:
            return f"{self.revision_author}, commit {self.revision}"
        if self.origin == "desk":
            return ", ".join(filter(None, (self.author or "at the desk", self.note)))
        return {"outside": "changed outside", "run": "first seen by a run"}.get(self.origin, "first seen")


CaseStep: TypeAlias = Literal["same", "changed", "renamed", "added", "removed"]


@dataclass(frozen=True, slots=True)
class CaseDiff:
    """A case in two versions of its set: its ids, and the versions of its content; empty on a side that lacks it."""

    step: CaseStep
    before_id: str = ""
    after_id: str = ""
    before: str = ""
    after: str = ""

    @property
    def case_id(self) -> str:
        """Its id in the later version, or in the earlier one where it was removed."""
        return self.after_id or self.before_id

    @property
    def is_comparable(self) -> bool:
        """Whether its trials in both versions answer the same question."""
        return self.step in ("same", "renamed")


@dataclass(frozen=True)
class SetDiff:
    """The cases of two versions in the order of the later one, removed ones last."""

    cases: tuple[CaseDiff, ...]
    has_other_criteria: bool = False

    def of(self, *steps: CaseStep) -> tuple[CaseDiff, ...]:
        """The cases of these kinds."""
        return tuple(case for case in self.cases if case.step in steps)

    @cached_property
    def n(self) -> dict[CaseStep, int]:
        """The number of cases of each kind."""
        steps: tuple[CaseStep, ...] = ("same", "changed", "renamed", "added", "removed")
        return {step: len(self.of(step)) for step in steps}

    @property
    def comparable(self) -> tuple[CaseDiff, ...]:
        """The cases in which runs of both versions can be compared."""
        return tuple(case for case in self.cases if case.is_comparable)

    @property
    def is_empty(self) -> bool:
        """Whether the versions have the same cases under the same ids, and the same criteria."""
        return self.n["same"] == len(self.cases) and not self.has_other_criteria

    @property
    def sentence(self) -> str:
        """`3 of 5 cases are the same in both versions; 1 was changed and 1 added, and they are left out`."""
        n_comparable, n_after = len(self.comparable), len(self.cases) - self.n["removed"]
        if not self.cases:
            return "Neither version has a case"
        verb = "is" if n_comparable == 1 else "are"
        start = f"{n_comparable:,} of {counted(n_after, 'case')} {verb} the same in both versions"
        counts = [(self.n[step], step) for step in ("changed", "added", "removed") if self.n[step]]
        if not counts:
            return start
        first, *more = counts
        parts = [f"{first[0]:,} {'was' if first[0] == 1 else 'were'} {first[1]}"]
        parts += [f"{n:,} {step}" for n, step in more]
        pronoun = "it is" if sum(n for n, _ in counts) == 1 else "they are"
        return f"{start}; {_join_words(parts)}, and {pronoun} left out"

    @property
    def headline(self) -> str:
        """`2 cases added, 1 changed, 1 renamed`; empty where nothing is."""
        parts: list[str] = []
        for step in ("added", "changed", "removed", "renamed"):
            if n := self.n[step]:
                parts.append(f"{n:,} {step}" if parts else f"{counted(n, 'case')} {step}")
        if self.has_other_criteria:
            parts.append("other criteria" if parts else "Other criteria")
        return ", ".join(parts)


def set_diff(before: CaseKeys, after: CaseKeys, *, has_other_criteria: bool = False) -> SetDiff:
    """The cases of two versions of a set, matched as those of two runs are. (decision 455)"""
    old_keys = numbered_keys(("", case_id, version) for case_id, version in before)
    new_keys = numbered_keys(("", case_id, version) for case_id, version in after)
    matches = match_cases([PlayedCase(key, "") for key in old_keys], new_keys)
    cases: list[CaseDiff] = []
    for key in new_keys:
        match = matches.get(key.place)
        if match is None:
            cases.append(CaseDiff("added", "", key.case_id, "", key.digest))
            continue
        earlier = match.key
        is_renamed = earlier.case_id != key.case_id
        step: CaseStep = "changed" if earlier.is_edited(key) else "renamed" if is_renamed else "same"
        cases.append(CaseDiff(step, earlier.case_id, key.case_id, earlier.digest, key.digest))
    new_places = {key.place for key in new_keys}
    matched_keys = {case.key for place, case in matches.items() if place in new_places}
    cases += [CaseDiff("removed", key.case_id, "", key.digest) for key in old_keys if key not in matched_keys]
    return SetDiff(tuple(cases), has_other_criteria)


def _join_words(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
