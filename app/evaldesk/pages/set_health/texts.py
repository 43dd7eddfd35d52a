"""Faults in the texts of cases: twins, contradictions, and answers that stand in the prompt. Pure.

(reference/sets.md 4)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

from evaldesk.matching import required_calls
from evaldesk.matching.text_similarity import alike_groups, similarity, words_of
from evaldesk.model import Case, ToolCall
from evaldesk.model.json_text import json_line
from evaldesk.pages.set_health.finding import Finding

TWINS = 0.8
LEAST_LETTERS, LEAST_DIGITS = 6, 3
MOST_ANSWER_WORDS, MOST_ANSWER_LETTERS = 5, 80
"""Words of a reference that is a value; a longer one is a sentence, which repeats words of its question by right."""
MOST_OF_GROUP = 100
"""Cases of a group of alike ones that are compared with each other."""
_ANY_DIGIT = re.compile(r"\d")
_DIGITS, _LIST_OF_ZEROS = re.compile(r"\d+"), re.compile(r"0(?:, ?0)+")
_NUMBER = re.compile(r"(?<![\w.,])\d{1,3}(?:[,. '\u2019\u00a0]\d{3})+(?![\w])|\d{3,}")


def user_texts(case: Case) -> list[str]:
    """The words of the user: each message, or the first message and the plan of a scenario."""
    if case.scenario is None:
        return [turn.query for turn in case.turns]
    return [value for key, value in case.scenario.items() if isinstance(value, str) and key != "user_persona"]


def text_findings(cases: Sequence[Case], on_progress: Callable[[int], None] = lambda _: None) -> Iterator[Finding]:
    """The findings about the texts of cases; `on_progress` is told the number of cases that were read."""
    texts = [next(iter(user_texts(case)), "") for case in cases]
    groups, is_whole = alike_groups(texts, TWINS, on_progress)
    twins: dict[str, tuple[str, ...]] = {}
    contradictions: dict[str, tuple[str, ...]] = {}
    for group in groups:
        is_whole = is_whole and len(group) <= MOST_OF_GROUP
        for place, some in enumerate(group[1:MOST_OF_GROUP], 1):
            case = cases[some]
            pairs = [(cases[other], share) for other in group[:place] if (share := likeness(cases[other], case))]
            conflicts = ((other, share, conflict(other, case)) for other, share in pairs)
            other, share, words = next((each for each in conflicts if each[2]), (None, 0.0, ""))
            if other is not None:
                says = f"{case.id} says what {other.id} says ({share:.2f} alike) and expects {words}"
                contradictions[says] = other.id, case.id
            elif pairs:
                twins[f"{pairs[0][0].id} and {case.id}"] = pairs[0][0].id, case.id
    cut_words = "" if is_whole else "so many cases look alike that not all were compared"
    for kind, pair_ids in (("twins", twins), ("contradictions", contradictions)):
        ids = dict.fromkeys(case_id for pair in pair_ids.values() for case_id in pair)
        yield Finding(kind, tuple(pair_ids), tuple(ids), cut_words)


def likeness(case: Case, other: Case) -> float:
    """How alike all words of two users are; 0 below 0.8, and where the conversations differ in turns or files.

    Cases without a word, such as two pictures, are alike only where their messages are equal.
    """
    if len(case.turns) != len(other.turns) or (case.scenario is None) != (other.scenario is None):
        return 0.0
    if [item.digest for item in case.media] != [item.digest for item in other.media]:
        return 0.0
    mine, theirs = " ".join(user_texts(case)), " ".join(user_texts(other))
    if not words_of(mine) or not words_of(theirs):
        return 1.0 if mine.strip() and mine.strip() == theirs.strip() else 0.0
    share = similarity(mine, theirs)
    return share if share >= TWINS else 0.0


def conflict(case: Case, other: Case) -> str:
    """`another depart`: the first thing that two cases with one state expect otherwise; empty where both can be right.

    What one of them does not assert is no conflict. Where the words differ in numbers, expected numbers may, too.
    """
    if case.initial_state != other.initial_state:
        return ""
    mine, theirs = user_texts(case), user_texts(other)
    are_numbers_free = _numbers(mine) != _numbers(theirs)
    is_same_text = not are_numbers_free and list(map(words_of, mine)) == list(map(words_of, theirs))

    def differs(one: object, two: object) -> bool:
        lines = json_line(one), json_line(two)
        return lines[0] != lines[1] and not (are_numbers_free and _masked(lines[0]) == _masked(lines[1]))

    for turn, other_turn in zip(case.turns, other.turns, strict=True):
        calls, other_calls = turn.expected.tool_calls, other_turn.expected.tool_calls
        are_asserted = calls is not None and other_calls is not None
        if are_asserted and (words := _call_difference(calls or (), other_calls or (), differs)):
            return words
        references = [each.expected.reference for each in (turn, other_turn)]
        spellings = [words_of(each) for each in references if each is not None]
        if is_same_text and len(spellings) == 2 and spellings[0] != spellings[1]:
            return "another reference"
    required, other_required = required_calls(case), required_calls(other)
    if required is not None and other_required is not None:
        lists = ([[call.name, call.args] for call in each] for each in (required, other_required))
        if differs(*(sorted(each, key=json_line) for each in lists)):
            return "other required actions"
    if case.final_state is not None and other.final_state is not None and differs(case.final_state, other.final_state):
        return "another final state"
    return ""


def _call_difference(
    calls: Sequence[ToolCall], other_calls: Sequence[ToolCall], differs: Callable[[object, object], bool]
) -> str:
    names, other_names = [call.name for call in calls], [call.name for call in other_calls]
    if names != other_names:
        return f"{', '.join(other_names[:3]) or 'no call'}, not {', '.join(names[:3]) or 'none'}"
    for call, other_call in zip(calls, other_calls, strict=True):
        for key in {**call.args, **other_call.args}:
            if differs(call.args.get(key), other_call.args.get(key)):
                return f"another {key}"
    return ""


def _numbers(texts: Sequence[str]) -> list[str]:
    return sorted(_DIGITS.findall(" ".join(texts)))


def _masked(line: str) -> str:
    """The JSON with 0 for each number, and for numbers beside each other."""
    return _LIST_OF_ZEROS.sub("0", _DIGITS.sub("0", line))


def leak_finding(cases: Sequence[Case]) -> Finding:
    """The cases whose answer stands in the user's words or in the initial state."""
    leaks = {}
    for case in cases:
        if words := leak_words(case):
            leaks[case.id] = f"{case.id}: {words}"
    return Finding("answers_in_prompt", tuple(leaks.values()), tuple(leaks))


def leak_words(case: Case) -> str:
    """`40,000 stands in the user's words and in the reference`; empty without a leak.

    The words of earlier turns and of its own turn count.
    """
    state = _SearchText(json_line(case.initial_state)) if case.initial_state else None
    for last, turn in enumerate(case.turns):
        query = None
        for value in answer_values(turn.expected.reference or ""):
            query = query or _SearchText(" ".join(each.query for each in case.turns[: last + 1]))
            for text, place in ((query, "the user’s words"), (state, "the initial state")):
                if text and text.has(value):
                    return f"{value} stands in {place} and in the reference"
    return ""


def answer_values(reference: str) -> Iterator[str]:
    """The values of a reference: itself where it is a short text of at least 6 letters, and its numbers of 3 digits."""
    plain = reference.strip()
    if not plain:
        return
    is_short = len(plain) <= MOST_ANSWER_LETTERS and len(plain.split()) <= MOST_ANSWER_WORDS
    if is_short and sum(map(str.isalpha, plain)) >= LEAST_LETTERS:
        yield plain.rstrip(".!?")
    for match in _NUMBER.finditer(plain) if _ANY_DIGIT.search(plain) else ():
        if sum(map(str.isdigit, match[0])) >= LEAST_DIGITS:
            yield match[0]


class _SearchText:
    """A folded text in which values are looked for, and its numbers as digits alone."""

    def __init__(self, text: str) -> None:
        self._text = _folded(text)
        self._numbers: frozenset[str] | None = None

    def has(self, value: str) -> bool:
        """Whether a value stands in it as words of its own; a number in any spelling of its thousands."""
        if value[:1].isdigit() and not any(map(str.isalpha, value)):
            if self._numbers is None:
                self._numbers = frozenset(_digits(match[0]) for match in _NUMBER.finditer(self._text))
            return _digits(value) in self._numbers
        return re.search(rf"(?<!\w){re.escape(_folded(value))}(?!\w)", self._text) is not None


def _digits(number: str) -> str:
    return "".join(filter(str.isdigit, number))


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text[:20_000]).casefold().split())
