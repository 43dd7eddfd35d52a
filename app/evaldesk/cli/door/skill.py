"""`evaldesk skill`: how a coding agent reads failures and proposes, as a file of its project."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import click

from evaldesk.cli.runs.shared import workspace_option
from evaldesk.errors import DiskError, UsageError
from evaldesk.wording.writer import confirm, show, style

PLACES = {
    "claude": ".claude/skills/evaldesk/SKILL.md",
    "codex": ".codex/skills/evaldesk/SKILL.md",
    "cursor": ".cursor/skills/evaldesk/SKILL.md",
    "agents.md": "AGENTS.md",
}
BEGIN, END = "<!-- evaldesk: begin -->", "<!-- evaldesk: end -->"
"""The marks around the skill in AGENTS.md, which has other parts."""
MAX_FILE = 1_000_000


@click.group()
def skill() -> None:
    """Print the skill for coding agents, or install it into a project.

    \b
    evaldesk skill show
    evaldesk skill install --for claude
    """


@skill.command(name="show")
def show_skill() -> None:
    """Print the skill.

    \b
    evaldesk skill show
    """
    show(_text().rstrip())


@skill.command()
@click.option(
    "--for", "client", type=click.Choice([*PLACES]), default="claude", show_default=True, help="The coding agent."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@workspace_option
def install(client: str, yes: bool, workspace: str | None) -> None:
    """Write the skill into the project, after a look at the difference.

    \b
    evaldesk skill install
    evaldesk skill install --for agents.md --yes
    """
    from evaldesk.durable_files import make_folder, replace_file
    from evaldesk.paths import workspace_folder

    home = workspace_folder(workspace)
    if not home.is_dir():
        raise UsageError(f"{home} is not a folder; name the folder of the project")
    path = home / PLACES[client]
    before = _read(path, home)
    after = _with_part(before) if client == "agents.md" else _text()
    if before == after:
        show(f"{path} has the skill already.")
        return
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), lineterm=""):
        show(style(line, fg={"+": "green", "-": "red"}.get(line[:1])))
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("no terminal for the question; add --yes to write the file")
        confirm(f"Write {path}?", abort=True)
    try:
        make_folder(path.parent)
        replace_file(path, after.encode())
    except DiskError as error:
        raise UsageError(f"{path}: {error.strerror}; the skill is not installed") from error
    show(f"Written: {path}")


def _text() -> str:
    from evaldesk import paths

    return (paths.samples().parent / "cli" / "door" / "SKILL.md").read_text("utf-8")


def _read(path: Path, home: Path) -> str:
    """The file as it is; empty without one. Raises UsageError for a link, or a place outside of the project."""
    if not path.parent.resolve().is_relative_to(home.resolve()) or path.is_symlink():
        raise UsageError(f"{path} leads out of the project by a link; remove the link, or write the file yourself")
    if not path.exists():
        return ""
    from evaldesk.desk.imports.files import bytes_of

    try:
        data = bytes_of(path)
        if len(data) > MAX_FILE:
            raise UsageError(f"{path} has {len(data):,} bytes, and at most {MAX_FILE:,} are read; it is left as it is")
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}; it is left as it is") from error


def _with_part(text: str) -> str:
    """The text of AGENTS.md with the skill between its marks, and all else as it was."""
    part = f"{BEGIN}\n{_body()}{END}\n"
    start, end = text.find(BEGIN), text.find(END)
    if start >= 0 and end > start:
        return text[:start] + part + text[end + len(END) :].removeprefix("\n")
    return f"{text.rstrip()}\n\n{part}" if text.strip() else part


def _body() -> str:
    """The skill without its head."""
    return _text().split("---\n", 2)[2].lstrip("\n")
