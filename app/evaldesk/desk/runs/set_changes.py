"""How an eval set differs now from the cases that a run played, and these cases with the expectations of now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import EvaldeskError, NotFoundError, UsageError
from evaldesk.formats import load_evalset
from evaldesk.matching.case_version import case_version
from evaldesk.model import Case
from evaldesk.model.comparison import PlayedCase, matched
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import LargeCases, numbered_keys, user_side
from evaldesk.model.stored import RunSummary
from evaldesk.store import RunStore
from evaldesk.wording.words import named_words

MOST_COMPARED = 5_000
"""Cases of a run that a page compares with those of its file."""


@dataclass(frozen=True, slots=True)
class SetChanges:
    """The ids of the cases of a run that assert or ask something else now, or are gone, and how many are new.

    `cases` are those of the run with the expectations of now: a case that asks something else, or is gone, has those of
    the run, since its trials answer no other question.
    """

    asserting: tuple[str, ...]
    asking: tuple[str, ...]
    gone: tuple[str, ...]
    n_new: int
    cases: tuple[Case, ...]

    @property
    def n_differing(self) -> int:
        """The cases of the run that are not as they were played."""
        return len(self.asserting) + len(self.asking) + len(self.gone)

    @property
    def sentence(self) -> str:
        """`The eval set differs from what was played: 1 case asserts something else now (greet).`; empty where not."""
        parts = [
            f"{counted(len(names), 'case')} {one if len(names) == 1 else many} ({named_words(names, 3)})"
            for names, one, many in (
                (self.asserting, "asserts something else now", "assert something else now"),
                (self.asking, "asks something else now", "ask something else now"),
                (self.gone, "is gone", "are gone"),
            )
            if names
        ]
        if self.n_new:
            parts.append(f"{counted(self.n_new, 'case')} {'was' if self.n_new == 1 else 'were'} not played")
        return f"The eval set differs from what was played: {', '.join(parts)}." if parts else ""

    @property
    def choice(self) -> str:
        """`1 case differs`: what a re-score by the set as it is now judges otherwise."""
        n = len(self.asserting)
        return f"{counted(n, 'case')} {'differs' if n == 1 else 'differ'}" if n else "no case differs"


def set_changes(played: Sequence[Case], now: Sequence[Case]) -> SetChanges:
    """The changes of a set since its cases were played."""
    old = numbered_keys(("", case.id, case_version(case)) for case in played)
    new = numbered_keys(("", case.id, case_version(case)) for case in now)
    cases = {key.place: case for key, case in zip(new, now, strict=True)}
    index = {key: at for at, key in enumerate(old)}
    pairs = {
        index[before.key]: cases[place]
        for place, before in matched([PlayedCase(key, "") for key in old], new).items()
        if place in cases
    }
    found = list(played)
    asserting, asking = [], []
    for at, case in sorted(pairs.items()):
        if case_version(case) == old[at].digest:
            continue
        if case_version(user_side(case)) == case_version(user_side(played[at])):
            found[at] = replace(case, id=played[at].id)
            asserting.append(played[at].id)
        else:
            asking.append(played[at].id)
    gone = tuple(case.id for at, case in enumerate(played) if at not in pairs)
    return SetChanges(tuple(asserting), tuple(asking), gone, len(new) - len(pairs), tuple(found))


def changes_on_page(evalsets: EvalSetDesk, runs: StoredRuns, run: RunSummary) -> SetChanges | None:
    """The changes since a run, for a page; None where the file is as it was, not served, broken, or large."""
    try:
        file = evalsets.file(evalsets.id_of_run(run.config))
        if file.error or file.is_reading or not run.config.evalset_version:
            return None
        if file.version == run.config.evalset_version or max(run.n_cases, file.n_cases) > MOST_COMPARED:
            return None
        found = _changes(runs.store, run.id, file.path, file.version)
    except (EvaldeskError, OSError):
        return None
    return found if found.n_differing or found.n_new else None


@lru_cache(maxsize=16)
def _changes(runs: RunStore, run_id: int, path: Path, _version: str) -> SetChanges:
    return set_changes(runs.cases(run_id), load_evalset(path).cases)


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
