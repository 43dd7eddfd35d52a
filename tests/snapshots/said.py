"""Snapshots: text that only changes on purpose. `EVALDESK_SNAPSHOTS=write pytest tests` writes them anew."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path

FOLDER = Path(__file__).parent
SHOWN = ("href", "action", "name", "value", "type", "aria-label", "hx-get", "hx-post", "role", "title")
VOID = ("input", "img", "use", "button", "select", "textarea", "a", "form", "summary")
CHANGING = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b\d\d? [A-Z][a-z]{2}( \d{4})?,? \d\d:\d\d\b|\b\d\d:\d\d(:\d\d)?\b"), "<time>"),
    (re.compile(r"\b[0-9a-f]{7,64}\b"), "<hash>"),
    (re.compile(r"\b[\d.,]+ ?(ms|s|min|µs)\b"), "<duration>"),
    (re.compile(r"<duration> (faster|slower|more|less)\b.*"), "<change of time>"),
    (re.compile(r"\bjust now|\b\d+ seconds? ago|\bless than a [a-z]+ ago"), "<ago>"),
)


def check_snapshot(name: str, text: str, *folders: Path) -> None:
    """Assert that `text` is what the snapshot `name` says; paths of `folders` are left out of both."""
    for folder in folders:
        text = text.replace(str(folder), "<folder>")
    path = FOLDER / f"{name}.txt"
    if os.environ.get("EVALDESK_SNAPSHOTS") == "write":
        path.write_text(text, "utf-8")
    assert _steady(text) == _steady(path.read_text("utf-8")), f"{path.name} changed; see tests/snapshots/said.py"


def _steady(text: str) -> list[str]:
    """The lines without numbers, and without those on times: both follow the load of the machine."""
    lines = [re.sub(r"\d+([.,]\d+)*", "#", line) for line in text.splitlines()]
    return [
        line for line in lines if not re.search(r"<duration>|<change of time>|<ago>|faster|slower|no difference", line)
    ]


def outline(html: str) -> str:
    """A page without looks: each text on a line, fields and links with what they carry, and nothing that changes."""
    parser = _Outline()
    parser.feed(html)
    text = "\n".join(parser.lines) + "\n"
    for pattern, name in CHANGING:
        text = pattern.sub(name, text)
    return text


class _Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._skipped = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "template"):
            self._skipped = tag
        if tag in VOID:
            said = [f'{key}="{value}"' for key, value in attrs if key in SHOWN and value]
            self.lines.append(" ".join([f"<{tag}", *said]) + ">")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._skipped:
            self._skipped = ""

    def handle_data(self, data: str) -> None:
        if not self._skipped and data.strip():
            self.lines.append(" ".join(data.split()))
