"""Groups of commands that are imported when they are called, and that answer unknown names with the nearest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import click

from evaldesk.errors import NotFoundError
from evaldesk.process_setup import gc_paused
from evaldesk.registry import import_target, is_present


def dashed(name: str) -> str:
    """`--config_file_path` as `--config-file-path`: every option may be written either way."""
    return name.replace("_", "-")


def refusing_repeats(command: click.Command) -> click.Command:
    """The command, which refuses an option that has a value and is given twice, unless it may be repeated.

    So do the commands of a group.
    """
    for param in command.params:
        is_switch = isinstance(param, click.Option) and param.is_flag and not param.secondary_opts
        if isinstance(param, click.Option) and not (param.multiple or param.count or is_switch):
            vars(param)["add_to_parser"] = functools.partial(_add_once, param)
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        refusing_repeats(each)
    return command


def _add_once(option: click.Option, parser: Any, ctx: click.Context) -> None:
    """Have the parser of a command know the option, and refuse its second value."""
    click.Option.add_to_parser(option, parser, ctx)
    options_by_flag = {**parser._long_opt, **parser._short_opt}
    for parser_option in {id(each): each for each in options_by_flag.values() if each.obj is option}.values():
        parser_option.process = functools.partial(_process_once, option, parser_option.process, ctx)


def _process_once(
    option: click.Option, process: Callable[[Any, Any], None], ctx: click.Context, value: Any, state: Any
) -> None:
    if option.name in state.opts:
        raise click.UsageError(f"{' / '.join(option.opts)} is given twice; leave one out.", ctx)
    process(value, state)


class LazyCommand(NamedTuple):
    """A command as `module:attr`, and the first sentence of its help; empty for a hidden command."""

    target: str
    words: str


class LazyGroup(click.Group):
    """Its `table` has the commands by their names: a list of them imports none."""

    def __init__(self, *arguments: Any, table: Mapping[str, LazyCommand] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._table = {name: command for name, command in (table or {}).items() if is_present(command.target)}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it; the name alone is a question, and the help is the answer."""
        if not args and not ctx.resilient_parsing:
            from evaldesk.wording.writer import show

            show(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in order."""
        return sorted(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self._table:
            return None
        with gc_paused():
            command = import_target(self._table[cmd_name].target)
        return refusing_repeats(cast("click.Command", command))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their words, in the order of the table."""
        rows = [(name, command.words) for name, command in self._table.items() if command.words]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but an unknown name is answered with the nearest known one."""
        if args and not args[0].startswith("-") and args[0] not in self._table:
            raise click.UsageError(str(NotFoundError.among("command", args[0], self._table)), ctx)
        return super().resolve_command(ctx, args)
