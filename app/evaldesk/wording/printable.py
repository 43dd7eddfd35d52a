"""Text of an agent or a file as a terminal and the log of a build can show it."""

from __future__ import annotations

import re

_NOTHING = "\u200b"
"""A space of no width: it breaks a command, and can hardly be seen."""
_KEPT = f"\n\t{_NOTHING}"
_COMMAND = re.compile(r"^([^\S\n]*)(?=::)|(?<=##)(?=\w*\[)", re.MULTILINE)
"""Where a build would read a command: GitHub `::` that begins a line and `##[` anywhere (actions/runner,
ActionCommand.cs), Azure Pipelines `##vso[`, TeamCity `##teamcity[`."""

_REFERENCE = re.compile(r"(?<=@)(?=\w)|(?<=#)(?=\d)|(?<=GH\\-)(?=\d)", re.IGNORECASE)


def printable(text: str) -> str:
    """Text of an agent or a file without terminal control characters and workflow commands of a build."""
    plain = "".join(letter if letter.isprintable() or letter in _KEPT else "�" for letter in text)
    return _COMMAND.sub(lambda found: f"{found[0]}{_NOTHING}", plain)


def in_one_line(text: str) -> str:
    """Printable text that cannot begin a line of its own."""
    return " ".join(printable(text).split())


def markdown_text(text: str) -> str:
    """Text that Markdown and GitHub show as it stands: no markup, no mention of a person, no reference."""
    text = re.sub(r"([\\`*_{}\[\]()#+!|~-])", r"\\\1", in_one_line(text))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _REFERENCE.sub("\u200b", text)
