"""The name of a case wherever runs, baselines and reports speak of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from evaldesk.model.evalset import Case

MOST_NAMED = 5
Place: TypeAlias = tuple[str, str, int]
"""Eval set, case id and ordinal: the place of a case, independent of its content."""


@dataclass(frozen=True, slots=True)
class CaseKey:
    """A case of an eval set. `ordinal` counts the cases with this id in this set from 0.

    `digest` is of the content; empty where a file does not tell it.
    """

    evalset: str
    case_id: str
    ordinal: int = 0
    digest: str = ""

    @property
    def place(self) -> Place:
        """The key without the content."""
        return self.evalset, self.case_id, self.ordinal

    def is_edited(self, other: CaseKey) -> bool:
        """Whether the content is known on both sides and differs."""
        return bool(self.digest and other.digest) and self.digest != other.digest


def numbered_keys(cases: Iterable[tuple[str, str, str]]) -> list[CaseKey]:
    """A key for each (eval set, case id, digest), in order; cases of one set with the same id are numbered."""
    seen: Counter[tuple[str, str]] = Counter()
    keys = []
    for evalset, case_id, digest in cases:
        keys.append(CaseKey(evalset, case_id, seen[evalset, case_id], digest))
        seen[evalset, case_id] += 1
    return keys


def case_names(keys: Sequence[CaseKey]) -> dict[Place, str]:
    """An unambiguous name for each case: `greeting`, or `alpha:greeting` and `alpha:greeting (2)` where need be."""
    places = {key.place for key in keys}
    alike = Counter(case_id for _, case_id, _ in places)
    in_set = Counter((evalset, case_id) for evalset, case_id, _ in places)
    names = {}
    for evalset, case_id, ordinal in places:
        name = case_id if alike[case_id] == in_set[evalset, case_id] else f"{evalset}:{case_id}"
        names[evalset, case_id, ordinal] = f"{name} ({ordinal + 1})" if ordinal else name
    return names


def repeated_ids(cases: Iterable[Case]) -> dict[str, tuple[int, ...]]:
    """The ids that several cases have, each with the places of its cases, counted from 1."""
    places: dict[str, list[int]] = {}
    for number, case in enumerate(cases, 1):
        places.setdefault(case.id, []).append(number)
    return {case_id: tuple(numbers) for case_id, numbers in places.items() if len(numbers) > 1}


def renamed_repeats(cases: Sequence[Case]) -> tuple[Case, ...]:
    """The cases with an id each: a repeated one ends in the first free number, `greeting_2`."""
    taken = {case.id for case in cases}
    seen: set[str] = set()
    found = []
    for case in cases:
        name, number = case.id, 2
        while name in seen or (name != case.id and name in taken):
            name, number = f"{case.id}_{number}", number + 1
        seen.add(name)
        found.append(case if name == case.id else replace(case, id=name))
    return tuple(found)


def repeats_words(cases: Iterable[Case]) -> str:
    """`"greeting" (cases 1 and 3)`: the ids that several cases have; empty where each has its own."""
    said = [
        f'"{case_id}" (cases {", ".join(map(str, numbers[:-1]))} and {numbers[-1]})'
        for case_id, numbers in repeated_ids(cases).items()
    ]
    return ", ".join(said[:MOST_NAMED]) + (f" and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else "")


def assertions(case: Case) -> Mapping[str, int]:
    """How much a case asserts, by kind; a kind that it does not assert is left out."""
    counts = {
        "reference": sum(turn.expected.reference is not None for turn in case.turns),
        "tool_calls": sum(turn.expected.tool_calls is not None for turn in case.turns),
        "final_state": int(case.final_state is not None),
        "rubrics": len(case.rubrics) + sum(len(turn.rubrics) for turn in case.turns),
    }
    return {kind: n for kind, n in counts.items() if n}
