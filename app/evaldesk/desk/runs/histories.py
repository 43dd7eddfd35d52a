"""The history of cases behind every forecast: the runs of its class, and the cases that the baseline passed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from evaldesk.matching.case_version import case_version
from evaldesk.model import Case
from evaldesk.model.comparison import Baseline
from evaldesk.model.evalset import CaseKey, numbered_keys
from evaldesk.model.history import CaseHistory, SetHistory


@dataclass(frozen=True, slots=True)
class ComparedHistory:
    """The history of the planned cases that a baseline has with the same content.

    `places` are theirs among the planned cases, `passed` whether each passed in the baseline.
    """

    history: SetHistory
    places: tuple[int, ...]
    passed: tuple[bool, ...]


def keys_of(evalset: str, cases: Sequence[Case]) -> list[CaseKey]:
    """The keys of cases that are to be played."""
    return numbered_keys((evalset, case.id, case_version(case)) for case in cases)


def compared_history(
    baseline: Baseline, keys: Sequence[CaseKey], left_out: Collection[str] = frozenset()
) -> ComparedHistory:
    """The history of the cases that a baseline has, too, by which runs are judged; edited cases are left out.

    Cases that no gate asks for are in none: `left_out` are their ids now, the baseline knows those of then.
    """
    judged_cases = (case for case in baseline.cases if case.scored_letters and not case.is_left_out)
    before = {(case.key.case_id, case.key.digest): case for case in judged_cases}
    places = tuple(
        at for at, key in enumerate(keys) if (key.case_id, key.digest) in before and key.case_id not in left_out
    )
    own = [before[keys[place].case_id, keys[place].digest] for place in places]
    history = SetHistory(tuple(CaseHistory(*case.past) for case in own), days=baseline.days)
    return ComparedHistory(history, places, tuple(case.is_passed(case.scored_letters) for case in own))
