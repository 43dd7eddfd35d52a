"""Docstrings in Google's style, read for what a model should know of a tool."""

from __future__ import annotations

import re
from inspect import cleandoc

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes):\s*$", re.MULTILINE
)
_PARAMETER = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """What stands before the first section, and the description of each parameter of the section `Args:`."""
    if not text:
        return "", {}
    before, *sections = _SECTION.split(cleandoc(text))
    named = dict(zip(sections[::2], sections[1::2], strict=True))
    body = next((named[name] for name in ("Args", "Arguments", "Parameters") if name in named), "")
    return before.strip(), _parameters(body)


def _parameters(body: str) -> dict[str, str]:
    lines = [line for line in body.splitlines() if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        begun = _PARAMETER.match(line) if len(line) - len(line.lstrip()) == margin else None
        if begun:
            name = begun[1]
            found[name] = begun[2].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
