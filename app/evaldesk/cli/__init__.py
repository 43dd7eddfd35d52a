"""Floor 5: the command line. Thin: parse, call the desk, show. Commands are imported when they are called."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click

from evaldesk import __version__
from evaldesk.errors import EvaldeskError, NotFoundError
from evaldesk.registry import import_target

COMMANDS: Mapping[str, str] = {
    "ui": "evaldesk.cli.ui:ui",
    "eval": "evaldesk.cli.eval:evaluate",
    "metrics": "evaldesk.cli.metrics:metrics",
    "import": "evaldesk.cli.import_:import_",
    "export": "evaldesk.cli.export:export",
    "convert": "evaldesk.cli.convert:convert",
    "validate": "evaldesk.cli.validate:validate",
}

EXIT_USAGE = 2


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_target(COMMANDS[cmd_name])
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(str(NotFoundError.among("command", args[0], COMMANDS)), ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="evaldesk", message="%(prog)s %(version)s")
def cli() -> None:
    """Make eval sets for your LLM agents, run them, and decide.

    \b
    evaldesk ui            chat with the agents in this folder, and evaluate them in the browser
    evaldesk eval AGENT SET.evalset.json --n 5
    """


def main() -> None:
    """The console script: errors of ours are one line that says what to do, with exit code 2."""
    try:
        cli(prog_name="evaldesk")
    except EvaldeskError as error:
        click.echo(f"evaldesk: {error}", err=True)
        sys.exit(EXIT_USAGE)
