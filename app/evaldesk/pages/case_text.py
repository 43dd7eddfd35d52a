"""A case as it stands in its file: its JSON, its texts, the keys that no form shows, and two versions line by line."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import takewhile
from operator import eq

from evaldesk.formats import case_to_json, shown_extra
from evaldesk.model import Case
from evaldesk.pages.json_tree import cut

CONTEXT = 2
MAX_LINES = 400
MAX_LINE = 5_000
MAX_COMPARED = 2_000
"""Lines from the first to the last that differ, of each text."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a change: `+`, `-`, the same on both sides, or `…` for lines left out; numbers count from 1."""

    op: str
    old: int | None
    new: int | None
    text: str


def changed_lines(before: str, after: str) -> list[Line]:
    """The lines that differ between two texts with CONTEXT lines around them, MAX_LINES at most."""
    old, new = before.splitlines(), after.splitlines()
    start = sum(takewhile(bool, map(eq, old, new)))
    end = sum(takewhile(bool, map(eq, old[start:][::-1], new[start:][::-1])))
    if start == len(old) == len(new):
        return []
    left, right = old[start : len(old) - end][:MAX_COMPARED], new[start : len(new) - end][:MAX_COMPARED]
    lines = [Line("", at + 1, at + 1, old[at]) for at in range(max(0, start - CONTEXT), start)]
    for number, group in enumerate(SequenceMatcher(None, left, right, autojunk=False).get_grouped_opcodes(CONTEXT)):
        lines += [Line("…", None, None, "")] if number else []
        for op, *ends in group:
            i, i_end, j, j_end = (start + at for at in ends)
            lines += _lines(op, old, new, (i, i_end), (j, j_end))
    last = len(old) - end, len(new) - end
    lines += _lines("equal", old, new, *((at, at + min(CONTEXT, end)) for at in last))
    return [replace(line, text=cut(line.text, MAX_LINE)) for line in lines[:MAX_LINES]]


def _lines(
    op: str, old: Sequence[str], new: Sequence[str], left: tuple[int, int], right: tuple[int, int]
) -> Iterator[Line]:
    if op == "equal":
        for i, j in zip(range(*left), range(*right), strict=True):
            yield Line("", i + 1, j + 1, old[i])
        return
    for i in range(*left):
        yield Line("-", i + 1, None, old[i])
    for j in range(*right):
        yield Line("+", None, j + 1, new[j])


def difference(theirs: Case, mine: Case) -> list[Line]:
    """Both cases as lines of JSON."""
    return changed_lines(case_text(theirs), case_text(mine))


def case_text(case: Case) -> str:
    """The case as it stands, or will stand, in its file."""
    return json.dumps(case_to_json(case), ensure_ascii=False, indent=2)


def kept_keys(case: Case, shown: Collection[str]) -> list[str]:
    """The keys of the case in the file that no form shows; `shown` are keys that one does."""
    turns = [key for turn in case.turns for key in shown_extra(turn.extra)]
    rubrics = ["rubrics"] if any(turn.rubrics for turn in case.turns) else []
    session = shown_extra(case.initial_session.extra) if case.initial_session else {}
    return sorted({*shown_extra(case.extra)} - {*shown} | {*turns, *rubrics, *session})[:20]
