"""The options of `evaldesk eval` in the form of `osmosis eval`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from evaldesk.cli.eval.options import ToolOptions, dataset_option
from evaldesk.errors import UsageError


@dataclass(frozen=True, slots=True)
class OsmosisOptions:
    """The options as they were given; None is not given."""

    module: str | None = None
    dataset: str | None = None
    eval_fns: tuple[str, ...] = ()
    offset: int = 0
    limit: int | None = None
    api_key: str | None = None
    baseline_model: str | None = None
    baseline_base_url: str | None = None


DONE_OTHERWISE: Mapping[str, str] = {
    "--mcp": "tools of an MCP server are the agent's to call: name by -m an agent that has them, such as one of "
    "google-adk with an McpToolset",
    "--log-samples": "leave it out, every conversation is kept; `evaldesk run export RUN` gives them out",
    "--baseline-api-key": "leave it out, both models are asked with the key of --api-key-env",
}
"""Options of Osmosis that have no place here, with the alternative."""


def _done_otherwise(name: str, words: str) -> click.Option:
    def refuse(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise UsageError(f"{name}: {words}")

    is_flag = name not in ("--mcp", "--baseline-api-key")
    options: dict[str, Any] = {"is_flag": True, "flag_value": name} if is_flag else {}
    return click.Option([name], hidden=True, expose_value=False, callback=refuse, default=None, **options)


OPTIONS = ToolOptions(
    section="As `osmosis eval`",
    options=(
        click.Option(["--module", "-m"], metavar="MODULE:ATTR", help="The agent loop."),
        dataset_option(),
        click.Option(["--eval-fn", "eval_fns"], multiple=True, metavar="MODULE:FUNCTION", help="A reward."),
        click.Option(
            ["--offset"], type=click.IntRange(0), metavar="N", default=0, help="Rows to leave out at the start."
        ),
        click.Option(["--limit"], type=click.IntRange(1), metavar="N", help="Most rows to run."),
        click.Option(["--api-key"], metavar="KEY", help="The key of the model; better its variable, by --api-key-env."),
        click.Option(["--baseline-model"], metavar="MODEL", help="A second model, compared row by row."),
        click.Option(["--baseline-base-url"], metavar="URL", help="Its endpoint."),
        *(_done_otherwise(name, words) for name, words in DONE_OTHERWISE.items()),
    ),
    selectors=frozenset({"module", "dataset"}),
    requirement="needs -m and -d, as in `osmosis eval`",
    alternatives={
        "eval_fns": "name the function by --criterion MODULE:FUNCTION=T",
        "api_key": "name the variable with the key by --api-key-env",
    },
)
