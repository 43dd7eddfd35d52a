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
    old_number: int | None
    new_number: int | None
    text: str


def changed_lines(before: str, after: str) -> list[Line]:
    """The lines that differ between two texts with CONTEXT lines around them, MAX_LINES at most."""
    old_lines, new_lines = before.splitlines(), after.splitlines()
    start = sum(takewhile(bool, map(eq, old_lines, new_lines)))
    end = sum(takewhile(bool, map(eq, old_lines[start:][::-1], new_lines[start:][::-1])))
    if start == len(old_lines) == len(new_lines):
        return []
    left_lines, right_lines = (
        old_lines[start : len(old_lines) - end][:MAX_COMPARED],
        new_lines[start : len(new_lines) - end][:MAX_COMPARED],
    )
    lines = [Line("", at + 1, at + 1, old_lines[at]) for at in range(max(0, start - CONTEXT), start)]
    for number, group in enumerate(
        SequenceMatcher(None, left_lines, right_lines, autojunk=False).get_grouped_opcodes(CONTEXT)
    ):
        lines += [Line("…", None, None, "")] if number else []
        for op, *ends in group:
            i, i_end, j, j_end = (start + at for at in ends)
            lines += _lines(op, old_lines, new_lines, (i, i_end), (j, j_end))
    last = len(old_lines) - end, len(new_lines) - end
    lines += _lines("equal", old_lines, new_lines, *((at, at + min(CONTEXT, end)) for at in last))
    return [replace(line, text=cut(line.text, MAX_LINE)) for line in lines[:MAX_LINES]]


def _lines(
    op: str, old_lines: Sequence[str], new_lines: Sequence[str], old_range: tuple[int, int], new_range: tuple[int, int]
) -> Iterator[Line]:
    if op == "equal":
        for i, j in zip(range(*old_range), range(*new_range), strict=True):
            yield Line("", i + 1, j + 1, old_lines[i])
        return
    for i in range(*old_range):
        yield Line("-", i + 1, None, old_lines[i])
    for j in range(*new_range):
        yield Line("+", None, j + 1, new_lines[j])


def difference(stored_case: Case, own_case: Case) -> list[Line]:
    """Both cases as lines of JSON."""
    return changed_lines(case_text(stored_case), case_text(own_case))


def case_text(case: Case) -> str:
    """The case as it stands, or will stand, in its file."""
    return json.dumps(case_to_json(case), ensure_ascii=False, indent=2)


def kept_keys(case: Case, form_keys: Collection[str]) -> list[str]:
    """The keys of the case in the file that no form shows; `form_keys` are keys that one does."""
    turns = [key for turn in case.turns for key in shown_extra(turn.extra)]
    rubrics = ["rubrics"] if any(turn.rubrics for turn in case.turns) else []
    session = shown_extra(case.initial_session.extra) if case.initial_session else {}
    return sorted({*shown_extra(case.extra)} - {*form_keys} | {*turns, *rubrics, *session})[:20]
