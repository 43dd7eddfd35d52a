"""The options that several commands share, the workspace, agents and runs they work on, and the trust they ask for."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.wording.writer import confirm, show

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk
    from evaldesk.desk.runs.provenance import ForeignRun
    from evaldesk.desk.runs.stored_runs import StoredRuns
    from evaldesk.desk.trust import Trust
    from evaldesk.model.stored import RunSummary
    from evaldesk.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """A number between two bounds; a range of click takes "nan", which no bound excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Raises click.BadParameter."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a number between {self.min} and {self.max}", param, ctx)
        return number


def workspace_option(command: Command) -> Command:
    """`--workspace`."""
    words = "The folder with .evaldesk; default: EVALDESK_WORKSPACE, or the current folder."
    return click.option("--workspace", metavar="DIR", envvar="EVALDESK_WORKSPACE", help=words)(command)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(command)


def python_option(command: Command) -> Command:
    """`--python` of the commands that look at agents, and of the desk."""
    words = "The interpreter of the agents, or its name on PATH; default: their project's."
    return click.option("--python", metavar="FILE", help=words)(command)


def settings_of(folders: tuple[str, ...], workspace: str | None, python: str | None = None) -> Settings:
    """Settings for the agents under `folders` and in `evaldesk.toml`, played on the interpreter `python` where named.

    Writes nothing. Raises UsageError.
    """
    from evaldesk.desk.workspace import check_folders
    from evaldesk.paths import interpreter_path, workspace_folder
    from evaldesk.settings import read_settings

    home = workspace_folder(workspace)
    roots = tuple(map(workspace_folder, folders)) or (home,)
    check_folders(home, roots)
    settings = read_settings(home, roots, environment=os.environ)
    return replace(settings, python=interpreter_path(python, Path.cwd())) if python else settings


def stored_runs(workspace: str | None) -> AbstractContextManager[StoredRuns]:
    """The runs of the workspace. Raises WorkspaceError when there are none yet."""
    from evaldesk.desk.runs.stored_runs import open_stored_runs

    return open_stored_runs(open_home(workspace))


def opened_desk(workspace: str | None) -> AbstractContextManager[Desk]:
    """The desk of the workspace, without a process that plays."""
    from evaldesk.desk.trash import open_desk

    return open_desk(open_home(workspace))


def trial_place(target: str, form: str) -> tuple[str, str | None, int | None]:
    """Run, case and trial, from 0, of `RUN:CASE:TRIAL`, which `form` names in an error.

    A case id may have colons of its own, a run's name may not. Raises click.BadParameter.
    """
    run, _, place = target.partition(":")
    case_id, colon, last = place.rpartition(":")
    if colon and last.isdecimal():
        if int(last) < 1:
            raise click.BadParameter("trials count from 1", param_hint=form)
        return run, case_id, int(last) - 1
    return run, place or None, None


def n_workers(concurrency: int) -> int:
    """Worker processes for a run."""
    return max(1, min(concurrency, os.cpu_count() or 2))


def trust_option(command: Command) -> Command:
    """`--trust`."""
    words = "Trust the agents and stored runs of this folder from now on."
    return click.option("--trust", "is_trusted", is_flag=True, help=words)(command)


def accept_option(command: Command) -> Command:
    """`--accept`."""
    words = "Play a run of somebody else as it was shown; the refusal has its DIGEST."
    return click.option("--accept", "digest", metavar="DIGEST", default="", help=words)(command)


async def accept_run(desk: Desk, run: RunSummary, digest: str) -> None:
    """Show the parts of somebody else's run, and ask a person at the terminal; `digest` is an earlier answer.

    Raises TrustError where the run has changed since.
    """
    foreign = await asyncio.to_thread(desk.runs.foreign, run)
    if foreign is None or desk.trust.has_foreign_runs:
        return
    if not digest and not foreign.is_refused and sys.stdin.isatty() and sys.stderr.isatty():
        for line in foreign_lines(foreign):
            show(line, err=True)
        if confirm(f"Play run {run.id} as shown?", err=True):
            digest = foreign.digest
    if digest:
        await desk.runs.accept(run.id, digest)


def foreign_lines(foreign: ForeignRun) -> list[str]:
    """The parts of a run that waits for a person, first the ones that differ from this workspace."""
    from evaldesk.wording.printable import in_one_line

    differences = [
        f"  {name}: {run_value or '-'} (here: {own or 'none'})" for name, run_value, own in foreign.differences
    ]
    parts = [f"  {name}: {value}" for name, value in foreign.parts]
    return [in_one_line(line) for line in (foreign.sentence, *differences, "All that it would do:", *parts)]


def ask_trust(settings: Settings, *, is_trusted: bool, needs_runs_only: bool = False, asks: bool = True) -> Trust:
    """The trust in the workspace, after the question where there is one to ask and a person at the terminal.

    Nobody is asked without `asks`. With `needs_runs_only` the agents of the folder do not matter, only the stored runs.
    """
    from evaldesk.desk.trust import Trust

    trust = Trust(settings)
    if is_trusted:
        _give(trust)
        return trust
    is_asked = trust.has_foreign_runs if needs_runs_only else trust.is_restricted
    if asks and is_asked and sys.stdin.isatty() and sys.stderr.isatty():
        for line in question_lines(trust):
            show(line, err=True)
        if confirm("Trust this folder?", err=True):
            _give(trust)
    return trust


def question_lines(trust: Trust) -> list[str]:
    """The things that would run after a yes."""
    from evaldesk.desk.trust import question_words
    from evaldesk.wording.printable import in_one_line

    question = trust.question()
    return [
        f"Not trusted: {', '.join(in_one_line(str(folder)) for folder in question.folders)}",
        *(f"  {in_one_line(f'{title}: {text}')}" for title, text in question_words(question)),
    ]


def _give(trust: Trust) -> None:
    if not trust.give():
        show("The answer cannot be kept, so it holds for this command only.", err=True)
