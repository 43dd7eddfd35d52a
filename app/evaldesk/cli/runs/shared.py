"""The options that several commands share, and the workspace, the agents and the runs they work on."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.errors import UsageError

if TYPE_CHECKING:
    from evaldesk.desk.runs.stored_runs import StoredRuns
    from evaldesk.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def workspace_option(command: Command) -> Command:
    """`--workspace`."""
    words = "The folder with .evaldesk; default: the current folder."
    return click.option("--workspace", envvar="EVALDESK_WORKSPACE", help=words)(command)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(command)


def python_option(command: Command) -> Command:
    """`--python` of the commands that look at agents."""
    words = "The interpreter of the agents, or its name on PATH; default: their project's."
    return click.option("--python", metavar="FILE", help=words)(command)


def settings_of(folders: tuple[str, ...], workspace: str | None, python: str | None = None) -> Settings:
    """Settings for the agents under `folders` and in `evaldesk.toml`, played on the interpreter `python` where named.

    Writes nothing. Raises UsageError.
    """
    from evaldesk.paths import interpreter_path
    from evaldesk.settings import read_settings

    home = Path(workspace).resolve() if workspace else Path.cwd()
    roots = tuple(Path(folder).resolve() for folder in folders) or (home,)
    for root in (home, *roots):
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder; name the folder that holds your agents")
    settings = read_settings(home, roots, environment=os.environ)
    return replace(settings, python=interpreter_path(python, Path.cwd())) if python else settings


def stored_runs(workspace: str | None) -> AbstractContextManager[StoredRuns]:
    """The runs of the workspace. Raises WorkspaceError when there are none yet."""
    from evaldesk.desk.runs.stored_runs import open_stored_runs

    return open_stored_runs(open_home(workspace))


def n_workers(concurrency: int) -> int:
    """Worker processes for a run."""
    return max(1, min(concurrency, os.cpu_count() or 2))
