"""`evaldesk mode`: the kinds of failure of a workspace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.lazy import refusing_repeats
from evaldesk.cli.runs.shared import json_option, workspace_option

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk

_by_option = click.option("--by", metavar="NAME", default=None, help="Who does it; the last reader by default.")


@click.group()
def mode() -> None:
    """List, merge and undo the kinds of failure that people found in trials.

    \b
    evaldesk mode list
    evaldesk mode merge "wrong day" "wrong date"
    evaldesk mode undo
    """


@mode.command(name="list")
@json_option
@workspace_option
def list_modes(is_json: bool, workspace: str | None) -> None:
    """List the kinds of failure with the number of trials that show each.

    \b
    evaldesk mode list
    """
    from evaldesk.wording.printable import in_one_line

    with _desk(workspace) as desk:
        modes = [each for each in desk.failures.modes() if each.is_active]
        trials = {each.id: desk.failures.trials_by_run(each.id) for each in modes}
    if is_json:
        rows = [
            {
                "name": each.name,
                "definition": each.definition,
                "life": each.life,
                "fixed_in": each.fixed_in,
                "reopened_in": each.reopened_in,
                "trials_by_run": {str(run): n for run, n in trials[each.id].items()},
            }
            for each in modes
        ]
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for each in modes:
        n = sum(trials[each.id].values())
        click.echo(f"{in_one_line(each.name)}: {'1 trial' if n == 1 else f'{n:,} trials'}, {each.life_words}")
    if not modes:
        click.echo("No kinds of failure yet. Open a failed trial in the desk and write what went wrong.")


@mode.command()
@click.argument("name", metavar="NAME")
@click.argument("into", metavar="INTO")
@_by_option
@workspace_option
def merge(name: str, into: str, by: str | None, workspace: str | None) -> None:
    """Let all findings of the kind of failure NAME belong to INTO.

    \b
    evaldesk mode merge "wrong day" "wrong date"
    """
    from evaldesk.wording.printable import in_one_line

    with _desk(workspace) as desk:
        failures = desk.failures
        old, new = failures.mode_named(name), failures.mode_named(into)
        failures.merge(old.id, new.id, by if by is not None else failures.default_author())
    click.echo(f"Merged “{in_one_line(old.name)}” into “{in_one_line(new.name)}”. Undo: evaldesk mode undo")


@mode.command()
@_by_option
@workspace_option
def undo(by: str | None, workspace: str | None) -> None:
    """Take back the last step of a reader: a finding, a new name, a merge, a split.

    \b
    evaldesk mode undo
    """
    from evaldesk.wording.printable import in_one_line

    with _desk(workspace) as desk:
        step = desk.failures.undo(by if by is not None else desk.failures.default_author())
    click.echo(f"Undone: {in_one_line(step.words)}")


@contextmanager
def _desk(workspace: str | None) -> Iterator[Desk]:
    from evaldesk.desk.trash import open_desk

    with open_desk(open_home(workspace)) as desk:
        yield desk


for command in mode.commands.values():
    refusing_repeats(command)
