"""Text of agents and files for each kind of reader: terminal, log of a build, spreadsheet, Markdown, HTML, JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

_NOTHING = "\u200b"
"""A space of no width: it breaks a command, and can hardly be seen."""
_SELDOM = re.compile("[^\n\t -~\u200b]")
_COMMAND = re.compile(r"^([^\S\n]*+)(?=::)|(?<=##)(?=\w*+\[)", re.MULTILINE)
"""Where a build would read a command: GitHub `::` that begins a line and `##[` anywhere (actions/runner,
ActionCommand.cs), Azure Pipelines `##vso[`, TeamCity `##teamcity[`. GitLab reads `section_start:` only
before an escape sequence."""

_REFERENCE = re.compile(r"(?<=@)(?=\w)|(?<=#)(?=\d)|(?<=GH\\-)(?=\d)", re.IGNORECASE)


def printable(text: str) -> str:
    """Text of an agent or a file without terminal control characters and workflow commands of a build."""
    return _COMMAND.sub(lambda match: f"{match[0]}{_NOTHING}", _without_controls(text))


def printable_parts(parts: Sequence[str]) -> list[str]:
    """The parts of one printable text, for a writer that puts styles between them."""
    clean = _without_controls("".join(parts))
    breaks = [match.end() for match in _COMMAND.finditer(clean)]
    clean_parts, start = [], 0
    for part in parts:
        end = start + len(part)
        inner = [at for at in breaks if start <= at < end]
        edges = [start, *inner, end]
        clean_parts.append(_NOTHING.join(clean[a:b] for a, b in pairwise(edges)))
        start = end
    return clean_parts


def in_one_line(text: str) -> str:
    """Printable text that cannot begin a line of its own."""
    return " ".join(printable(text).split())


def markdown_text(text: str) -> str:
    """Text that Markdown and GitHub show as it stands: no markup, no mention of a person, no reference."""
    text = re.sub(r"([\\`*_{}\[\]()#+!|~-])", r"\\\1", in_one_line(text))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _REFERENCE.sub("\u200b", text)


_VERBATIM = re.compile("<(script|style)[ >]")


def html_document(text: str) -> str:
    """A whole page that a terminal or the log of a build can show too; its scripts and styles stay byte for byte."""
    text = _without_controls(text)
    parts, end = [], 0
    for match in _VERBATIM.finditer(text):
        if match.start() < end:
            continue
        parts.append(printable(text[end : match.start()]))
        close = text.find(f"</{match[1]}>", match.end())
        end = len(text) if close < 0 else close
        parts.append(text[match.start() : end])
    return "".join((*parts, printable(text[end:])))


_JSON_SELDOM = re.compile("[^\n\t\r -~]|#(?=#)")


def json_document(text: str) -> str:
    """JSON of the same value in which a terminal and a build find no control character and no command."""
    return _JSON_SELDOM.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    letter = match[0]
    if letter.isprintable() and letter != "#":
        return letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


T = TypeVar("T")

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "＝", "＋", "－", "＠")
"""The characters that a cell must not begin with (https://owasp.org/www-community/attacks/CSV_Injection)."""


_INNER_FORMULA = re.compile("(?<=[;\t\n,])(?=[ \u200b\"']*+[=+\\-@＝＋－＠])")
"""Where a formula would begin for a spreadsheet that divides cells elsewhere: one of Europe opens a file with commas by
semicolons, and then neither quotes nor line ends within quotes hold a cell together."""


def cell(value: T) -> T | str:
    """`value` for a spreadsheet; a text is printable.

    A text that a spreadsheet would take for a formula gets a quote before it, and a part of it that would be one in a
    cell of its own a space of no width.
    """
    if not isinstance(value, str):
        return value
    clean = printable(value)
    is_formula = any(each.lstrip(_BLANK).startswith(_FORMULA) for each in (value, clean))
    text = _INNER_FORMULA.sub(_NOTHING, clean)
    return f"'{text}" if is_formula else text


_REPLACEMENT = "�"
"""In the place of a control character."""


def _without_controls(text: str) -> str:
    return text if text.isprintable() else _SELDOM.sub(_replace_control, text)


def _replace_control(match: re.Match[str]) -> str:
    letter = match[0]
    return letter if letter.isprintable() else " " if letter in _SPACES else _REPLACEMENT


_SPACES = frozenset("\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000")
"""The spaces of Unicode (category Zs), which steer nothing."""
_BLANK = "".join(_SPACES) + ' \ufeff\u200b"'
"""What a spreadsheet may leave out before a formula."""
