"""The filters of lists for coding agents: words, and `key:value` terms of a known key."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from evaldesk.errors import UsageError

MAX_FILTER = 500
_TERM = re.compile(r'(?:(?P<key>[A-Za-z_]+):)?(?:"(?P<quoted>[^"]*)"|(?P<word>[^\s"]+))')


@dataclass(frozen=True, slots=True)
class Filter:
    """The values by their keys, and the other words, which are searched for as they are."""

    values: Mapping[str, str]
    text: str = ""

    def value(self, key: str) -> str | None:
        """The value of a key; None where the filter does not name it."""
        return self.values.get(key)


def read_filter(text: str, keys: Collection[str]) -> Filter:
    """The filter in a text such as `verdict:failed case:"roll 16" dice`. Raises UsageError with the column."""
    if len(text) > MAX_FILTER:
        raise UsageError(f"filter: {len(text):,} characters; at most {MAX_FILTER} are read", field="filter")
    values: dict[str, str] = {}
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TERM.match(text, at)
        if match is None:
            raise UsageError(f"filter, column {at + 1}: the quotation mark is never closed", field="filter")
        value = match["word"] if match["quoted"] is None else match["quoted"]
        key = match["key"] and match["key"].casefold()
        is_apart = match.end() == len(text) or text[match.end()].isspace()
        if key is None and is_apart and value.endswith(":") and value[:-1].casefold() in keys:
            raise UsageError(
                f"filter, column {at + 1}: the value of {value} follows it without a blank, or in quotation marks",
                field="filter",
            )
        if key is None:
            words.append(value)
        elif key not in keys:
            key_list = ", ".join(f"{each}:" for each in keys)
            raise UsageError(f"filter, column {at + 1}: no key is named {key}:, only {key_list}", field="filter")
        elif key in values:
            raise UsageError(f"filter, column {at + 1}: {key}: is given twice", field="filter")
        else:
            values[key] = value
        at = match.end()
    return Filter(values, " ".join(words))


def read_choice(text_filter: Filter, key: str, choices: Collection[str]) -> str | None:
    """The value of a key that has only some values; None where it is not named. Raises UsageError."""
    value = text_filter.value(key)
    if value is not None and value not in choices:
        raise UsageError(f"filter: {key}:{value} is none of {', '.join(choices)}", field="filter")
    return value
