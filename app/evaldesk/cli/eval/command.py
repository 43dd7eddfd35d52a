"""`evaldesk eval`: run eval sets from the shell, on the same engine and store, with the same verdicts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from evaldesk.cli.eval.options import (
    MODELS_OF_VARIANTS,
    SECTIONS,
    Sectioned,
    ToolOptions,
    add_tool_options,
    asked_gates,
    asked_options,
    experiment_options,
    gate_options,
    how_options,
    output_options,
    run_options,
)
from evaldesk.cli.eval.spellings import load_evaluate, tool_options
from evaldesk.errors import UsageError


@click.command(name="eval", cls=Sectioned)
@click.argument("words", nargs=-1, metavar="[AGENT EVALSET[:CASE,CASE]...]")
@experiment_options
@how_options
@run_options
@gate_options
@output_options
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
    An experiment, one variant for each model and prompt:
      evaldesk eval my_agent my.evalset.json --vary model=gpt-5,gpt-5-mini --vary instruction=@p1.md,@p2.md --n 5
    In a build:
      evaldesk eval my_agent my.evalset.json --n 5 --min-pass-rate 0.9 --junit results.xml --summary summary.md
    """
    from evaldesk.cli.eval.request import EvalRequest

    tools = tool_options()
    of_tools = {
        name: values.pop(name) for name in dict.fromkeys(name for each in tools.values() for name in each.names)
    }
    tool = next((name for name in reversed(tools) if any(of_tools[key] for key in tools[name].selectors)), "adk")
    _refuse_others(tools, tool)
    own = {name: value for name, value in of_tools.items() if tool in tools and name in tools[tool].names}
    request = EvalRequest(
        words=words,
        run_options=asked_options(values),
        asked_gates=asked_gates(values),
        tool=tool,
        tool_options=own,
        models=click.get_current_context().meta.get(MODELS_OF_VARIANTS, ()),
        is_mixed=any(of_tools[key] for each in tools.values() for key in each.selectors - own.keys()),
        **values,
    )
    if request.is_experiment and tool != "adk":
        raise UsageError("several models, or --vary, are an experiment of AGENT EVALSET; name one model here")
    if request.value("shard") and tool != "adk":
        raise UsageError("--shard is of AGENT EVALSET; leave it out here")
    sys.exit(load_evaluate(tool)(request))


add_tool_options(evaluate, tool_options().values())


def _refuse_others(tools: Mapping[str, ToolOptions], tool: str) -> None:
    """Raise UsageError for an option of another tool than the form of the command has, which would have no effect."""
    ctx = click.get_current_context()
    selectors = {name for each in tools.values() for name in each.selectors}
    by_section = {each.section: each for name, each in tools.items() if name != tool}
    for param in ctx.command.params:
        other = by_section.get(SECTIONS.get(str(param.name), ""))
        if other and param.name not in selectors and _is_given(ctx, param):
            instead = other.alternatives.get(str(param.name), "leave it out")
            raise UsageError(f"{param.opts[0]} {other.requirement}; add these, or {instead}")


def _is_given(ctx: click.Context, param: click.Parameter) -> bool:
    """Whether the option stands on the command line."""
    return ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
