"""The options of `evaldesk eval`, in groups; every name may be written with dashes or with underscores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import click

from evaldesk.cli.runs.shared import workspace_option
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.gate_options import GATE_OPTIONS, GATES_BY_NAME, SECTION, AskedGates
from evaldesk.run_options import LIMITS, MODELS, RUN, Asked, RunOption, offered

Command: TypeAlias = Callable[..., Any]


SECTIONS: dict[str, str] = {}
"""The section of the help in which each option stands, by the name of its parameter."""


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The options of the command in the form of another tool; `section` is their title in the help.

    A value of a selector says that the command has this form, and `requirement` what the form needs. `alternatives`
    are ways without the form, by the parameter.
    """

    section: str
    options: tuple[click.Option, ...]
    selectors: frozenset[str]
    requirement: str
    alternatives: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The parameters with a value."""
        return [str(option.name) for option in self.options if option.expose_value]


def dataset_option() -> click.Option:
    """The data of a form; tools share it."""
    return click.Option(["--dataset", "-d"], metavar="FILE", help="The data: .jsonl .json .parquet .csv.")


def add_tool_options(command: click.Command, tools: Iterable[ToolOptions]) -> None:
    """Add the options of the tools to a command; an option that two share stands with the first."""
    names = {param.name for param in command.params}
    for tool in tools:
        new_options = [option for option in tool.options if option.name not in names]
        command.params.extend(new_options)
        SECTIONS.update({str(option.name): tool.section for option in new_options})
        names |= {option.name for option in new_options}


def metrics_and_criteria(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[tuple[str, object], ...]:
    """A metric and its value in a criteria file: `response_match_score=0.8`, `tool_used={"threshold": 1, ...}`."""
    criteria = tuple(_metric_and_criterion(value) for value in values)
    names = [metric for metric, _ in criteria]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise click.BadParameter(f"{twice} is named twice; give one a label of its own, such as {twice}/2")
    return criteria


def _metric_and_criterion(value: str) -> tuple[str, object]:
    from evaldesk.desk.criteria.criteria import metric_and_criterion

    try:
        return metric_and_criterion(value)
    except EvaldeskError as error:
        raise click.BadParameter(str(error)) from None


class OptionValue(click.ParamType[Any]):
    """The value of an option of the table, in its type and range."""

    def __init__(self, option: RunOption) -> None:
        self.option = option
        self.name = option.kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value. Raises BadParameter."""
        try:
            result = self.option.read(value) if isinstance(value, str) else self.option.check(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)
        if result is None:
            self.fail("a value is missing", param, ctx)
        return result


def table_options(section: str) -> list[Callable[[Command], Command]]:
    """The options of the table that stand in a section of the help."""
    return [_table_option(each) for each in offered("cli") if each.section == section]


def _table_option(option: RunOption) -> Callable[[Command], Command]:
    kind: dict[str, Any] = {"type": OptionValue(option)}
    if option.kind == "switch":
        kind = {"is_flag": True}
    elif option.kind == "choice":
        kind = {"type": click.Choice(option.choices)}
    elif option.kind == "text":
        kind = {"type": str, "callback": _file_text} if option.name == "instruction" else {"type": str}
    return click.option(
        *option.flags, option.name, default=None, metavar=option.metavar or None, help=option.help, **kind
    )


def _file_text(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The text, or that of the file behind `@`."""
    if value is None or not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{value[1:]}: {error}") from None


def asked_options(values: dict[str, Any]) -> Asked:
    """The options of the table among those of a command, which are taken out of `values`; absent is not asked for."""
    table_values = {option.name: values.pop(option.name) for option in offered("cli") if option.name in values}
    option_values = {name: value for name, value in table_values.items() if value is not None and value != ""}
    return cast("Asked", option_values)


def how_options(command: Command) -> Command:
    """The options of the table: how to run, which models, how long."""
    for section in (LIMITS, MODELS, RUN):
        command = _apply(section, command, *table_options(section))
    return command


VARIANTS = "Experiments"
gate_variant_option = click.option(
    "--gate-variant", "gate_variants", metavar="NAME", multiple=True, help="A variant that the gates are about."
)


def experiment_options(command: Command) -> Command:
    """The options of an experiment, whose variants differ in some options; several models are one."""
    params: list[click.Option] = vars(command)["__click_params__"]
    model = next(param for param in params if param.name == "model")
    model.multiple, model.callback = True, read_models
    return _apply(
        VARIANTS,
        command,
        click.option(
            "--vary",
            multiple=True,
            metavar="OPTION=A,B",
            help="Play a variant for each value, of several options for each combination: model=a,b "
            "instruction=@p1.md,@p2.md. `\\,` is a comma inside a value. May be repeated.",
        ),
        click.option("--experiment", metavar="NAME", help="Name of the experiment; default: that of the eval set."),
        click.option("--baseline-variant", metavar="NAME", help="The variant to compare with; default: the first."),
        gate_variant_option,
        click.option("--allow-equal", is_flag=True, help="Allow equal variants, to see how far chance goes."),
        click.option(
            "--drop-worse", is_flag=True, help="Do not play a variant on that is worse than the best, beyond chance."
        ),
    )


def read_models(ctx: click.Context, param: click.Parameter, values: Any) -> Any:
    """The model of a run; several are noted as those of an experiment."""
    texts = [str(each) for each in values or ()]
    models = [each.replace("\\,", ",").strip() for text in texts for each in re.split(r"(?<!\\),", text)]
    if len(models) < 2:
        return models[0] if models else None
    ctx.meta[MODELS_OF_VARIANTS] = tuple(models)
    return None


MODELS_OF_VARIANTS = "evaldesk.models_of_variants"


def place_options(command: Command) -> Command:
    """Where the agent is played."""
    return _apply(
        RUN,
        command,
        click.option(
            "--python",
            metavar="FILE",
            help="The interpreter of the agent; default: that of its project. `evaldesk` is Evaldesk's own.",
        ),
        click.option(
            "--image",
            metavar="NAME",
            help="Play the agent in containers of this image, with the bounds of evaldesk.toml.",
        ),
    )


def run_options(command: Command) -> Command:
    """The criteria, and their files."""
    return _apply(
        RUN,
        place_options(command),
        click.option(
            "--criterion",
            "criteria",
            metavar="METRIC=T",
            multiple=True,
            callback=metrics_and_criteria,
            help="A metric with its threshold, or, as tool_used={...}, with options too. May be repeated.",
        ),
        click.option(
            "--config-file-path", metavar="FILE", help="The criteria, in the format of ADK's test_config.json."
        ),
        workspace_option,
        click.option(
            "--check", is_flag=True, help="Run nothing; show the planned trials and the cases that stay unscored."
        ),
    )


def gate_options(command: Command) -> Command:
    """The gates of the run, which are stored with it."""
    return _apply(SECTION, command, *(gate_option(option) for option in GATE_OPTIONS))


def gate_option(option: RunOption) -> Callable[[Command], Command]:
    """The option of a command for a gate; one with pairs may be repeated."""
    if option.kind == "pairs":
        return click.option(
            *option.flags,
            option.name,
            multiple=True,
            type=OptionValue(option),
            callback=_join_pairs,
            metavar=option.metavar,
            help=option.help,
        )
    return _table_option(option)


def _join_pairs(ctx: click.Context, param: click.Parameter, values: Sequence[Sequence[Any]]) -> Any:
    pairs = tuple(pair for value in values for pair in value)
    return param.type.convert(pairs, param, ctx) if pairs else None


def asked_gates(values: dict[str, Any]) -> AskedGates:
    """The gates among the options of a command, which are taken out of `values`; absent is not asked for."""
    gate_values = {name: values.pop(name) for name in GATES_BY_NAME if name in values}
    return cast("AskedGates", {name: value for name, value in gate_values.items() if value is not None})


def output_options(command: Command) -> Command:
    """The printed output, and the files of the results."""
    return _apply(
        "Results",
        command,
        click.option("--print-detailed-results", is_flag=True, help="Print every turn, expected beside actual."),
        click.option("--quiet", "-q", is_flag=True, help="Print only the result."),
        click.option("--json", "is_json", is_flag=True, help="Print the result as JSON."),
        click.option(
            "--output",
            "-o",
            "outputs",
            multiple=True,
            metavar="FILE",
            help="Results: .json (with -m: as Osmosis writes it, or a folder as its later versions do), .jsonl, .csv "
            "or .parquet of trials, .scores.csv or .agents.csv (also .parquet). May be repeated.",
        ),
        click.option("--junit", metavar="FILE", help="JUnit XML."),
        click.option(
            "--summary", metavar="FILE", help="Markdown for a pull request; appended to $GITHUB_STEP_SUMMARY."
        ),
        click.option("--annotations", is_flag=True, help="Print GitHub annotations."),
    )


def _apply(section: str, command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
        new_option: click.Option = vars(command)["__click_params__"][-1]
        SECTIONS[str(new_option.name)] = section
    return command


class Sectioned(click.Command):
    """A command whose help has its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each section in the order in which the options are declared."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections.setdefault(SECTIONS.get(str(param.name), "Help"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)
