"""The question whether a folder may run its code, in the terminal, and the option that answers it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from evaldesk.desk.trust import Trust
    from evaldesk.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def trust_option(command: Command) -> Command:
    """`--trust`."""
    words = "Trust the agents and stored runs of this folder from now on."
    return click.option("--trust", "is_trusted", is_flag=True, help=words)(command)


def answered(settings: Settings, *, is_trusted: bool, needs_runs_only: bool = False, asks: bool = True) -> Trust:
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
            click.echo(line, err=True)
        if click.confirm("Trust this folder?", err=True):
            _give(trust)
    return trust


def question_lines(trust: Trust) -> list[str]:
    """The things that would run after a yes."""
    from evaldesk.desk.trust import question_words
    from evaldesk.wording.printable import in_one_line

    asked = trust.question()
    return [
        f"Not trusted: {', '.join(in_one_line(str(folder)) for folder in asked.folders)}",
        *(f"  {in_one_line(f'{title}: {text}')}" for title, text in question_words(asked)),
    ]


def _give(trust: Trust) -> None:
    if not trust.give():
        click.echo("The answer cannot be kept, so it holds for this command only.", err=True)
