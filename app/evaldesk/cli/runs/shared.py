"""The functions shared by the commands of `evaldesk run`: their options, and the runs they work on."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evaldesk.cli.files.exchange_files import open_home

if TYPE_CHECKING:
    from evaldesk.desk.runs.stored_runs import StoredRuns

Command = TypeVar("Command", bound=Callable[..., Any])


def workspace_option(command: Command) -> Command:
    """`--workspace`."""
    words = "The folder with .evaldesk; default: the current folder."
    return click.option("--workspace", envvar="EVALDESK_WORKSPACE", help=words)(command)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(command)


def stored_runs(workspace: str | None) -> AbstractContextManager[StoredRuns]:
    """The runs of the workspace. Raises WorkspaceError when there are none yet."""
    from evaldesk.desk.runs.stored_runs import open_stored_runs

    return open_stored_runs(open_home(workspace))


def n_workers(concurrency: int) -> int:
    """Worker processes for a run."""
    return max(1, min(concurrency, os.cpu_count() or 2))
