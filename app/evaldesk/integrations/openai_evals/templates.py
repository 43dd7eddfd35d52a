"""Templates of OpenAI Evals: `{{item.question}}` and `{{ sample.output_text }}` in messages and graders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import count
from typing import Any

_FIELD = re.compile(r"\{\{\s*((?:item|sample)(?:\.[\w-]+)*)\s*\}\}")


def rendered(text: str, values: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The text with the fields of `values`, and the names of fields that they lack, which stay as they stand."""
    missing_fields: list[str] = []

    def put(match: re.Match[str]) -> str:
        value: Any = values
        for name in match[1].split("."):
            if isinstance(value, Mapping) and name in value:
                value = value[name]
            elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            else:
                missing_fields.append(match[1])
                return match[0]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _FIELD.sub(put, text), missing_fields


_VARYING = re.compile(
    r"(?<!\{)\{{2,}\s*(?P<field>(?:item|sample)(?:\.[\w-]+)*)\s*\}{2,}"
    r"|(?<!\{)\{(?P<word>(?:(?:app|user|temp):)?[A-Za-z_][A-Za-z0-9_]*)\??\}(?!\})"
)
"""A field with the braces around it, or a text that an instruction here takes for a key of the session state."""


def as_instruction(template: str) -> tuple[str, dict[str, str]]:
    """The template as an instruction with keys of the session state, and by each key the text that it stands for.

    The text is a field such as `{{item.q}}`, or a word in braces that OpenAI Evals sends as it stands.
    """
    keys: dict[str, str] = {}

    def put(match: re.Match[str]) -> str:
        stem = re.sub(r"\W+", "_", match["field"] or f"text_{match['word']}", flags=re.ASCII)
        names = (f"{stem}_{number}" if number > 1 else stem for number in count(1))
        key = next(name for name in names if keys.get(name, match[0]) == match[0])
        keys[key] = match[0]
        return f"{{{key}}}"

    return _VARYING.sub(put, template), keys


def item_field(text: object) -> str:
    """The field of the item that a text consists of, `answer` of `{{ item.answer }}`; empty for any other text."""
    match = _FIELD.fullmatch(text.strip()) if isinstance(text, str) else None
    return match[1].partition(".")[2] if match and match[1].startswith("item.") else ""
