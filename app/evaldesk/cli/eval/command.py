"""`evaldesk eval`: run eval sets from the shell, on the same engine and store, with the same verdicts."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from evaldesk.cli.eval.options import (
    OPENHANDS,
    OSMOSIS,
    SECTIONS,
    Sectioned,
    asked_gates,
    asked_options,
    gate_options,
    how_options,
    openhands_options,
    osmosis_options,
    output_options,
    run_options,
)
from evaldesk.cli.eval.spellings import load_evaluate
from evaldesk.errors import UsageError


@click.command(name="eval", cls=Sectioned)
@click.argument("words", nargs=-1, metavar="[AGENT EVALSET[:CASE,CASE]...]")
@how_options
@run_options
@gate_options
@output_options
@osmosis_options
@openhands_options
def evaluate(words: tuple[str, ...], **values: Any) -> None:
    """Run eval sets with AGENT: a folder, module:attr, or samples/NAME.

    Exit code 0: passed; 1: a gate failed; 2: wrong usage; 3: undecided; 4: too close to tell
    (--undecided neutral); 130: interrupted.
    Without a gate every trial must pass; with the options of `osmosis eval` and OpenHands no trial must.

    \b
    As `adk eval`:
      evaldesk eval samples/hello_world evalsets/hello_world.evalset.json --n 5
      evaldesk eval my_agent a.evalset.json:case_1,case_2 b.evalset.json --config_file_path test_config.json
    As `osmosis eval`:
      evaldesk eval -m server:agent_loop -d data.jsonl --eval-fn rewards:compute_reward --model openai/gpt-5-mini --n 5
    As an OpenHands benchmark:
      evaldesk eval --benchmark bench:process_instance -d instances.jsonl -l eval_gpt --config-file config.toml
    In a build:
      evaldesk eval my_agent my.evalset.json --n 5 --min-pass-rate 0.9 --junit results.xml --summary summary.md
    """
    from evaldesk.cli.eval.request import EvalRequest

    section = OPENHANDS if values["benchmark"] else OSMOSIS if values["module"] or values["dataset"] else ""
    _refuse_others(section)
    play = load_evaluate(section)
    option_values, gates = asked_options(values), asked_gates(values)
    sys.exit(play(EvalRequest(words=words, run_options=option_values, asked_gates=gates, **values)))


_NEEDED = {
    OSMOSIS: "needs -m and -d, as in `osmosis eval`",
    OPENHANDS: "needs --benchmark, as a benchmark of OpenHands",
}
_INSTEAD = {
    "eval_fns": "name the function by --criterion MODULE:FUNCTION=T",
    "api_key": "name the variable with the key by --api-key-env",
}
_NAMING = ("module", "dataset", "benchmark")
"""Options that say which tool the command is spelled as."""


def _refuse_others(section: str) -> None:
    """Raise UsageError for an option of another tool than the command is spelled as, which would have no effect."""
    ctx = click.get_current_context()
    for param in ctx.command.params:
        other = SECTIONS.get(str(param.name), "")
        if other in _NEEDED and other != section and param.name not in _NAMING and _is_given(ctx, param):
            raise UsageError(
                f"{param.opts[0]} {_NEEDED[other]}; add these, or {_INSTEAD.get(str(param.name), 'leave it out')}"
            )


def _is_given(ctx: click.Context, param: click.Parameter) -> bool:
    """Whether the option stands on the command line."""
    return ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
