"""What the commands of `evaldesk run` share: the workspace they work on, and the run a person names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from evaldesk.cli.exchange_files import open_home
from evaldesk.errors import NotFoundError
from evaldesk.store import RunSummary, Store

Command = TypeVar("Command", bound=Callable[..., Any])
MOST_SEARCHED = 1000


def workspace_option(command: Command) -> Command:
    """`--workspace`."""
    words = "The folder that holds .evaldesk; the current one unless given."
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
    """The run with that number, or the newest one whose note begins with that line. Raises NotFoundError."""
    if name.isdecimal():
        return store.runs.summary(int(name))
    found = store.runs.list(limit=MOST_SEARCHED)
    run = next((run for run in found if run_name(run) == name), None)
    if run is None:
        known = {run_name(run) for run in found if run.note.strip()}
        said = str(NotFoundError.among("run", name, known)) if known else f"no run named {name!r}"
        raise NotFoundError(f"{said}{'' if said.endswith('?') else '; `evaldesk run list` shows them'}")
    return run


def run_name(run: RunSummary) -> str:
    """What the run is called: the first line of its note, else its number."""
    lines = run.note.strip().splitlines()
    return lines[0][:96] if lines else str(run.id)


def n_workers(concurrency: int) -> int:
    """Worker processes for a run."""
    return max(1, min(concurrency, os.cpu_count() or 2))
