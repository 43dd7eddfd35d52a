"""What others build on, kept from changing by accident: the Python API, the command line, frames, tables."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
from tests.islands import of_all_tools
from tests.snapshots.rendered import check_snapshot

import evaldesk
from evaldesk.engine import frames
from evaldesk.store import Store

HELPED = """
import click
from click.testing import CliRunner
from evaldesk.cli import cli
from evaldesk.cli.lazy import LazyGroup

def helped(command, path):
    shown = CliRunner().invoke(cli, [*path, "--help"], prog_name="evaldesk").output
    print(f"# {' '.join(('evaldesk', *path))}\\n{shown}")
    if isinstance(command, LazyGroup):
        for name in command.list_commands(click.Context(command)):
            helped(command.get_command(click.Context(command), name), (*path, name))

helped(cli, ())
"""


def test_the_public_api_is_what_it_was() -> None:
    text = "\n".join(line for name in sorted(evaldesk.__all__) for line in _said(name))

    check_snapshot("api", re.sub(r" at 0x[0-9a-f]+", "", text) + "\n")


def _said(name: str) -> Iterator[str]:
    value = getattr(evaldesk, name)
    if not callable(value):
        yield name
        return
    yield f"{name}{inspect.signature(value)}"
    if not inspect.isclass(value):
        return
    if dataclasses.is_dataclass(value):
        yield from (f"    {each.name}: {each.type}" for each in dataclasses.fields(value))
    for part, member in sorted(vars(value).items()):
        if not part.startswith("_") and callable(getattr(value, part)):
            yield f"    {part}{inspect.signature(getattr(value, part))}"
        elif not part.startswith("_") and isinstance(member, property):
            yield f"    {part}"


@of_all_tools
def test_the_help_of_every_command_is_what_it_was() -> None:
    environment = {**os.environ, "COLUMNS": "100"}  # a process of its own: click keeps the help that was asked first
    command = [sys.executable, "-c", HELPED]

    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)

    check_snapshot("help", ended.stdout)


def test_the_frames_between_processes_are_what_they_were() -> None:
    _, parts = msgspec.json.schema_components((frames.ToWorker, frames.FromWorker))
    for part in parts.values():
        part.pop("description", None)  # a docstring, which no process reads

    check_snapshot("frames", json.dumps(parts, indent=1, sort_keys=True) + "\n")


def test_the_tables_of_a_new_database_are_what_they_were(tmp_path: Path) -> None:
    Store.open(tmp_path / "new.db").close()

    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name").fetchall()

    check_snapshot("tables", "\n\n".join(row[0] for row in rows) + "\n")
