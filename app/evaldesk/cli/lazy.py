"""Groups of commands that are imported when they are called, and that answer unknown names with the nearest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from evaldesk.errors import NotFoundError
from evaldesk.process_setup import gc_paused
from evaldesk.registry import import_target


def dashed(name: str) -> str:
    """`--config_file_path` as `--config-file-path`: every option may be written either way."""
    return name.replace("_", "-")


def refusing_repeats(command: click.Command) -> click.Command:
    """The command, which refuses an option with a value that is given twice, unless it may be repeated."""
    for param in command.params:
        if isinstance(param, click.Option) and not (param.multiple or param.count or param.is_flag):
            vars(param)["add_to_parser"] = functools.partial(_add_once, param)
    return command


def _add_once(option: click.Option, parser: Any, ctx: click.Context) -> None:
    """Have the parser of a command know the option, and refuse its second value."""
    click.Option.add_to_parser(option, parser, ctx)
    known = {**parser._long_opt, **parser._short_opt}
    for parsed in {id(each): each for each in known.values() if each.obj is option}.values():
        parsed.process = functools.partial(_process_once, option, parsed.process, ctx)


def _process_once(
    option: click.Option, process: Callable[[Any, Any], None], ctx: click.Context, value: Any, state: Any
) -> None:
    if option.name in state.opts:
        raise click.UsageError(f"{' / '.join(option.opts)} is given twice; leave one out.", ctx)
    process(value, state)


class LazyGroup(click.Group):
    """`commands_by_name` gives each command as `module:attr`; `words` the start of its help.

    A list of commands that has the words imports none of them.
    """

    def __init__(
        self,
        *arguments: Any,
        commands_by_name: Mapping[str, str] | None = None,
        words: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._targets = commands_by_name or {}
        self._words = words or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it; the name alone is a question, and the help is the answer."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in order."""
        return sorted(self._targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self._targets:
            return None
        with gc_paused():
            command = import_target(self._targets[cmd_name])
        return refusing_repeats(command) if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their words, in the order of the table."""
        rows = [(name, words) for name in self._targets if (words := self._help(ctx, name))]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _help(self, ctx: click.Context, name: str) -> str:
        """The first sentence of the command's help; empty for a hidden one."""
        if name in self._words:
            return self._words[name]
        command = self.get_command(ctx, name)
        return command.get_short_help_str(200) if command and not command.hidden else ""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but an unknown name is answered with the nearest known one."""
        if args and not args[0].startswith("-") and args[0] not in self._targets:
            raise click.UsageError(str(NotFoundError.among("command", args[0], self._targets)), ctx)
        return super().resolve_command(ctx, args)
