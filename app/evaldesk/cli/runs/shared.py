"""The functions shared by the commands of `evaldesk run`: the workspace, and the run that a person names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])
MOST_SEARCHED = 1000
MOST_LISTED = 10


def workspace_option(command: Command) -> Command:
    """`--workspace`."""
    words = "The folder with .evaldesk; default: the current folder."
    return click.option("--workspace", envvar="EVALDESK_WORKSPACE", help=words)(command)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(command)


@contextmanager
def opened_store(workspace: str | None) -> Iterator[Store]:
    """The database of the workspace. Raises WorkspaceError when there is none yet."""
    settings = open_home(workspace)
    with Store.open(settings.database, must_exist=True) as store:
        yield store


def named_run(store: Store, name: str) -> RunSummary:
    """The run with that number, or the newest whose name is `name`, or begins so where only one name does.

    Raises NotFoundError, and UsageError where several names begin so.
    """
    if name.isdecimal():
        return store.runs.summary(int(name))
    runs: dict[str, RunSummary] = {}
    for run in store.runs.list(limit=MOST_SEARCHED):
        runs.setdefault(run_name(run), run)
    names = [name] if name in runs else [known for known in runs if name.strip() and known.startswith(name)]
    if len(names) > 1:
        listed = ", ".join(f"{known} ({runs[known].id})" for known in names[:MOST_LISTED])
        more = ", …" if len(names) > MOST_LISTED else ""
        raise UsageError(f"{len(names):,} runs begin with {name!r}: {listed}{more}; give more of the name, or a number")
    if not names:
        raise _unknown_run(name, [known for known, run in runs.items() if run.note.strip()])
    return runs[names[0]]


def _unknown_run(name: str, known: Sequence[str]) -> NotFoundError:
    said = str(NotFoundError.among("run", name, known)) if known else f"no run named {name!r}"
    return NotFoundError(f"{said}{'' if said.endswith('?') else '; `evaldesk run list` shows them'}")


def run_name(run: RunSummary) -> str:
    """The name of the run: the first line of its note, else its number."""
    lines = run.note.strip().splitlines()
    return lines[0][:96] if lines else str(run.id)


def n_workers(concurrency: int) -> int:
    """Worker processes for a run."""
    return max(1, min(concurrency, os.cpu_count() or 2))
