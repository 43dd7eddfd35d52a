"""The options of `evaldesk eval`, in groups; every name may be written with dashes or with underscores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import click

from evaldesk.cli.runs.shared import workspace_option
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.gate_options import GATE_OPTIONS, GATES_BY_NAME, SECTION, AskedGates
from evaldesk.run_options import LIMITS, MODELS, RUN, Asked, RunOption, offered

Command: TypeAlias = Callable[..., Any]


OSMOSIS, OPENHANDS = "As `osmosis eval`", "As an OpenHands benchmark"
SECTIONS: dict[str, str] = {}
"""The section of the help in which each option stands, by the name of its parameter."""


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
        kind = {"type": str}
    return click.option(
        *option.flags, option.name, default=None, metavar=option.metavar or None, help=option.help, **kind
    )


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
            "or .parquet of trials, .scores.csv or .scores.parquet. May be repeated.",
        ),
        click.option("--junit", metavar="FILE", help="JUnit XML."),
        click.option(
            "--summary", metavar="FILE", help="Markdown for a pull request; appended to $GITHUB_STEP_SUMMARY."
        ),
        click.option("--annotations", is_flag=True, help="Print GitHub annotations."),
    )


def osmosis_options(command: Command) -> Command:
    """The form of Osmosis."""
    return _apply(
        OSMOSIS,
        command,
        click.option("--module", "-m", metavar="MODULE:ATTR", help="The agent loop."),
        click.option("--dataset", "-d", metavar="FILE", help="The data: .jsonl .json .parquet .csv."),
        click.option("--eval-fn", "eval_fns", multiple=True, metavar="MODULE:FUNCTION", help="A reward."),
        click.option(
            "--offset", type=click.IntRange(0), metavar="N", default=0, help="Rows to leave out at the start."
        ),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="Most rows to run."),
        click.option("--api-key", metavar="KEY", help="The key of the model; better its variable, by --api-key-env."),
        click.option("--baseline-model", metavar="MODEL", help="A second model, compared row by row."),
        click.option("--baseline-base-url", metavar="URL", help="Its endpoint."),
        *(_done_otherwise(name, words) for name, words in DONE_OTHERWISE.items()),
    )


DONE_OTHERWISE = {
    "--mcp": "tools of an MCP server are the agent's to call: name by -m an agent that has them, such as one of "
    "google-adk with an McpToolset",
    "--fresh": "leave it out, every `evaldesk eval` is a new run; `evaldesk run resume RUN` goes on with an old one",
    "--retry-failed": "`evaldesk run retry RUN` plays the errored trials of a run again",
    "--log-samples": "leave it out, every conversation is kept; `evaldesk run export RUN` gives them out",
    "--baseline-api-key": "leave it out, both models are asked with the key of --api-key-env",
}
"""Options of Osmosis that have no place here, with the alternative."""


def _done_otherwise(name: str, words: str) -> Callable[[Command], Command]:
    def refuse(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise UsageError(f"{name}: {words}")

    is_flag = name not in ("--mcp", "--baseline-api-key")
    options: dict[str, Any] = {"is_flag": True, "flag_value": name} if is_flag else {}
    return click.option(name, hidden=True, expose_value=False, callback=refuse, default=None, **options)


def openhands_options(command: Command) -> Command:
    """The form of OpenHands."""
    return _apply(
        OPENHANDS,
        command,
        click.option("--benchmark", metavar="MODULE:FUNCTION", help="The function `process_instance`."),
        click.option(
            "--command-image",
            metavar="NAME",
            help="Run the commands of its runtime in a container of this image; `instance`: the one that it names.",
        ),
        click.option("--llm-config", "-l", metavar="NAME", help="The group of config.toml."),
        click.option("--config-file", metavar="FILE", default="config.toml", help="The file of --llm-config."),
        click.option("--max-iterations", "-i", type=click.IntRange(1), metavar="N", help="Model calls in an instance."),
        click.option("--eval-n-limit", type=click.IntRange(0), metavar="N", help="Instances to draw, seed 42."),
        click.option("--eval-ids", metavar="ID,ID", help="The instances to run."),
        click.option("--eval-note", metavar="TEXT", help="Ends the name of the output folder."),
        click.option(
            "--score-key",
            metavar="KEY",
            default="success",
            show_default=True,
            help="The key of test_result that says 1 or 0.",
        ),
        click.option("--eval-output-dir", metavar="DIR", help="Where output.jsonl goes."),
        click.option("--eval-metadata", hidden=True),
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
