"""Instructions with placeholders: `{origin}` is the session state's value, `{name?}` may be missing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from evaldesk.model import JsonValue
from evaldesk.model.json_text import json_or_text

_PLACEHOLDER = re.compile(r"(?<!\{)\{((?:(?:app|user|temp):)?[A-Za-z_][A-Za-z0-9_]*)(\?)?\}(?!\})")


class MissingKey(KeyError):  # noqa: N818 - it is a question to the caller, which makes an event of it
    """A key is missing in the state; the only argument is its name."""


def fill_placeholders(instruction: str, state: Mapping[str, JsonValue]) -> str:
    """`instruction` with its placeholders replaced; other braces, doubled ones included, stay as they are.

    A list of words is written with commas, any other value but text as JSON. Raises MissingKey.
    """

    def value(match: re.Match[str]) -> str:
        key, is_optional = match[1], match[2]
        if key in state:
            value = state[key]
            if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
                return ", ".join(str(item) for item in value)
            return json_or_text(value)
        if is_optional:
            return ""
        raise MissingKey(key)

    return _PLACEHOLDER.sub(value, instruction)


def placeholders(instruction: str) -> list[str]:
    """The required keys of the session state, in order, without the scopes `app:`, `user:` and `temp:`."""
    matches = (match for match in _PLACEHOLDER.finditer(instruction) if not match[2] and ":" not in match[1])
    return list(dict.fromkeys(match[1] for match in matches))
