"""A case as it stands in its file: its JSON, its texts, the keys that no form shows, and two versions line by line."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from difflib import SequenceMatcher

from evaldesk.formats import case_to_json, shown_extra
from evaldesk.model import Case

AROUND = 2
MAX_LINES = 2_000
MAX_LINE = 5_000


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line; `op` is `=`, `-` (only in the first text), `+` (only in the second) or `…` (lines left out)."""

    op: str
    text: str


def diff_lines(first: str, second: str) -> tuple[DiffLine, ...]:
    """The lines of both texts, with AROUND equal lines kept on each side of a difference."""
    before, after = first.splitlines()[:MAX_LINES], second.splitlines()[:MAX_LINES]
    found: list[DiffLine] = []
    end = 0
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(AROUND):
        if group[0][1] > end:
            found.append(DiffLine("…", ""))
        for op, start, stop, other_start, other_stop in group:
            if op == "equal":
                found += [_line("=", line) for line in before[start:stop]]
                continue
            found += [_line("-", line) for line in before[start:stop]]
            found += [_line("+", line) for line in after[other_start:other_stop]]
        end = group[-1][2]
    if found and end < len(before):
        found.append(DiffLine("…", ""))
    return tuple(found)


def _line(op: str, text: str) -> DiffLine:
    return DiffLine(
        op, text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}… {len(text) - MAX_LINE:,} more characters"
    )


def difference(theirs: Case, mine: Case) -> tuple[DiffLine, ...]:
    """Both cases as lines of JSON."""
    return diff_lines(case_text(theirs), case_text(mine))


def case_text(case: Case) -> str:
    """The case as it stands, or will stand, in its file."""
    return json.dumps(case_to_json(case), ensure_ascii=False, indent=2)


def kept_keys(case: Case, shown: Collection[str]) -> list[str]:
    """The keys of the case in the file that no form shows; `shown` are keys that one does."""
    turns = [key for turn in case.turns for key in shown_extra(turn.extra)]
    rubrics = ["rubrics"] if any(turn.rubrics for turn in case.turns) else []
    session = shown_extra(case.initial_session.extra) if case.initial_session else {}
    return sorted({*shown_extra(case.extra)} - {*shown} | {*turns, *rubrics, *session})[:20]
