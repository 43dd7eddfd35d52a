"""The facts of one case by which the health of its set is told: words, expected calls, and a leak. Pure.

(reference/sets.md 4)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from evaldesk.codec import msgspec
from evaldesk.matching.required_calls import required_calls
from evaldesk.matching.text_similarity import words_of
from evaldesk.model import Case, JsonValue, ToolCall
from evaldesk.model.case_facts import CaseFacts
from evaldesk.model.json_text import json_line, short_json

LEAST_LETTERS, LEAST_DIGITS = 6, 3
MOST_ANSWER_WORDS, MOST_ANSWER_LETTERS = 5, 80
"""Words of a reference that is a value; a longer one is a sentence, which repeats words of its question by right."""
MOST_VALUES, VALUE_CHARACTERS = 100, 60
"""Values of one argument that are noted, and the characters of each."""
_ANY_DIGIT, _NO_DIGITS = re.compile(r"\d"), re.compile(r"\D+")
_ASCII_BUT_DIGITS = bytes(set(range(128)) - set(b"0123456789"))
_NUMBER = re.compile(r"(?<![\w.,])\d{1,3}(?:[,. '\u2019\u00a0]\d{3})+(?![\w])|\d{3,}")

_encoder = msgspec.json.Encoder()


def facts_of_case(case: Case) -> CaseFacts:
    """The facts of a case."""
    first_text = next(iter(user_texts(case)), "")
    calls = [
        [call.name, {name: noted_values(value) for name, value in call.args.items()}] for call in expected_calls(case)
    ]
    forbids_tools = bool(case.turns) and all(turn.expected.tool_calls == () for turn in case.turns)
    return CaseFacts(
        " ".join(words_of(first_text)),
        leak_words(case),
        _encoder.encode(calls).decode() if calls or forbids_tools else "",
        _encoder.encode([*case.final_state]).decode() if case.final_state else "",
    )


def user_texts(case: Case) -> list[str]:
    """The words of the user: each message, or the first message and the plan of a scenario."""
    if case.scenario is None:
        return [turn.query for turn in case.turns]
    return [value for key, value in case.scenario.items() if isinstance(value, str) and key != "user_persona"]


def noted_values(value: JsonValue) -> list[str]:
    """The value of an argument as short JSON, or each of a list."""
    items = value[:MOST_VALUES] if isinstance(value, list) else [value]
    return [short_json(item, VALUE_CHARACTERS) for item in items]


def expected_calls(case: Case) -> Iterator[ToolCall]:
    """The calls that a case expects of its turns, or requires somewhere in its conversation."""
    for turn in case.turns:
        yield from turn.expected.tool_calls or ()
    for call in required_calls(case) or ():
        if not call.by_user:
            yield ToolCall(call.name, call.args)


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
        self._digits = _digits(self._text)
        self._numbers: frozenset[str] | None = None

    def has(self, value: str) -> bool:
        """Whether a value stands in it as words of its own; a number in any spelling of its thousands."""
        if value[:1].isdigit() and not any(map(str.isalpha, value)):
            digits = _digits(value)
            if digits not in self._digits:
                return False
            if self._numbers is None:
                self._numbers = frozenset(_digits(match[0]) for match in _NUMBER.finditer(self._text))
            return digits in self._numbers
        words = _folded(value)
        return words in self._text and re.search(rf"(?<!\w){re.escape(words)}(?!\w)", self._text) is not None


def _digits(text: str) -> str:
    if text.isascii():
        return text.encode().translate(None, _ASCII_BUT_DIGITS).decode()
    return _NO_DIGITS.sub("", text)


def _folded(text: str) -> str:
    text = text[:20_000]
    return " ".join((text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()).split())
