"""Two texts as one list of lines: what only the first has, what only the second has, and a little around."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

AROUND = 2
MAX_LINES = 2_000


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
                found += [DiffLine("=", line) for line in before[start:stop]]
                continue
            found += [DiffLine("-", line) for line in before[start:stop]]
            found += [DiffLine("+", line) for line in after[other_start:other_stop]]
        end = group[-1][2]
    if found and end < len(before):
        found.append(DiffLine("…", ""))
    return tuple(found)
