"""The conditions by which conversations of the inbox are found, as one line says them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, TypeAlias, get_args

Comparator: TypeAlias = Literal["<", "<=", ">", ">=", "=", "!="]
NumberName: TypeAlias = Literal["turns", "calls", "tokens", "cost", "latency", "feedback"]
WordName: TypeAlias = Literal["tool", "tag", "release", "source", "agent", "state"]
FlagName: TypeAlias = Literal["error", "no-case"]
TimeName: TypeAlias = Literal["since", "until"]
State: TypeAlias = Literal["new", "read", "case", "dropped"]

COMPARATORS: tuple[Comparator, ...] = get_args(Comparator)
NUMBERS: tuple[NumberName, ...] = get_args(NumberName)
WORDS: tuple[WordName, ...] = get_args(WordName)
FLAGS: tuple[FlagName, ...] = get_args(FlagName)
TIMES: tuple[TimeName, ...] = get_args(TimeName)
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class FlagCondition:
    """A conversation with an error, or one whose first message has no twin among the cases of the eval sets."""

    name: FlagName

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class NumberCondition:
    """A number of the conversation: a count, US dollars, seconds of `latency`, or -1 to 1 of `feedback`."""

    name: NumberName
    comparator: Comparator
    value: float

    def __str__(self) -> str:
        digits = f"{Decimal(repr(self.value)):f}".removesuffix(".0")
        return f"{self.name}{self.comparator}{digits}{'s' if self.name == 'latency' else ''}"


@dataclass(frozen=True, slots=True)
class WordCondition:
    """A tool that was called, a tag, a release, a source, an agent or a state, by its whole name."""

    name: WordName
    value: str

    def __str__(self) -> str:
        return f"{self.name}:{_word_text(self.value)}"


@dataclass(frozen=True, slots=True)
class TextCondition:
    """Words that the messages hold, all of them."""

    text: str

    def __str__(self) -> str:
        return f"text:{_word_text(self.text, always=True)}"


@dataclass(frozen=True, slots=True)
class TimeCondition:
    """Conversations that began at a time or later, or before it: `seconds_ago` from now, or `at` in UTC."""

    name: TimeName
    seconds_ago: int = 0
    at: datetime | None = None

    def instant(self, now: datetime) -> datetime:
        """The time that it compares with. Times before the year 1 are the year 1."""
        if self.at is not None:
            return self.at
        earliest = datetime.min.replace(tzinfo=now.tzinfo)
        return now - min(timedelta(seconds=self.seconds_ago), now - earliest)

    def __str__(self) -> str:
        if self.at is not None:
            text = self.at.replace(tzinfo=None).isoformat(timespec="seconds")
            return f"{self.name}:{text.removesuffix('T00:00:00')}"
        unit = next(unit for unit, seconds in reversed(SPANS.items()) if self.seconds_ago % seconds == 0)
        return f"{self.name}:{self.seconds_ago // SPANS[unit]}{unit}"


SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
"""Seconds of the units of time."""

Condition: TypeAlias = FlagCondition | NumberCondition | WordCondition | TextCondition | TimeCondition


@dataclass(frozen=True, slots=True)
class FilterTerm:
    """A condition; with `is_negated` all other conversations meet the term, those without a value too."""

    condition: Condition
    is_negated: bool = False

    def __str__(self) -> str:
        return f"not {self.condition}" if self.is_negated else str(self.condition)


@dataclass(frozen=True, slots=True)
class ConversationFilter:
    """Conditions that a conversation meets, all of them; without any each conversation does. Its text reads back."""

    terms: tuple[FilterTerm, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))


def _word_text(word: str, *, always: bool = False) -> str:
    if not always and word and all(each.isalnum() or each in "_-./@+:" for each in word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
