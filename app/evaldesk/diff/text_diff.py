"""Two texts, compared word by word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from typing import Literal, TypeAlias

from evaldesk.model import JsonValue
from evaldesk.model.json_text import json_line

SegmentKind: TypeAlias = Literal["same", "del", "ins"]

_WORD = re.compile(r"\s*(?:\w+|[^\w\s]|\Z)")
_MOST_WORK = 300_000
_MOST_LETTERS = 500_000
_MOST_WORK_ON_LINES = 2_000_000
_AROUND = 3


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of one side: in both texts, only in the expected one (`del`) or only in the actual one (`ins`)."""

    kind: SegmentKind
    text: str


@dataclass(frozen=True, slots=True)
class TextDiff:
    """Both texts in full, cut where they begin or cease to agree."""

    expected: tuple[Segment, ...]
    actual: tuple[Segment, ...]

    @property
    def is_same(self) -> bool:
        """Whether no word differs; spacing is not counted."""
        return all(segment.kind == "same" for segment in (*self.expected, *self.actual))


def diff_text(expected: str, actual: str) -> TextDiff:
    """Compare word by word; punctuation marks are words of their own, the space before a word goes with it.

    Texts too long to be compared in a moment are taken as different between their common beginning and end, and those
    of hundreds of pages as a whole.
    """
    if expected == actual:
        return TextDiff(_segments([("same", expected)]), _segments([("same", actual)]))
    if len(expected) + len(actual) > _MOST_LETTERS:
        return TextDiff(_segments([("del", expected)]), _segments([("ins", actual)]))
    left, right = _WORD.findall(expected), _WORD.findall(actual)
    left_words, right_words = [word.strip() for word in left], [word.strip() for word in right]
    gone: list[tuple[SegmentKind, str]] = []
    come: list[tuple[SegmentKind, str]] = []
    for op, i, i_end, j, j_end in opcodes(left_words, right_words):
        gone.append(("same" if op == "equal" else "del", "".join(left[i:i_end])))
        come.append(("same" if op == "equal" else "ins", "".join(right[j:j_end])))
    return TextDiff(_segments(gone), _segments(come))


def unified_lines(expected: str, actual: str) -> Iterator[str]:
    """The lines that differ as a unified diff with three lines around them; nothing of equal texts."""
    left, right = expected.splitlines(), actual.splitlines()
    found = opcodes(left, right, _MOST_WORK_ON_LINES)
    last = max((at for at, (op, *_) in enumerate(found) if op != "equal"), default=-1)
    for at, (op, i, i_end, j, j_end) in enumerate(found):
        if op != "equal":
            yield from ["@@ -1 +1 @@"] if not at else ()
            yield from (f"-{line}" for line in left[i:i_end])
            yield from (f"+{line}" for line in right[j:j_end])
            continue
        after = min(i + _AROUND, i_end) if at else i
        before = max(after, i_end - _AROUND) if at < last else i_end
        yield from (f" {line}" for line in left[i:after])
        if at < last and (before > after or not at):
            yield f"@@ -{before + 1} +{j + before - i + 1} @@"
        yield from (f" {line}" for line in left[before:i_end])


def opcodes(
    left: Sequence[str], right: Sequence[str], most_work: int = _MOST_WORK
) -> list[tuple[str, int, int, int, int]]:
    """The steps from `left` to `right` as difflib has them, none empty; the middle is one where it is too much work."""
    start, end = 0, 0
    shortest = min(len(left), len(right))
    while start < shortest and left[start] == right[start]:
        start += 1
    while end < shortest - start and left[-1 - end] == right[-1 - end]:
        end += 1
    left_end, right_end = len(left) - end, len(right) - end
    try:
        if left_end + right_end - 2 * start > most_work:
            raise _TooMuchWorkError
        matcher = _Matcher(left[start:left_end], right[start:right_end], most_work)
        middle = [(op, a + start, b + start, c + start, d + start) for op, a, b, c, d in matcher.get_opcodes()]
    except _TooMuchWorkError:
        middle = [("replace", start, left_end, start, right_end)]
    found = [("equal", 0, start, 0, start), *middle, ("equal", left_end, len(left), right_end, len(right))]
    return [step for step in found if step[1] < step[2] or step[3] < step[4]]


class _TooMuchWorkError(Exception):
    pass


class _Matcher(SequenceMatcher[str]):
    """Gives up after `most_work` comparisons; lists of 500 words with a comma after each take 200 times as many."""

    def __init__(self, left: Sequence[str], right: Sequence[str], most_work: int) -> None:
        super().__init__(None, left, right, autojunk=False)
        self._costs = [1 + n for n in map(Counter(right).__getitem__, left)]
        self._work, self._most_work = 0, most_work

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        self._work += sum(self._costs[alo:ahi])
        if self._work > self._most_work:
            raise _TooMuchWorkError
        return super().find_longest_match(alo, ahi, blo, bhi)


def _segments(pieces: Iterable[tuple[SegmentKind, str]]) -> tuple[Segment, ...]:
    """Pieces without empty ones, neighbours of a kind joined, space at the edge of a change left outside of it."""
    joined: list[tuple[SegmentKind, str]] = []
    for kind, text in pieces:
        word = text.lstrip()
        space = text[: len(text) - len(word)]
        for part_kind, part in ((kind if kind == "same" else "same", space), (kind, word)):
            if part and joined and joined[-1][0] == part_kind:
                joined[-1] = (part_kind, joined[-1][1] + part)
            elif part:
                joined.append((part_kind, part))
    return tuple(Segment(kind, text) for kind, text in joined)


def diff_json(expected: JsonValue, actual: JsonValue) -> TextDiff:
    """Two values that are not equal, word by word; where only spaces differ, the whole values."""
    left, right = json_line(expected), json_line(actual)
    diff = diff_text(left, right)
    return TextDiff((Segment("del", left),), (Segment("ins", right),)) if diff.is_same else diff
