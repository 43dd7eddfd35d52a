"""Templates of OpenAI Evals: `{{item.question}}` and `{{ sample.output_text }}` in messages and graders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
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


def item_field(text: object) -> str:
    """The field of the item that a text consists of, `answer` of `{{ item.answer }}`; empty for any other text."""
    match = _FIELD.fullmatch(text.strip()) if isinstance(text, str) else None
    return match[1].partition(".")[2] if match and match[1].startswith("item.") else ""
