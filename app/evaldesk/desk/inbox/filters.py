"""The one line that finds conversations of the inbox, on the page and on the command line.

error  feedback<0  tool:refund  not tool:search  turns>=5  cost>0.1  latency>20s  text:"order"  since:7d  no-case
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import cast

from evaldesk.errors import NAME_LIMIT, UsageError
from evaldesk.model.conversation_filter import (
    COMPARATORS,
    FLAGS,
    NUMBERS,
    SPANS,
    STATES,
    TIMES,
    WORDS,
    Comparator,
    Condition,
    ConversationFilter,
    FilterTerm,
    FlagCondition,
    FlagName,
    NumberCondition,
    NumberName,
    TextCondition,
    TimeCondition,
    TimeName,
    WordCondition,
    WordName,
)

MAX_LENGTH, MAX_TERMS = 1_000, 20
FIELD = "filter"
"""The form field and the option of the line."""
ALLOWED = (
    "error, no-case, turns, calls, tokens, cost, latency and feedback with < <= = >= > or !=, and tool:, tag:, "
    "release:, source:, agent:, state:, text:, since: and until:"
)
MAX_AGO_S = 400 * 366 * 86400
MAX_NUMBER = 1e15
_TERM = re.compile(
    r"""\s*(?P<name>[^\s"<>=!:]*)(?:(?P<sign>[<>!]=|[<>=:])(?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)|(?P<loose>"[^"]*"?)?)""",
    re.DOTALL,
)
_NUMBER = re.compile(r"\$?(?P<number>[+-]?(?:\d{1,20}(?:\.\d{0,30})?|\.\d{1,30}))(?P<unit>ms|[smh])?", re.ASCII)
_AGO = re.compile(r"(?P<number>\d{1,11})(?P<unit>[smhdw])", re.ASCII)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_filter(line: str) -> ConversationFilter:
    """The conditions of the line; none of an empty one. Raises UsageError with the fault and the allowed terms."""
    if len(line) > MAX_LENGTH:
        raise _refusal(f"the filter has {len(line):,} characters; at most {MAX_LENGTH:,} are read")
    terms = tuple(_terms(line))
    if len(terms) > MAX_TERMS:
        raise _refusal(f"the filter has {len(terms)} conditions; at most {MAX_TERMS} are read")
    return ConversationFilter(terms)


def _terms(line: str) -> Iterator[FilterTerm]:
    at, is_negated = 0, False
    while line[at:].strip():
        match = cast("re.Match[str]", _TERM.match(line, at))
        text = match[0].strip()
        if match.end() < len(line) and not line[match.end()].isspace():
            raise _refusal(
                f"{_quoted(line[at:].split(maxsplit=1)[0])}: after {_quoted(text)} a space or the end is expected"
            )
        at = match.end()
        if text.casefold() == "not":
            if is_negated:
                raise _refusal('"not not": write not once, before a condition')
            is_negated = True
            continue
        yield FilterTerm(_condition(match, text), is_negated)
        is_negated = False
    if is_negated:
        raise _refusal("not needs a condition behind it, such as not tool:search")


def _condition(match: re.Match[str], text: str) -> Condition:
    name, sign, value = match["name"].casefold(), match["sign"], match["value"]
    if not sign:
        if name in FLAGS and match["loose"] is None:
            return FlagCondition(cast("FlagName", name))
        if name in NUMBERS:
            raise _refusal(f"{name} needs a comparison, such as {_example(name)}")
        if name in WORDS or name in TIMES or name == "text":
            raise _refusal(f"{name} needs a value, such as {_example(name)}")
        raise _unknown(text, name)
    if name in FLAGS:
        raise _refusal(f"{name} stands alone, without {_quoted(text[len(name) :])}")
    if name in NUMBERS:
        if sign == ":":
            raise _refusal(f"{name} is compared with {' '.join(COMPARATORS)}, such as {_example(name)}")
        return _number(cast("NumberName", name), cast("Comparator", sign), value)
    if name not in WORDS and name not in TIMES and name != "text":
        raise _unknown(text, name)
    if sign != ":":
        raise _refusal(f"{name} takes a colon, such as {_example(name)}")
    word = _unquoted(value)
    if not word.strip():
        raise _refusal(f"{name}: needs a value, such as {_example(name)}")
    if name == "text":
        return TextCondition(word)
    return _time(cast("TimeName", name), word) if name in TIMES else _word(cast("WordName", name), word)


def _number(name: NumberName, comparator: Comparator, text: str) -> NumberCondition:
    match = _NUMBER.fullmatch(text)
    unit = match["unit"] if match else None
    has_dollar = text.startswith("$")
    if match is None or (unit and name != "latency") or (has_dollar and name != "cost"):
        raise _refusal(f"{name}{comparator}{_quoted(text)}: {name} is a number, such as {_example(name)}")
    if name == "latency" and not unit:
        raise _refusal(f"latency{comparator}{text} needs a unit: ms, s, m or h, such as {_example(name)}")
    value = float(match["number"])
    if name == "latency":
        value = value / 1000 if unit == "ms" else value * SPANS[cast("str", unit)]
    if abs(value) > MAX_NUMBER:
        raise _refusal(f"{name}{comparator}{_quoted(text)}: the number is too large")
    return NumberCondition(name, comparator, value + 0.0)


def _word(name: WordName, word: str) -> WordCondition:
    if name == "state" and word not in STATES:
        raise _refusal(f"state:{_quoted(word)}: a state is {', '.join(STATES[:-1])} or {STATES[-1]}")
    return WordCondition(name, word)


def _time(name: TimeName, word: str) -> TimeCondition:
    if match := _AGO.fullmatch(word):
        seconds = int(match["number"]) * SPANS[match["unit"]]
        if seconds <= MAX_AGO_S:
            return TimeCondition(name, seconds)
    else:
        try:
            at = datetime.fromisoformat(word)
            at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
            return TimeCondition(name, at=at.replace(microsecond=0))
        except (ValueError, OverflowError):
            pass
    raise _refusal(
        f"{name}:{_quoted(word)}: a time is so long ago, as {name}:30m, {name}:12h, {name}:7d or {name}:2w, or a date "
        f"such as {name}:2026-11-20"
    )


_EXAMPLES = {
    "turns": "turns>=5",
    "calls": "calls>10",
    "tokens": "tokens>20000",
    "cost": "cost>0.1",
    "latency": "latency>20s",
    "feedback": "feedback<0",
    "tool": "tool:refund",
    "tag": "tag:prod",
    "release": "release:1.4",
    "source": "source:shop",
    "agent": "agent:concierge",
    "state": "state:new",
    "text": 'text:"order"',
    "since": "since:7d",
    "until": "until:2026-11-20",
}


def _example(name: str) -> str:
    return _EXAMPLES[name]


def _unknown(text: str, name: str) -> UsageError:
    nearest = get_close_matches(name[:NAME_LIMIT], [*FLAGS, *_EXAMPLES], n=1, cutoff=0.75)
    if nearest:
        return _refusal(f"{_quoted(text)}: did you mean {_EXAMPLES.get(nearest[0], nearest[0])}?")
    if text.startswith('"') or (name and text.casefold() == name):
        words = _quoted(text.strip('"'))
        return _refusal(f"{words} is not a condition; to search the messages write text:{words}. Allowed are {ALLOWED}")
    return _refusal(f"{_quoted(text)} is not a condition. Allowed are {ALLOWED}")


def _quoted(text: str) -> str:
    """The beginning of a typed text in quotes, without signs that steer a terminal."""
    line = "".join(each if each.isprintable() else " " for each in text[: NAME_LIMIT + 1])
    return f'"{line}"' if len(line) <= NAME_LIMIT else f'"{line[:NAME_LIMIT]}…"'


def _unquoted(value: str) -> str:
    return _ESCAPE.sub(r"\1", value[1:-1]) if value.startswith('"') else value


def _refusal(message: str) -> UsageError:
    return UsageError(message, field=FIELD)
