"""The functions shared by the commands that read and write files of other tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.paths import did_you_mean
from evaldesk.secrets import scrub

if TYPE_CHECKING:
    from evaldesk.formats.exchange import Imported
    from evaldesk.settings import Settings

MAX_FILE = 512 * 1024 * 1024


RUN_FILES = ("output.jsonl", "metadata.json")
"""The contents of the folder of an OpenHands run, the trials first."""


def read_path(path: Path, format_name: str | None = None, outcome: str = "") -> Imported:
    """The contents of the file at `path`, or of an OpenHands run's folder; `outcome` is the key of the verdict.

    Raises FormatError, and UsageError when it cannot be read.
    """
    from evaldesk.formats.files import as_one_file, read_file

    if not path.is_dir():
        return read_file(_bytes_of(path), str(path), format_name, outcome)
    parts = [found for name in RUN_FILES if (found := path / name).is_file()]
    if not parts or parts[0].name != RUN_FILES[0]:
        raise UsageError(f"{path} is a folder without an output.jsonl; name the file that holds the results")
    source, data = as_one_file([(str(part), _bytes_of(part)) for part in parts])
    return read_file(data, source, format_name, outcome)


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        hint = did_you_mean(path, "") if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{path} cannot be read: {error.strerror}{hint and f'; {hint}'}") from None
    if len(data) > MAX_FILE:
        raise UsageError(f"{path} has more than {MAX_FILE // 1024 // 1024} MiB")
    return data


def open_home(workspace: str | None) -> Settings:
    """The settings of the workspace, by default the current folder. Raises UsageError."""
    from evaldesk.settings import read_settings

    home = Path(workspace).resolve() if workspace else Path.cwd()
    if not home.is_dir():
        raise UsageError(f"{home} is not a folder; name the folder that holds .evaldesk")
    return read_settings(home, (home,), environment=os.environ)


def show_words(imported: Imported, *, indent: str = "  ") -> None:
    """The parts that were understood, kept as they are, and refused."""
    for sentence in imported.understood:
        click.echo(indent + visible(sentence))
    for sentence in imported.kept:
        click.echo(indent + click.style("kept: ", dim=True) + visible(sentence))
    for sentence in imported.refused:
        click.echo(indent + click.style("refused: ", fg="yellow") + visible(sentence))


def report(error: EvaldeskError) -> None:
    """An error in one line, on the stream for errors."""
    click.echo(f"evaldesk: {visible(scrub(str(error), os.environ)).replace(chr(10), ' ')}", err=True)


def visible(text: str) -> str:
    """Text of a file without terminal control characters."""
    from evaldesk.wording.printable import printable

    return printable(text).replace("\n", "�").replace("\t", "�")


def write_bytes(data: bytes, output: str | None, *, is_forced: bool = False) -> None:
    """Write to the file named, or to the stream; one that is there stays unless forced."""
    if output is None or output == "-":
        click.echo(data, nl=False)
        return
    from evaldesk.durable_files import create_file, write_output

    path = Path(output)
    if os.path.lexists(path) and not is_forced:
        raise UsageError(f"{output} is there already; --force replaces it")
    if is_forced:
        write_output(path, data)
    else:
        create_file(path, data)
