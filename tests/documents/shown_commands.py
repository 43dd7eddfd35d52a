"""The commands that the pages of the documentation show, and a player that carries them out beside their files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.forked_commands import ForkedCommands

DOCS = Path(__file__).resolve().parents[2] / "docs"


def page_command(page: str) -> str:
    """The one command of a page but `benchmark`."""
    (line,) = re.findall(r"^evaldesk (?!benchmark ).*$", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    return str(line)


def section_commands(title: str) -> list[str]:
    """The commands of a section of the page for users of other tools."""
    section = (DOCS / "coming-from.md").read_text("utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^evaldesk .*$", section, re.MULTILINE)


def commands_of_tool(tool: str) -> list[str]:
    """The commands from a clone to a verdict for a tool, which begin with its `evaldesk adopt`."""
    lines = section_commands("From a clone to a verdict")
    start = lines.index(f"evaldesk adopt {tool} . --write")
    return lines[start : start + 2]


def carry_out(
    commands: ForkedCommands, lines: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    """The output of the last of the commands; each of them must succeed."""
    output = ""
    for line in lines:
        result = commands.run(*shlex.split(line)[1:], cwd=folder, environment=environment)
        assert result.returncode == 0, result.stdout + result.stderr
        output = result.stdout
    return output
