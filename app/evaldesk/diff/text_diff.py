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
_CONTEXT_LINES = 3


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of one side: in both texts, only in the expected one (`del`) or only in the actual one (`ins`)."""

    kind: SegmentKind
    text: str


@dataclass(frozen=True, slots=True)
class TextDiff:
    """Both texts in full, as segments of equal and different words."""

    expected: tuple[Segment, ...]
    actual: tuple[Segment, ...]

    @property
    def is_same(self) -> bool:
        """Whether no word differs; spacing is not counted."""
        return all(segment.kind == "same" for segment in (*self.expected, *self.actual))


def diff_names(expected: str, actual: str) -> TextDiff:
    """Compare two names as a whole: that they share a word says nothing."""
    if expected == actual:
        return diff_text(expected, actual)
    return TextDiff(_segments([("del", expected)]), _segments([("ins", actual)]))


def diff_text(expected: str, actual: str) -> TextDiff:
    """Compare word by word; a punctuation mark is a word, the space before a word belongs to it.

    Long texts count as different between their common beginning and end; texts of more than _MOST_LETTERS letters as a
    whole.
    """
    if expected == actual:
        return TextDiff(_segments([("same", expected)]), _segments([("same", actual)]))
    if len(expected) + len(actual) > _MOST_LETTERS:
        return diff_names(expected, actual)
    expected_parts, actual_parts = _WORD.findall(expected), _WORD.findall(actual)
    expected_words, actual_words = [word.strip() for word in expected_parts], [word.strip() for word in actual_parts]
    expected_pieces: list[tuple[SegmentKind, str]] = []
    actual_pieces: list[tuple[SegmentKind, str]] = []
    for op, i, i_end, j, j_end in opcodes(expected_words, actual_words):
        expected_pieces.append(("same" if op == "equal" else "del", "".join(expected_parts[i:i_end])))
        actual_pieces.append(("same" if op == "equal" else "ins", "".join(actual_parts[j:j_end])))
    return TextDiff(_segments(expected_pieces), _segments(actual_pieces))


def unified_lines(expected: str, actual: str) -> Iterator[str]:
    """A unified diff with three lines of context; empty for equal texts."""
    expected_lines, actual_lines = expected.splitlines(), actual.splitlines()
    steps = opcodes(expected_lines, actual_lines, _MOST_WORK_ON_LINES)
    last = max((at for at, (op, *_) in enumerate(steps) if op != "equal"), default=-1)
    for at, (op, i, i_end, j, j_end) in enumerate(steps):
        if op != "equal":
            yield from ["@@ -1 +1 @@"] if not at else ()
            yield from (f"-{line}" for line in expected_lines[i:i_end])
            yield from (f"+{line}" for line in actual_lines[j:j_end])
            continue
        head_end = min(i + _CONTEXT_LINES, i_end) if at else i
        tail_start = max(head_end, i_end - _CONTEXT_LINES) if at < last else i_end
        yield from (f" {line}" for line in expected_lines[i:head_end])
        if at < last and (tail_start > head_end or not at):
            yield f"@@ -{tail_start + 1} +{j + tail_start - i + 1} @@"
        yield from (f" {line}" for line in expected_lines[tail_start:i_end])


def opcodes(
    before: Sequence[str], after: Sequence[str], most_work: int = _MOST_WORK
) -> list[tuple[str, int, int, int, int]]:
    """Non-empty difflib opcodes from `before` to `after`; beyond `most_work` the middle is one replacement."""
    start, end = 0, 0
    shortest = min(len(before), len(after))
    while start < shortest and before[start] == after[start]:
        start += 1
    while end < shortest - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old_end, new_end = len(before) - end, len(after) - end
    try:
        if old_end + new_end - 2 * start > most_work:
            raise _TooMuchWorkError
        matcher = _Matcher(before[start:old_end], after[start:new_end], most_work)
        middle = [(op, a + start, b + start, c + start, d + start) for op, a, b, c, d in matcher.get_opcodes()]
    except _TooMuchWorkError:
        middle = [("replace", start, old_end, start, new_end)]
    steps = [("equal", 0, start, 0, start), *middle, ("equal", old_end, len(before), new_end, len(after))]
    return [step for step in steps if step[1] < step[2] or step[3] < step[4]]


class _TooMuchWorkError(Exception):
    pass


class _Matcher(SequenceMatcher[str]):
    """A SequenceMatcher with a limit of comparisons: frequent items, such as commas, make it 200 times slower."""

    def __init__(self, before: Sequence[str], after: Sequence[str], most_work: int) -> None:
        super().__init__(None, before, after, autojunk=False)
        self._costs = [1 + n for n in map(Counter(after).__getitem__, before)]
        self._work, self._most_work = 0, most_work

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        self._work += sum(self._costs[alo:ahi])
        if self._work > self._most_work:
            raise _TooMuchWorkError
        return super().find_longest_match(alo, ahi, blo, bhi)


def _segments(pieces: Iterable[tuple[SegmentKind, str]]) -> tuple[Segment, ...]:
    """Segments of the pieces: adjacent equal kinds merged, leading space of a change moved out of it."""
    segments: list[tuple[SegmentKind, str]] = []
    for kind, text in pieces:
        word = text.lstrip()
        space = text[: len(text) - len(word)]
        for part_kind, part in ((kind if kind == "same" else "same", space), (kind, word)):
            if part and segments and segments[-1][0] == part_kind:
                segments[-1] = (part_kind, segments[-1][1] + part)
            elif part:
                segments.append((part_kind, part))
    return tuple(Segment(kind, text) for kind, text in segments)


def diff_json(expected: JsonValue, actual: JsonValue) -> TextDiff:
    """Two unequal values, word by word; as a whole if only spaces differ."""
    expected_text, actual_text = json_line(expected), json_line(actual)
    diff = diff_text(expected_text, actual_text)
    return TextDiff((Segment("del", expected_text),), (Segment("ins", actual_text),)) if diff.is_same else diff
