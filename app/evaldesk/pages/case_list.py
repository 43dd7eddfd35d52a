"""The cases of an eval set as lines of its page: searched, filtered, a page at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from evaldesk.desk.evalsets.cases import keys_of
from evaldesk.model import Case
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import CaseGroup, LargeCases, case_pieces, groups_of
from evaldesk.model.stored import LastVerdicts
from evaldesk.pages.runs.view import STATUS_OF

PAGE = 200
MAX_TAGS = 12


@dataclass(frozen=True, slots=True)
class CaseLine:
    """One case, with its trials in the `last` run; None when it never ran."""

    key: str
    case: Case
    calls: str
    unasserted: str
    last: LastVerdicts | None = None

    @property
    def verdicts(self) -> Sequence[str]:
        """A status for each trial of the last run."""
        return [STATUS_OF[letter] for letter in self.last.verdicts] if self.last else ()

    @property
    def first_message(self) -> str:
        """The start of the conversation; of a scenario without a first message, the task of the simulated user."""
        if self.case.scenario is not None:
            return str(self.case.scenario.get("starting_prompt") or self.case.scenario.get("conversation_plan", ""))
        return self.case.turns[0].query if self.case.turns else ""

    @property
    def passed(self) -> str:
        """Passed trials of those with a verdict that counts; empty when there is none."""
        if self.last is None:
            return ""
        letters = self.last.verdicts
        n_scored = sum(map(letters.count, "pfe" if self.last.errors_are_failures else "pf"))
        return f"{letters.count('p')} of {n_scored}" if n_scored else ""


@dataclass(frozen=True, slots=True)
class CaseList:
    """One page of lines; `start` and `end` count the matching cases from 0, `n_found` of `n_all` match."""

    lines: tuple[CaseLine, ...]
    tags: tuple[tuple[str, int], ...]
    n_all: int
    n_found: int
    n_asserting_nothing: int
    start: int
    end: int
    run_id: int | None

    @property
    def before(self) -> int | None:
        """Where the page before this one starts."""
        return max(0, self.start - PAGE) if self.start else None

    @property
    def after(self) -> int | None:
        """Where the next page starts."""
        return self.end if self.end < self.n_found else None


def case_list(
    cases: Sequence[Case],
    last_verdicts: Callable[[Collection[str]], Mapping[str, LastVerdicts]],
    *,
    run_id: int | None = None,
    text: str = "",
    tag: str = "",
    only: str = "",
    start: int = 0,
) -> CaseList:
    """The lines that match; `only="unasserted"` finds cases that assert nothing at all.

    `last_verdicts` tells those of cases by their ids, `run_id` is the newest run of any.
    """
    n_found, indexes = _find(cases, text.casefold().strip(), tag, only, start)
    if not indexes and start:
        start = 0
        n_found, indexes = _find(cases, text.casefold().strip(), tag, only, start)
    page_cases = cases[indexes[0] : indexes[-1] + 1] if _is_row(indexes) else [cases[index] for index in indexes]
    verdicts = last_verdicts([case.id for case in page_cases])
    keys = keys_of(cases, indexes)
    return CaseList(
        lines=tuple(
            CaseLine(key, case, *expected_calls(case), verdicts.get(case.id))
            for key, case in zip(keys, page_cases, strict=True)
        ),
        tags=_common_tags(cases, tag),
        n_all=len(cases),
        n_found=n_found,
        n_asserting_nothing=sum(group.n for group in _bare_groups(cases)),
        start=start,
        end=start + len(indexes),
        run_id=run_id,
    )


def matching_ids(cases: Sequence[Case], *, text: str = "", tag: str = "", only: str = "") -> list[str]:
    """The ids of all cases that match, on whichever page they are."""
    if isinstance(cases, LargeCases):
        groups = [group.number for group in _bare_groups(cases)] if only == "unasserted" else None
        _, numbers = cases.search(text.casefold().strip(), tag, groups, 0, len(cases))
        return [cases.id_at(number) for number in numbers]
    return [case.id for case in cases if _matches(case, text.casefold().strip(), tag, only)]


def _is_row(numbers: Sequence[int]) -> bool:
    return bool(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1


def _find(cases: Sequence[Case], text: str, tag: str, only: str, start: int) -> tuple[int, list[int]]:
    """The number of matching cases, and a page of them."""
    if isinstance(cases, LargeCases):
        groups = [group.number for group in _bare_groups(cases)] if only == "unasserted" else None
        return cases.search(text, tag, groups, start, PAGE)
    indexes = [index for index, case in enumerate(cases) if _matches(case, text, tag, only)]
    return len(indexes), indexes[start : start + PAGE]


def _bare_groups(cases: Sequence[Case]) -> list[CaseGroup]:
    return [group for group in groups_of(cases) if asserts_nothing(group.case)]


def asserts_nothing(case: Case) -> bool:
    """Whether no run can fail on this case: no calls, no reference, no final state, no rubrics."""
    if case.final_state is not None or case.rubrics or case.scenario is not None:
        return False
    return all(
        turn.expected.tool_calls is None and turn.expected.reference is None and not turn.rubrics for turn in case.turns
    )


def expected_calls(case: Case) -> tuple[str, str]:
    """The case's assertions on tool calls, and the turns without one: ("5", "+ 1 turn not asserted")."""
    if case.scenario is not None:
        return "scenario", ""
    stated = [turn.expected.tool_calls for turn in case.turns if turn.expected.tool_calls is not None]
    n_open = len(case.turns) - len(stated)
    if not stated:
        return "", "not asserted"
    n_calls = sum(len(calls) for calls in stated)
    words = str(n_calls) if n_calls else "no tool may be called"
    if n_open and not n_calls:
        words = f"none in {counted(len(stated), 'turn')}"
    return words, f"+ {counted(n_open, 'turn')} not asserted" if n_open else ""


def _common_tags(cases: Sequence[Case], chosen_tag: str) -> tuple[tuple[str, int], ...]:
    counts = Counter(cases.tags() if isinstance(cases, LargeCases) else [tag for case in cases for tag in case.tags])
    common = counts.most_common(MAX_TAGS)
    if chosen_tag and chosen_tag not in dict(common):
        common.append((chosen_tag, counts[chosen_tag]))
    return tuple(common)


def _matches(case: Case, text: str, tag: str, only: str) -> bool:
    if tag and tag not in case.tags:
        return False
    if only == "unasserted" and not asserts_nothing(case):
        return False
    return not text or any(text in piece.casefold() for piece in case_pieces(case))
