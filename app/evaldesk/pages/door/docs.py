"""The documentation by topic, for coding agents and for `evaldesk docs`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaldesk import paths
from evaldesk.errors import NotFoundError

_HEADING = re.compile(r"(?m)^(#{1,4}) (.+)$")
_FENCE = re.compile(r"(?ms)^```.*?^```")


def docs_answer(topic: str = "") -> dict[str, Any]:
    """A page of the documentation, or with `page#section` one section; without a topic the list of them."""
    files = _topics()
    if not topic:
        return {"topics": [{"topic": name, "title": _title(path)} for name, path in files.items()]}
    name, _, section = topic.partition("#")
    if name not in files:
        raise NotFoundError.among("topic", name, files)
    text = files[name].read_text("utf-8")
    sections = _sections(text)
    if section and section not in sections:
        raise NotFoundError.among(f"section of {name}", section, sections)
    return {
        "topic": topic,
        "title": _title(files[name]),
        "sections": list(sections),
        "text": sections[section] if section else text,
    }


def _topics() -> Mapping[str, Path]:
    return {path.stem: path for path in sorted(paths.shipped("docs").glob("*.md"))}


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def _sections(text: str) -> Mapping[str, str]:
    """The text under each heading, by the heading as an address; a heading in a code block is none."""
    blocks = [match.span() for match in _FENCE.finditer(text)]
    headings = [
        match for match in _HEADING.finditer(text) if not any(start <= match.start() < end for start, end in blocks)
    ]
    sections = {}
    for number, match in enumerate(headings):
        level = len(match[1])
        following = (each.start() for each in headings[number + 1 :] if len(each[1]) <= level)
        sections[_slug(match[2])] = text[match.start() : next(following, len(text))].strip()
    return sections


def _slug(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
