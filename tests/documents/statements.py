"""The tables that map each statement of a document to the check that shows it, and the snippets they name.

A row holds the beginning of a statement, how many lines it has, and what is true here: `same`, `better`, `differs`,
`missing`, or `-` for a heading and for text that claims nothing of the tool. Rows stand in the order of the document.
The statement `*` is in no document: a difference that its users should know.
The documents are a contract: decision 056.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TABLES, SAMPLES = (Path(__file__).parent / name for name in ("tables", "samples"))
NAMES = ("osmosis_eval_mode_2", "osmosis_platform_runs", "openhands_harness", "adk_evaluation")
HERE = ("same", "better", "differs", "missing")
NO_CLAIM, OUTSIDE = "-", "*"


@dataclass(frozen=True, slots=True)
class Row:
    """A statement. `checks` are tests as `folder/file::name`; `words` are for the users who come from there."""

    begins: str
    n_lines: int
    name: str
    here: str
    checks: tuple[str, ...]
    words: str


def rows_of(name: str) -> list[Row]:
    """The table of a document."""
    lines = (TABLES / f"{name}.md").read_text("utf-8").splitlines()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")][2:]
    return [_row([cell.strip().replace("\\|", "|") for cell in row]) for row in cells]


def _row(cells: list[str]) -> Row:
    begins, n_lines, name, here, checks, words = cells
    return Row(begins, int(n_lines), name, here, tuple(checks.split()), words)


def faults_of(text: str, rows: list[Row]) -> list[str]:
    """Each statement of the document without a row, and each row whose statement is not there."""
    lines = _lines(text)
    faults: list[str] = []
    at = 0
    for row in rows:
        if row.begins == OUTSIDE:
            continue
        if at >= len(lines) or not lines[at][1].strip().startswith(row.begins):
            place = f"line {lines[at][0]}: {lines[at][1].strip()[:60]!r}" if at < len(lines) else "the end"
            return [*faults, f"the table has {row.begins!r}, the document {place}"]
        at += row.n_lines
    return [*faults, *(f"line {number} has no row: {line.strip()[:60]!r}" for number, line in lines[at:])]


def snippets_of(text: str, rows: list[Row]) -> dict[str, list[str]]:
    """The lines of each statement that has a name in the table."""
    found, at, lines = {}, 0, _lines(text)
    for row in rows:
        if row.name:
            found[row.name] = [line for _, line in lines[at : at + row.n_lines]]
        at += row.n_lines
    return found


def samples_of(name: str) -> dict[str, list[str]]:
    """Snippets in the form of those that a document prints, written for the tests: lines below headings `## NAME`."""
    _, *parts = re.split(r"^## ", (SAMPLES / f"{name}.txt").read_text("utf-8"), flags=re.MULTILINE)
    return {heading: lines for heading, *lines in map(str.splitlines, parts)}


def sample_text(name: str) -> str:
    """The snippets of a sample as one text, a blank line between two."""
    return "\n\n".join("\n".join(lines) for lines in samples_of(name).values())


def commands_of(text: str, program: str) -> list[str]:
    """The commands of a program, each in one line; a line that begins with an option continues the command."""
    found: list[str] = []
    is_open = False
    for line in text.splitlines():
        if line.startswith(f"{program} ") and not re.match(rf"{program} [\w-]+ (is|are|for)\b", line):
            found.append(line)
            is_open = True
        elif is_open and re.match(r"\s*(--?\w|\[--|<[A-Z]|\S+/\S+)", line):
            found[-1] += f" {line.strip()}"
        else:
            is_open = False
            continue
        found[-1] = found[-1].rstrip("\\ ")
    return found


def _lines(text: str) -> list[tuple[int, str]]:
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
