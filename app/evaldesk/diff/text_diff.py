"""Two texts, compared word by word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from typing import Literal, TypeAlias

from evaldesk.model import JsonValue
from evaldesk.model.json_text import json_line

SegmentKind: TypeAlias = Literal["same", "del", "ins"]

_WORD = re.compile(r"\s*(?:\w+|[^\w\s]|\Z)")
_MOST_WORK = 300_000
_MOST_LETTERS = 500_000


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
    for op, i, i_end, j, j_end in _opcodes(left_words, right_words):
        gone.append(("same" if op == "equal" else "del", "".join(left[i:i_end])))
        come.append(("same" if op == "equal" else "ins", "".join(right[j:j_end])))
    return TextDiff(_segments(gone), _segments(come))


def _opcodes(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    start, end = 0, 0
    shortest = min(len(left), len(right))
    while start < shortest and left[start] == right[start]:
        start += 1
    while end < shortest - start and left[-1 - end] == right[-1 - end]:
        end += 1
    left_end, right_end = len(left) - end, len(right) - end
    try:
        matcher = _Matcher(left[start:left_end], right[start:right_end])
        middle = [(op, a + start, b + start, c + start, d + start) for op, a, b, c, d in matcher.get_opcodes()]
    except _TooMuchWorkError:
        middle = [("replace", start, left_end, start, right_end)]
    return [("equal", 0, start, 0, start), *middle, ("equal", left_end, len(left), right_end, len(right))]


class _TooMuchWorkError(Exception):
    pass


class _Matcher(SequenceMatcher[str]):
    """Gives up after _MOST_WORK comparisons; lists of 500 words with a comma after each take 200 times as many."""

    def __init__(self, left: Sequence[str], right: Sequence[str]) -> None:
        super().__init__(None, left, right, autojunk=False)
        self._costs = [1 + n for n in map(Counter(right).__getitem__, left)]
        self._work = 0

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        self._work += sum(self._costs[alo:ahi])
        if self._work > _MOST_WORK:
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
