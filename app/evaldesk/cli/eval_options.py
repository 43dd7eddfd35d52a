"""The options of `evaldesk eval`, in groups; every name may be written with dashes or with underscores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import click

from evaldesk.errors import FormatError, UsageError

Command: TypeAlias = Callable[..., Any]


class Finite(click.FloatRange):
    """A number in a range; `nan`, which is in none and outside of none, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Raises BadParameter."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no number to compare with", param, ctx)
        return found


RATE = Finite(0, 1)
SECONDS = Finite(0.1, 86_400)
RECORDING_MODES = ("off", "record", "replay", "auto")  # `evaldesk.model` is not imported for a help
SECTIONS: dict[str, str] = {}
"""The section of the help in which each option stands, by the name of its parameter."""


def metrics_and_criteria(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[tuple[str, object], ...]:
    """A metric and what a criteria file says of it: `response_match_score=0.8`, `tool_used={"threshold": 1, ...}`."""
    found = tuple(_metric_and_criterion(value) for value in values)
    names = [metric for metric, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise click.BadParameter(f"{twice} is named twice; give one a label of its own, such as {twice}/2")
    return found


def _metric_and_criterion(value: str) -> tuple[str, object]:
    from evaldesk.formats.strict_json import parse_json

    metric, _, told = value.partition("=")
    if told.lstrip().startswith("{"):
        try:
            return metric.strip(), parse_json(told.encode("utf-8", "replace"), source=metric).value
        except FormatError as error:
            raise click.BadParameter(str(error)) from None
    try:
        return metric.strip(), {"threshold": float(told)}
    except ValueError:
        wanted = """METRIC=T, such as response_match_score=0.8, or METRIC={"threshold": T, "option": ...}"""
        raise click.BadParameter(f"{value!r}: wanted {wanted}") from None


def k_and_rates(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """`5=0.9`, a number of trials and the least mean, as pairs."""
    return tuple(_k_and_rate(value) for value in values)


def _k_and_rate(value: str) -> tuple[int, float]:
    k, _, rate = value.partition("=")
    try:
        pair = int(k), float(rate)
    except ValueError:
        raise click.BadParameter(f"{value!r}: wanted K=R, such as 5=0.9") from None
    if pair[0] < 1 or not 0 <= pair[1] <= 1:
        raise click.BadParameter(f"{value!r}: K is at least 1 and R between 0 and 1")
    return pair


def run_options(command: Command) -> Command:
    """How to run."""
    return _apply(
        "How to run",
        command,
        click.option(
            "--n", "-n", "n", type=click.IntRange(1, 1000), metavar="N", default=1, help="Trials of each case; 1."
        ),
        click.option(
            "--concurrency",
            "--batch-size",
            type=click.IntRange(1, 256),
            metavar="N",
            help="Trials at once; 4 unless given. A pool: a slow one never holds up the others.",
        ),
        click.option(
            "--criterion",
            "criteria",
            metavar="METRIC=T",
            multiple=True,
            callback=metrics_and_criteria,
            help="A metric with its threshold, or, as tool_used={...}, with options too. May be repeated.",
        ),
        click.option("--config-file-path", metavar="FILE", help="The criteria, as ADK's test_config.json has them."),
        click.option(
            "--pass-threshold",
            type=float,
            metavar="R",
            help="Share of a case's trials that must pass; 1 unless given. With --eval-fn: the least score of a pass.",
        ),
        click.option("--count-errors-as-failures", is_flag=True, help="Let errored trials count in the pass rate."),
        click.option("--seed", type=int, metavar="N", help="Of the whole run; by chance unless given."),
        click.option(
            "--recording",
            type=click.Choice(RECORDING_MODES),
            help="Keep what models and tools answer, or answer from that; off unless evaldesk.toml says otherwise.",
        ),
        click.option("--note", metavar="TEXT", default="", help="A note that is kept with the run."),
        click.option(
            "--workspace", metavar="DIR", help="The folder that holds .evaldesk; the current one unless given."
        ),
        click.option(
            "--check", is_flag=True, help="Play nothing: say what would be run, and what could not be judged."
        ),
    )


def limit_options(command: Command) -> Command:
    """How long things may take."""
    return _apply(
        "How long it may take, in seconds",
        command,
        click.option("--timeout", "timeout_s", type=SECONDS, metavar="S", default=120.0, help="One trial; 120."),
        click.option("--turn-timeout", "turn_timeout_s", type=SECONDS, metavar="S", help="One turn."),
        click.option("--tool-timeout", "tool_timeout_s", type=SECONDS, metavar="S", help="One tool call."),
        click.option("--judge-timeout", "judge_timeout_s", type=SECONDS, metavar="S", help="One judge."),
    )


def model_options(command: Command) -> Command:
    """Which models, and how they are asked."""
    return _apply(
        "Models",
        command,
        click.option("--model", metavar="MODEL", help="The agent's model, by its LiteLLM name; its own unless given."),
        click.option("--base-url", metavar="URL", help="An OpenAI-compatible endpoint for the agent's model."),
        click.option("--api-key-env", metavar="NAME", help="The environment variable with the key of the model."),
        click.option("--temperature", type=float, metavar="T", help="Of the agent's model."),
        click.option("--top-p", type=float, metavar="P", help="Of the agent's model."),
        click.option("--max-tokens", type=int, metavar="N", help="Of each answer of the agent's model."),
        click.option("--max-turns", type=int, metavar="N", help="Model calls in one turn."),
        click.option("--retries", type=int, metavar="N", help="Further attempts at a model call that failed for now."),
        click.option("--user-model", metavar="MODEL", help="The model that plays the user of cases with a scenario."),
    )


def gate_options(command: Command) -> Command:
    """What the run must reach."""
    return _apply(
        "Gates",
        command,
        click.option("--min-pass-rate", type=RATE, metavar="R", help="The share of scored trials that pass."),
        click.option("--min-case-pass-rate", type=RATE, metavar="R", help="The same, for each case on its own."),
        click.option(
            "--pass-at",
            metavar="K=R",
            multiple=True,
            callback=k_and_rates,
            help="At least one of K trials passes.",
        ),
        click.option("--pass-hat", metavar="K=R", multiple=True, callback=k_and_rates, help="All of K trials pass."),
        click.option("--max-error-rate", type=RATE, metavar="R", help="Errors tolerated; none unless given."),
        click.option(
            "--max-cost",
            type=Finite(0),
            metavar="USD",
            help="The cost of all model calls. Once it is more, no trials are begun.",
        ),
        click.option("--baseline", metavar="RUN|FILE", help="An earlier run, by number or by its JSON output."),
        click.option(
            "--max-regressions",
            type=click.IntRange(0),
            metavar="N",
            help="Cases that passed in the baseline and do not now; 0 with --baseline unless given.",
        ),
    )


def output_options(command: Command) -> Command:
    """What is printed, and where results go."""
    return _apply(
        "Results",
        command,
        click.option("--print-detailed-results", is_flag=True, help="Print every turn, expected beside actual."),
        click.option("--quiet", "-q", is_flag=True, help="Print the answer only."),
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
        "As `osmosis eval`",
        command,
        click.option("--module", "-m", metavar="MODULE:ATTR", help="The agent loop."),
        click.option("--dataset", "-d", metavar="FILE", help="The data: .jsonl .json .parquet .csv."),
        click.option("--eval-fn", "eval_fns", multiple=True, metavar="MODULE:FUNCTION", help="A reward."),
        click.option(
            "--offset", type=click.IntRange(0), metavar="N", default=0, help="Rows to leave out at the start."
        ),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="The most rows to run."),
        click.option("--api-key", metavar="KEY", help="The key of the model; better its variable, by --api-key-env."),
        click.option("--baseline-model", metavar="MODEL", help="A second model, compared row by row."),
        click.option("--baseline-base-url", metavar="URL", help="Its endpoint."),
        *(_done_otherwise(name, words) for name, words in DONE_OTHERWISE.items()),
        click.option("--compat", type=click.Choice(["osmosis"]), help="Score exactly as Osmosis does."),
    )


DONE_OTHERWISE = {
    "--mcp": "tools of an MCP server are the agent's to call: name by -m an agent that has them, such as one of "
    "google-adk with an McpToolset",
    "--fresh": "leave it out, every `evaldesk eval` is a new run; `evaldesk run resume RUN` goes on with an old one",
    "--retry-failed": "`evaldesk run retry RUN` plays the errored trials of a run again",
    "--log-samples": "leave it out, every conversation is kept; `evaldesk run export RUN` gives them out",
    "--baseline-api-key": "leave it out, both models are asked with the key of --api-key-env",
}
"""Options of Osmosis that have no place here, and what to do instead."""


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
        "As an OpenHands benchmark",
        command,
        click.option("--benchmark", metavar="MODULE:FUNCTION", help="The function `process_instance`."),
        click.option("--llm-config", "-l", metavar="NAME", help="The group of config.toml."),
        click.option("--config-file", metavar="FILE", default="config.toml", help="The file of --llm-config."),
        click.option("--max-iterations", "-i", type=click.IntRange(1), metavar="N", help="Model calls in an instance."),
        click.option("--eval-n-limit", type=click.IntRange(0), metavar="N", help="Instances to draw, seed 42."),
        click.option("--eval-num-workers", type=click.IntRange(1, 256), metavar="N", help="Instances at once."),
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
    )


def _apply(section: str, command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
        added: click.Option = vars(command)["__click_params__"][-1]
        SECTIONS[str(added.name)] = section
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
