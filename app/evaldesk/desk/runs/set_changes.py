"""How an eval set differs now from the cases that a run played, and these cases with the expectations of now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import EvaldeskError, NotFoundError, UsageError
from evaldesk.formats import load_evalset
from evaldesk.matching.case_version import case_version
from evaldesk.model import Case
from evaldesk.model.comparison import PlayedCase, match_cases
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import CaseKey, LargeCases, numbered_keys, user_side
from evaldesk.model.stored import RunSummary
from evaldesk.store import RunStore
from evaldesk.wording.words import named_words

MOST_READ = 200
"""Edited cases of a large set that are read, to say whether they ask or assert something else."""


@dataclass(frozen=True, slots=True)
class SetChanges:
    """The ids of the cases of a run with other messages or assertions now, or removed ones, and the number of new ones.

    `cases` are those of the run with the expectations of now: a case that asks something else, or is gone, has those of
    the run, since its trials answer no other question. Of a large set there are none, and `unread` are the edited cases
    of which it is not known whether they ask or assert something else.
    """

    asserting: tuple[str, ...]
    asking: tuple[str, ...]
    removed_ids: tuple[str, ...]
    n_new: int
    cases: tuple[Case, ...]
    unread: tuple[str, ...] = ()

    @property
    def n_differing(self) -> int:
        """The cases of the run that are not as they were played."""
        return len(self.asserting) + len(self.asking) + len(self.removed_ids) + len(self.unread)

    @property
    def sentence(self) -> str:
        """`The eval set differs from what was played: 1 case asserts something else now (greet).`; empty where not."""
        parts = [
            f"{counted(len(names), 'case')} {one if len(names) == 1 else many} ({named_words(names, 3)})"
            for names, one, many in (
                (self.asserting, "asserts something else now", "assert something else now"),
                (self.asking, "asks something else now", "ask something else now"),
                (self.unread, "is edited", "are edited"),
                (self.removed_ids, "is gone", "are gone"),
            )
            if names
        ]
        if self.n_new:
            parts.append(f"{counted(self.n_new, 'case')} {'was' if self.n_new == 1 else 'were'} not played")
        return f"The eval set differs from what was played: {', '.join(parts)}." if parts else ""

    @property
    def choice(self) -> str:
        """`1 case differs`: the cases that a re-score by the current set judges otherwise."""
        n, most = len(self.asserting), len(self.asserting) + len(self.unread)
        if not most:
            return "no case differs"
        words = counted(n, "case") if n == most else f"{n:,} to {counted(most, 'case')}"
        return f"{words} {'differs' if most == 1 else 'differ'}"


def set_changes(played_cases: Sequence[Case], now: Sequence[Case]) -> SetChanges:
    """The changes of a set since its cases were played."""
    old_keys = numbered_keys(("", case.id, case_version(case)) for case in played_cases)
    new_keys = numbered_keys(("", case.id, case_version(case)) for case in now)
    pairs = _pairs(old_keys, new_keys)
    cases, asserting, asking = list(played_cases), [], []
    for at, number in pairs.items():
        case = now[number]
        if not old_keys[at].is_edited(new_keys[number]):
            continue
        if _asks_the_same(played_cases[at], case):
            cases[at] = replace(case, id=played_cases[at].id)
            asserting.append(played_cases[at].id)
        else:
            asking.append(played_cases[at].id)
    removed_ids = tuple(case.id for at, case in enumerate(played_cases) if at not in pairs)
    return SetChanges(tuple(asserting), tuple(asking), removed_ids, len(new_keys) - len(pairs), tuple(cases))


def _pairs(old_keys: Sequence[CaseKey], new_keys: Sequence[CaseKey]) -> dict[int, int]:
    """The places of the cases of now by those of the cases that were played, in their order."""
    index = {key: at for at, key in enumerate(old_keys)}
    numbers = {key.place: number for number, key in enumerate(new_keys)}
    before = match_cases([PlayedCase(key, "") for key in old_keys], new_keys)
    return dict(sorted((index[case.key], numbers[place]) for place, case in before.items() if place in numbers))


def _asks_the_same(one: Case, other: Case) -> bool:
    return case_version(user_side(one)) == case_version(user_side(other))


def changes_on_page(evalsets: EvalSetDesk, runs: StoredRuns, run: RunSummary) -> SetChanges | None:
    """The changes since a run, for a page; None where no case differs, or the file is not served, or broken."""
    try:
        file = evalsets.file(evalsets.id_of_run(run.config))
        if (
            file.error
            or file.is_reading
            or file.version == run.config.evalset_version
            or not run.config.evalset_version
        ):
            return None
        evalset, version, _ = evalsets.read(file.id)
        changes = _changes(runs.store, run.id, version, _Ignored(evalset.cases))
    except (EvaldeskError, OSError):
        return None
    return changes if changes.n_differing or changes.n_new else None


@dataclass(frozen=True)
class _Ignored:
    """The cases of a set beside its version, which is all that a cache compares."""

    cases: Sequence[Case] = field(compare=False)


@lru_cache(maxsize=16)
def _changes(runs: RunStore, run_id: int, _version: str, now: _Ignored) -> SetChanges:
    if isinstance(now.cases, LargeCases):
        return _large_changes(runs, run_id, now.cases)
    return set_changes(runs.cases(run_id), now.cases)


def _large_changes(runs: RunStore, run_id: int, now: LargeCases) -> SetChanges:
    """The changes of a large set, by the versions of its cases; MOST_READ edited ones are read, to say how."""
    old_keys, new_keys = (
        numbered_keys(("", *each) for each in side) for side in (runs.case_versions(run_id), now.versions())
    )
    pairs = _pairs(old_keys, new_keys)
    edited_pairs = [(at, number) for at, number in pairs.items() if old_keys[at].is_edited(new_keys[number])]
    asserting, asking = list[str](), list[str]()
    for at, number in edited_pairs[:MOST_READ]:
        is_same = _asks_the_same(runs.some_cases(run_id, [at])[at], now[number])
        (asserting if is_same else asking).append(old_keys[at].case_id)
    unread = tuple(old_keys[at].case_id for at, _ in edited_pairs[MOST_READ:])
    removed_ids = tuple(key.case_id for at, key in enumerate(old_keys) if at not in pairs)
    return SetChanges(tuple(asserting), tuple(asking), removed_ids, len(new_keys) - len(pairs), (), unread)


def changes_since(evalsets: EvalSetDesk, runs: RunStore, run: RunSummary) -> SetChanges:
    """The changes since a run of any size. Raises UsageError where its eval set is not here, FormatError."""
    try:
        evalset, _, _ = evalsets.read(evalsets.id_of_run(run.config))
    except NotFoundError as error:
        path = Path(run.config.evalset_path)
        # What another workspace noted may be any file of this machine.
        if not run.config.evalset_path or not path.is_relative_to(evalsets.home) or not path.is_file():
            raise UsageError(
                f"run {run.id}: its eval set {run.config.evalset_name} is not here; score it by the expectations of "
                "the run, or start the desk with the folder of the set",
                field="expectations",
            ) from error
        evalset = load_evalset(path)
    now = tuple(evalset.cases) if isinstance(evalset.cases, LargeCases) else evalset.cases
    return set_changes(runs.cases(run.id), now)
