"""The options of `evaldesk eval`, in groups; every name may be written with dashes or with underscores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import click

Command: TypeAlias = Callable[..., Any]


RATE = click.FloatRange(0, 1)


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
        command,
        click.option(
            "--n", "-n", "n", type=click.IntRange(1, 1000), default=1, show_default=True, help="Trials a case."
        ),
        click.option(
            "--concurrency",
            "--batch-size",
            type=click.IntRange(1, 256),
            help="Trials at once; 4 unless given. A pool: a slow one never holds up the others.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(0.1, 86_400),
            default=120.0,
            show_default=True,
            help="Seconds for one trial.",
        ),
        click.option("--model", help="The model of the agent, by its LiteLLM name; the agent's own unless given."),
        click.option("--base-url", help="An OpenAI-compatible endpoint for the agent's model."),
        click.option("--temperature", type=float, help="Of the agent's model."),
        click.option("--max-tokens", type=int, help="Of each answer of the agent's model."),
        click.option("--max-turns", type=int, help="Model calls in one turn."),
        click.option("--config-file-path", help="The criteria, as ADK's test_config.json has them."),
        click.option(
            "--pass-threshold",
            type=float,
            help="Share of a case's trials that must pass; 1 unless given. With --eval-fn: the least score of a pass.",
        ),
        click.option("--count-errors-as-failures", is_flag=True, help="Let errored trials count in the pass rate."),
        click.option("--seed", type=int, help="Of the whole run; by chance unless given."),
        click.option("--note", default="", help="A note that is kept with the run."),
        click.option("--workspace", help="The folder that holds .evaldesk; the current one unless given."),
        click.option("--print-detailed-results", is_flag=True, help="Print every turn, expected beside actual."),
        click.option("--quiet", "-q", is_flag=True, help="Print the answer only."),
        click.option("--json", "is_json", is_flag=True, help="Print the result as JSON."),
    )


def gate_options(command: Command) -> Command:
    """What the run must reach."""
    return _apply(
        command,
        click.option("--min-pass-rate", type=RATE, metavar="R", help="Gate: share of scored trials that pass."),
        click.option("--min-case-pass-rate", type=RATE, metavar="R", help="Gate: the same, for each case on its own."),
        click.option(
            "--pass-at",
            metavar="K=R",
            multiple=True,
            callback=k_and_rates,
            help="Gate: at least one of K trials passes.",
        ),
        click.option(
            "--pass-hat", metavar="K=R", multiple=True, callback=k_and_rates, help="Gate: all of K trials pass."
        ),
        click.option("--max-error-rate", type=RATE, metavar="R", help="Errors tolerated; none unless given."),
        click.option(
            "--max-cost",
            type=click.FloatRange(0),
            metavar="USD",
            help="Gate: the cost of all model calls. Once it is more, no trials are begun.",
        ),
        click.option("--baseline", metavar="RUN|FILE", help="An earlier run, by number or by its JSON output."),
        click.option(
            "--max-regressions",
            type=click.IntRange(0),
            metavar="N",
            help="Gate: cases that passed in the baseline and do not now; 0 with --baseline unless given.",
        ),
    )


def output_options(command: Command) -> Command:
    """Where results go."""
    return _apply(
        command,
        click.option(
            "--output",
            "-o",
            "outputs",
            multiple=True,
            metavar="FILE",
            help="Results: .json (with -m: as Osmosis writes it), .jsonl, .csv or .parquet of trials, "
            ".scores.csv or .scores.parquet. May be repeated.",
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
        command,
        click.option("--module", "-m", metavar="MODULE:ATTR", help="Osmosis: the agent loop."),
        click.option("--dataset", "-d", metavar="FILE", help="Osmosis, OpenHands: .jsonl .json .parquet .csv."),
        click.option("--eval-fn", "eval_fns", multiple=True, metavar="MODULE:FUNCTION", help="Osmosis: a reward."),
        click.option("--offset", type=click.IntRange(0), default=0, help="Osmosis: rows to leave out at the start."),
        click.option("--limit", type=click.IntRange(1), help="Osmosis: the most rows to run."),
        click.option("--api-key", help="Osmosis: the key of the model; better its variable, by --api-key-env."),
        click.option("--api-key-env", metavar="NAME", help="The environment variable with the key of the model."),
        click.option("--baseline-model", help="Osmosis: a second model, compared row by row."),
        click.option("--baseline-base-url", help="Osmosis: its endpoint."),
        click.option("--compat", type=click.Choice(["osmosis"]), help="Score exactly as Osmosis does."),
    )


def openhands_options(command: Command) -> Command:
    """The form of OpenHands."""
    return _apply(
        command,
        click.option("--benchmark", metavar="MODULE:FUNCTION", help="OpenHands: process_instance."),
        click.option("--llm-config", "-l", metavar="NAME", help="OpenHands: the group of config.toml."),
        click.option("--config-file", default="config.toml", help="OpenHands: the file of --llm-config."),
        click.option("--max-iterations", "-i", type=click.IntRange(1), help="OpenHands: model calls in an instance."),
        click.option("--eval-n-limit", type=click.IntRange(0), help="OpenHands: instances to draw, seed 42."),
        click.option("--eval-num-workers", type=click.IntRange(1, 256), help="OpenHands: instances at once."),
        click.option("--eval-ids", metavar="ID,ID", help="OpenHands: the instances to run."),
        click.option("--eval-note", help="OpenHands: ends the name of the output folder."),
        click.option(
            "--score-key",
            default="success",
            show_default=True,
            help="OpenHands: the key of test_result that says 1 or 0.",
        ),
        click.option("--eval-output-dir", metavar="DIR", help="OpenHands: where output.jsonl goes."),
    )


def _apply(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
