"""Eval sets, cases and turns: the user's side, the expectations, and the name of a case wherever runs speak of it."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from evaldesk.model.case_facts import CaseFacts
from evaldesk.model.media import Media

if TYPE_CHECKING:
    JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
else:
    # The wire codec resolves annotations at run time and has no use for the recursion.
    JsonValue = Any


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One actual or expected tool call of the agent."""

    name: str
    args: JsonObject = field(default_factory=dict)
    id: str | None = None
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expected:
    """The expectation of a turn. `tool_calls=None` is "not asserted", `()` is "no tool may be called"."""

    tool_calls: tuple[ToolCall, ...] | None = None
    intermediate: tuple[tuple[str, str], ...] = ()
    reference: str | None = None
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message, its text and its media, and the expectation until the agent answers."""

    query: str
    expected: Expected = field(default_factory=Expected)
    rubrics: tuple[JsonObject, ...] = ()
    extra: JsonObject = field(default_factory=dict)
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionInit:
    """The session a case starts from."""

    app_name: str = ""
    user_id: str = ""
    state: JsonObject = field(default_factory=dict)
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation with expectations, or a `scenario` from which a simulated user makes one.

    Exactly one of `turns` and `scenario` is used; a case with a scenario has no turns.
    """

    id: str
    turns: tuple[Turn, ...] = ()
    scenario: JsonObject | None = None
    initial_session: SessionInit | None = None
    final_state: JsonObject | None = None
    rubrics: tuple[JsonObject, ...] = ()
    tags: tuple[str, ...] = ()
    extra: JsonObject = field(default_factory=dict)

    @property
    def initial_state(self) -> JsonObject:
        """The state the session starts from; empty when the case names none."""
        return self.initial_session.state if self.initial_session else {}

    @property
    def media(self) -> tuple[Media, ...]:
        """The images, sounds and files of all its messages."""
        return tuple(item for turn in self.turns for item in turn.media)


# A tag is in every form of the file and in the index: decision 446.
NEEDS_REVIEW = "needs-review"
"""The tag of a case that an import could not read whole: no run plays it until a person takes the tag away."""
REVIEW_REASON = "needs_review"
"""The key of a case's `extra` that says what the import could not read."""


QUARANTINE = "quarantine"
"""The tag of a case that is played and shown and that no gate asks for."""
TAG_PREFIX, NO_TAGS = "tag:", "none"


def tags_of_filter(text: str) -> tuple[str, ...]:
    """The tags in `tag:smoke,tag:slow`; none in `none`. Raises ValueError for a part of another form."""
    parts = [part.strip() for part in text.split(",") if part.strip() not in ("", NO_TAGS)]
    if not all(part.startswith(TAG_PREFIX) and part != TAG_PREFIX for part in parts):
        raise ValueError(f"write tag:NAME, or several with commas, not {text[:40]!r}")
    return tuple(part.removeprefix(TAG_PREFIX) for part in parts)


def ids_with_tags(cases: Sequence[Case], tags: Collection[str]) -> list[str]:
    """The ids of the cases that have one of the tags, in order."""
    if not tags:
        return []
    if not isinstance(cases, LargeCases):
        return [case.id for case in cases if not set(tags).isdisjoint(case.tags)]
    numbers: set[int] = set()
    for tag in set(tags) & cases.tags().keys():
        numbers.update(cases.search("", tag, None, 0, len(cases))[1])
    return [cases.id_at(number) for number in sorted(numbers)]


def for_review(case: Case, reason: str) -> Case:
    """The case that a person has to look at before it is played."""
    tags = case.tags if NEEDS_REVIEW in case.tags else (*case.tags, NEEDS_REVIEW)
    return replace(case, tags=tags, extra={**case.extra, REVIEW_REASON: reason})


def ids_for_review(cases: Sequence[Case]) -> list[str]:
    """The ids of the cases that wait for a review, of a large set the first ones."""
    if not isinstance(cases, LargeCases):
        return [case.id for case in cases if NEEDS_REVIEW in case.tags]
    if NEEDS_REVIEW not in cases.tags():
        return []
    _, numbers = cases.search("", NEEDS_REVIEW, None, 0, MOST_NAMED)
    return [cases.id_at(number) for number in numbers]


TRIALS = "trials"
"""The key of a case's `extra` with its own number of trials, in place of that of the run."""
MOST_OWN_TRIALS = 1_000


def own_trials(case: Case) -> int | None:
    """The number of trials that the case names; None for none, and for a column of a data set that is no number.

    Raises ValueError for a number below 1 or above MOST_OWN_TRIALS.
    """
    n = case.extra.get(TRIALS)
    if isinstance(n, bool) or not isinstance(n, int):
        return None
    if not 1 <= n <= MOST_OWN_TRIALS:
        raise ValueError(f"case {case.id!r}: {TRIALS} must be 1 to {MOST_OWN_TRIALS:,}, got {n}")
    return n


def trials_of_cases(cases: Sequence[Case], n: int) -> tuple[int, ...]:
    """The trials of each case where some case names its own number; empty where each has `n`. Raises ValueError."""
    if isinstance(cases, LargeCases) and not cases.has_key(TRIALS):
        return ()
    numbers = tuple(own_trials(case) or n for case in cases)
    return numbers if set(numbers) - {n} else ()


def count_trials(cases: Sequence[Case], n: int) -> int:
    """The trials of a run in which a case without a number of its own has `n`. Raises ValueError."""
    return sum(trials_of_cases(cases, n)) or n * len(cases)


CRITERIA = "criteria"
"""The key of a set's `extra` with the criteria of the set, and of a case's with those of them that judge it."""


def own_bars(case: Case) -> Mapping[str, float | None]:
    """The metrics that the case names as its criteria, each with its own threshold; None for that of the run.

    It is a list of metrics, or an object of a threshold each. Empty for no such key, and for another column of that
    name.
    """
    names = case.extra.get(CRITERIA)
    if isinstance(names, list | tuple):
        return dict.fromkeys(name for name in names if isinstance(name, str))
    if not isinstance(names, Mapping):
        return {}
    return {name: _own_threshold(value) for name, value in names.items()}


def _own_threshold(value: object) -> float | None:
    """The number, or that of `threshold`; None for anything else."""
    if isinstance(value, Mapping):
        value = value.get("threshold")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= sys.float_info.max else None  # type: ignore[arg-type]


PROVENANCE = "provenance"
"""The key of a case's `extra` that names the conversation or the trial that it was made of."""
DECISIONS = "human_decisions"
EXPECTED_OUTCOMES = "expected_outcomes"
"""The key of a case's `extra` with the outcomes that it expects of its turns."""
USER_SIDE_KEYS = frozenset({"tool_doubles", "simulated_user", DECISIONS})
"""Keys of a case's `extra` that its player needs: the answers of tools, the user's own, and what a person decides."""


PRESENT_KEYS = frozenset({"tool_doubles"})
"""Those of USER_SIDE_KEYS that a player needs before the first message."""


def user_side(case: Case) -> Case:
    """The case as the process of the agent gets it: no expectation, reference, rubric or column of the data set."""
    return Case(
        id=case.id,
        turns=tuple(Turn(turn.query, media=turn.media) for turn in case.turns),
        scenario=case.scenario,
        initial_session=case.initial_session,
        extra={key: value for key, value in case.extra.items() if key in USER_SIDE_KEYS},
    )


def present_side(case: Case) -> Case:
    """The user's side of the case without its messages, its plan and its decisions, which come with their turn."""
    return Case(
        id=case.id,
        scenario=None if case.scenario is None else {},
        initial_session=case.initial_session,
        extra={key: value for key, value in case.extra.items() if key in PRESENT_KEYS},
    )


@dataclass(frozen=True, slots=True)
class CaseGroup:
    """A group of cases to which the same metrics apply: a `case` with the assertions of each."""

    number: int
    case: Case
    n: int


class EditedCases(Sequence[Case], ABC):
    """The cases of a set that is not in memory, with edits of some."""

    @abstractmethod
    def splice(self, start: int, stop: int, inserted_cases: Sequence[Case]) -> EditedCases:
        """The same cases, but with `inserted_cases` in the place of those from `start` to `stop`."""

    @property
    def inserted_cases(self) -> Sequence[Case]:
        """The cases that are not in the file yet, in order."""
        return ()


# A set of 200,000 cases is not held in memory: decision 151.
class LargeCases(EditedCases):
    """The cases of a set that is not in memory: each is read when it is asked for, and an index answers the rest.

    Where a case, or a text of it, is looked for, `number` counts cases from 0 in the order of the file. Reading raises
    FormatError when the file changed meanwhile.
    """

    @abstractmethod
    def ids(self, groups: Collection[int] | None = None) -> Iterator[str]:
        """The ids in order; those of the cases in some groups by their numbers."""

    @abstractmethod
    def versions(self) -> Iterator[tuple[str, str]]:
        """The id and the `case_version` of each case, in order; no case is read."""

    @abstractmethod
    def case_facts(self) -> Iterator[CaseFacts]:
        """The facts of each case, in order; no case is read."""

    @abstractmethod
    def id_at(self, number: int) -> str:
        """The id of one case."""

    @abstractmethod
    def with_ids(self, ids: Collection[str]) -> tuple[Case, ...]:
        """The cases that have one of these ids, in order."""

    @abstractmethod
    def repeated_ids(self) -> dict[str, tuple[int, ...]]:
        """The ids that several cases have, each with the places of its cases, counted from 1."""

    @abstractmethod
    def numbers_of(self, key: str) -> list[int]:
        """The cases whose id has that `case_key`."""

    @abstractmethod
    def groups(self) -> tuple[CaseGroup, ...]:
        """All cases, grouped by their assertions."""

    @abstractmethod
    def group_of(self, case_id: str) -> int:
        """The group of the first case with that id. Raises KeyError."""

    @cached_property
    def parts(self) -> tuple[Case, ...]:
        """A case for each group with its assertions; its id is the number of the group."""
        return tuple(replace(group.case, id=str(group.number)) for group in self.groups())

    def of_parts(self, part_ids: Collection[str]) -> GroupIds:
        """The ids of the cases in some groups."""
        return GroupIds(self, frozenset(map(int, part_ids)))

    @abstractmethod
    def search(
        self, text: str, tag: str, groups: Collection[int] | None, start: int, limit: int
    ) -> tuple[int, list[int]]:
        """The number of cases with the casefolded `text`, the tag and one of the groups, and `limit` of them."""

    @abstractmethod
    def has_key(self, key: str) -> bool:
        """Whether the file has this key somewhere; no case is read."""

    @abstractmethod
    def tags(self) -> Mapping[str, int]:
        """The tags with the number of their cases, in the order of the file."""

    @abstractmethod
    def first_app(self, names: Collection[str]) -> str:
        """The first of these apps that a case names; empty where none does."""


class GroupIds(Sequence[str]):
    """The ids of the cases in some groups of a large set, in order; they are read when they are asked for."""

    def __init__(self, cases: LargeCases, groups: frozenset[int]) -> None:
        self.cases = cases
        self.groups = groups

    def __len__(self) -> int:
        return sum(group.n for group in self.cases.groups() if group.number in self.groups)

    def __iter__(self) -> Iterator[str]:
        return self.cases.ids(self.groups)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, int):
            return self[index : index + 1][0]
        start, stop, step = index.indices(len(self))
        return tuple(islice(self, start, stop, step))


class LargeReasons(Mapping[str, str]):
    """Case id -> reason, for the cases in some groups of a large set by the ids of its parts."""

    def __init__(self, cases: LargeCases, reasons: Mapping[str, str]) -> None:
        self._ids = cases.of_parts(reasons)
        self._reasons = reasons

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __getitem__(self, case_id: str) -> str:
        return self._reasons[str(self._ids.cases.group_of(case_id))]


def some_of(cases: Sequence[Case]) -> Sequence[Case]:
    """Cases with all assertions of the set: a few of a large set, all of another."""
    return cases.parts if isinstance(cases, LargeCases) else cases


if TYPE_CHECKING:
    Cases: TypeAlias = Sequence[Case]
else:
    Cases = tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class EvalSet:
    """A named list of cases, as one file holds it. Those of a large file are LargeCases."""

    id: str
    name: str | None = None
    description: str | None = None
    cases: Cases = ()
    extra: JsonObject = field(default_factory=dict)

    def case(self, case_id: str) -> Case | None:
        """The case with that id, or None."""
        return next((case for case in self.cases if case.id == case_id), None)


JsonObject: TypeAlias = Mapping[str, JsonValue]


def groups_of(cases: Sequence[Case]) -> Sequence[CaseGroup]:
    """All cases grouped by their assertions; cases in memory are a group each."""
    if isinstance(cases, LargeCases):
        return cases.groups()
    return [CaseGroup(number, case, 1) for number, case in enumerate(cases)]


def splice_cases(cases: Sequence[Case], start: int, stop: int, inserted_cases: Sequence[Case] = ()) -> Sequence[Case]:
    """The cases, but with `inserted_cases` in the place of those from `start` to `stop`."""
    if isinstance(cases, EditedCases):
        return cases.splice(start, stop, inserted_cases)
    return (*cases[:start], *inserted_cases, *cases[stop:])


def plain_number(value: object) -> object:
    """The bool, int or float that a scalar of numpy, torch or the like stands for; any other value as it is.

    Nothing is imported: such a scalar is a `Real`, or has the shape `()` and an `item()`.
    """
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    item = getattr(value, "item", None)
    if getattr(value, "shape", None) != () or not callable(item):
        return value
    number = item()
    return number if isinstance(number, bool | int | float) else value


MOST_NAMED = 5
CasePosition: TypeAlias = tuple[str, str, int]
"""Eval set, case id and ordinal: the place of a case, independent of its content."""


@dataclass(frozen=True, slots=True)
class CaseKey:
    """A case of an eval set. `ordinal` counts the cases with this id in this set from 0.

    `digest` is its `case_version`; empty where a file does not have it.
    """

    evalset: str
    case_id: str
    ordinal: int = 0
    digest: str = ""

    @property
    def place(self) -> CasePosition:
        """The key without the content."""
        return self.evalset, self.case_id, self.ordinal

    def is_edited(self, other: CaseKey) -> bool:
        """Whether the content is known on both sides and differs."""
        return bool(self.digest and other.digest) and self.digest != other.digest


def numbered_keys(cases: Iterable[tuple[str, str, str]]) -> list[CaseKey]:
    """A key for each (eval set, case id, digest), in order; cases of one set with the same id are numbered."""
    n_of_id: Counter[tuple[str, str]] = Counter()
    keys = []
    for evalset, case_id, digest in cases:
        keys.append(CaseKey(evalset, case_id, n_of_id[evalset, case_id], digest))
        n_of_id[evalset, case_id] += 1
    return keys


def case_names(places: Collection[CasePosition]) -> dict[CasePosition, str]:
    """An unambiguous name for each case: `greeting`, or `alpha:greeting` and `alpha:greeting (2)` where need be."""
    alike = Counter(case_id for _, case_id, _ in places)
    in_set = Counter((evalset, case_id) for evalset, case_id, _ in places)
    names = {}
    for evalset, case_id, ordinal in places:
        name = case_id if alike[case_id] == in_set[evalset, case_id] else f"{evalset}:{case_id}"
        names[evalset, case_id, ordinal] = f"{name} ({ordinal + 1})" if ordinal else name
    return names


def repeated_ids(cases: Iterable[Case]) -> dict[str, tuple[int, ...]]:
    """The ids that several cases have, each with the places of its cases, counted from 1."""
    if isinstance(cases, LargeCases):
        return cases.repeated_ids()
    places: dict[str, list[int]] = {}
    for number, case in enumerate(cases, 1):
        places.setdefault(case.id, []).append(number)
    return {case_id: tuple(numbers) for case_id, numbers in places.items() if len(numbers) > 1}


def renamed_repeats(cases: Sequence[Case]) -> tuple[Case, ...]:
    """The cases with an id each: a repeated one ends in the first free number, `greeting_2`."""
    all_ids = {case.id for case in cases}
    used_ids: set[str] = set()
    renamed_cases = []
    for case in cases:
        name, number = case.id, 2
        while name in used_ids or (name != case.id and name in all_ids):
            name, number = f"{case.id}_{number}", number + 1
        used_ids.add(name)
        renamed_cases.append(case if name == case.id else replace(case, id=name))
    return tuple(renamed_cases)


def repeats_words(cases: Iterable[Case]) -> str:
    """`"greeting" (cases 1 and 3)`: the ids that several cases have; empty where each has its own."""
    parts = [
        f'"{case_id}" (cases {", ".join(map(str, numbers[:-1]))} and {numbers[-1]})'
        for case_id, numbers in repeated_ids(cases).items()
    ]
    return ", ".join(parts[:MOST_NAMED]) + (f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else "")


EVALSET_ENDING = re.compile(r"(?:\.evalset|\.test)?\.json\Z", re.IGNORECASE | re.ASCII)
"""The ending of the name of an eval set file; the part before it is the name a person gives."""


def case_key(case_id: str) -> str:
    """The key of the case with that id, which fits into an address."""
    digest = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).digest()[:12]
    return base64.urlsafe_b64encode(digest).decode()


def case_pieces(case: Case) -> list[str]:
    """The texts of a case in which a search looks: its id first, then tags, messages, references and names of tools."""
    pieces = [case.id, *case.tags]
    if case.scenario is not None:
        pieces += [value for value in case.scenario.values() if isinstance(value, str)]
    for turn in case.turns:
        pieces += [turn.query, turn.expected.reference or ""]
        pieces += [call.name for call in turn.expected.tool_calls or ()]
    return pieces


def assertions(case: Case) -> Mapping[str, int]:
    """The number of assertions of a case, by kind, without kinds that it does not assert."""
    counts = {
        "reference": sum(turn.expected.reference is not None for turn in case.turns),
        "tool_calls": sum(turn.expected.tool_calls is not None for turn in case.turns),
        "final_state": int(case.final_state is not None),
        "rubrics": len(case.rubrics) + sum(len(turn.rubrics) for turn in case.turns),
    }
    return {kind: n for kind, n in counts.items() if n}
