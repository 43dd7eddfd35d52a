"""Snapshots: text that only changes on purpose. `EVALDESK_SNAPSHOTS=write pytest tests` writes them anew."""

from __future__ import annotations

import os
import re
from difflib import unified_diff
from html.parser import HTMLParser
from pathlib import Path

FOLDER = Path(__file__).parent
SHOWN = ("href", "action", "name", "value", "type", "aria-label", "hx-get", "hx-post", "role", "title")
VOID = ("input", "img", "use", "button", "select", "textarea", "a", "form", "summary")
CHANGING = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b\d\d? [A-Z][a-z]{2}( \d{4})?,? \d\d:\d\d\b|\b\d\d:\d\d(:\d\d)?\b"), "<time>"),
    (re.compile(r"\b\d\d? (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b( \d{4}\b)?"), "<day>"),
    (re.compile(r"^\d+$(?=\n(user|agent) message$)", re.MULTILINE), "<ms>"),
    (re.compile(r"\b[0-9a-f]{7,64}\b"), "<hash>"),
    (re.compile(r"\bjust now\b|\b\d+ (min|h|days?) ago\b"), "<ago>"),
    (re.compile(r"(?<=^Time of a trial\n).*", re.MULTILINE), "<change of time>"),
    (re.compile(r"(?<=^: Time of a trial\n).*", re.MULTILINE), "<why of time>"),
    (re.compile(r"\b(\d+ h \d+ min|\d+ min \d+ s|(under )?[\d.,]+ (ms|s|min))\b"), "<duration>"),
)


def check_snapshot(name: str, text: str, *folders: Path) -> None:
    """Assert that `text` is what the snapshot `name` says; paths of `folders` are left out of both."""
    for folder in folders:
        text = text.replace(str(folder), "<folder>")
    path = FOLDER / f"{name}.txt"
    if os.environ.get("EVALDESK_SNAPSHOTS") == "write":
        path.write_text(text, "utf-8")
    kept = path.read_text("utf-8")
    changes = "\n".join(unified_diff(kept.splitlines(), text.splitlines(), path.name, "now", lineterm="", n=2))
    assert text == kept, f"Not as before. Wanted? `EVALDESK_SNAPSHOTS=write pytest tests`\n{changes}"


def outline(html: str) -> str:
    """A page without looks: each text on a line, fields and links with what they carry, and nothing that changes."""
    parser = _Outline()
    parser.feed(html)
    return steady("\n".join(parser.lines) + "\n")


def steady(text: str) -> str:
    """The text with a name in the place of each time, age and digest."""
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
