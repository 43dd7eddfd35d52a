"""`evaldesk metrics`: every metric there is, with its range, direction, needs and options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

NEEDS = {
    "tool_calls": "expected tool calls",
    "reference": "a reference answer",
    "reference_json": "a reference answer in JSON",
    "reference_number": "a number in the reference answer",
    "final_state": "an expected final state",
    "nothing": "",
}
JUDGE_OPTIONS = {
    "name": "judge_model_options",
    "kind": "json",
    "label": "Judge options",
    "explanation": "In a criteria file, as in ADK: judge_model, judge_models, judge_model_config, num_samples, "
    "parallelism_limit, timeout_s.",
    "choices": [],
    "default": {},
}


@click.command(name="metrics")
@click.argument("name", required=False)
@click.option("--json", "is_json", is_flag=True, help="One JSON list, for programs.")
def metrics(name: str | None, is_json: bool) -> None:
    """List the metrics, or show one with its options.

    A function of your own is a metric too: name it module:function in a criteria file, or under [metrics] in
    evaldesk.toml to have it in the browser. Name one more than once by a label behind
    a slash, such as tool_used/search.

    \b
    evaldesk metrics
    evaldesk metrics tool_f1
    evaldesk metrics --json
    """
    from evaldesk.metrics import METRICS
    from evaldesk.settings import read_settings

    functions = read_settings(Path.cwd(), (), environment={}).functions
    names = [name] if name else [*METRICS, *(each for each in functions if each not in METRICS)]
    rows = [_described(each, functions) for each in names]
    if is_json:
        from evaldesk.wire import to_json

        click.echo(to_json(rows).decode())
    elif name:
        _show_one(rows[0])
    else:
        width = max(map(len, names))
        for row in rows:
            click.echo(f"{click.style(row['name'].ljust(width), bold=True)}  {row['summary']}")
            needs = row["needs"] + (" and a judge" if row["has_judge"] and row["needs"] else "")
            needs = needs or ("a judge" if row["has_judge"] else "")
            facts = [range_words(row), f"needs {needs}" if needs else ""]
            click.echo(click.style(" " * width + "  " + "; ".join(filter(None, facts)), dim=True))
        click.echo(f"{len(names)} metrics. `evaldesk metrics NAME` shows the options of one.")


def _described(name: str, functions: Mapping[str, str]) -> dict[str, Any]:
    """A metric of the table, or a function that `evaldesk.toml` names. Raises NotFoundError."""
    if name not in functions:
        return describe_metric(name)
    return {
        "name": name,
        "title": name,
        "summary": f"Your function {functions[name]}.",
        "low": None,
        "high": None,
        "is_higher_better": True,
        "default_threshold": 1.0,
        "needs": "",
        "has_judge": False,
        "required": [],
        "options": [],
    }


def describe_metric(name: str) -> dict[str, Any]:
    """A metric as plain values. Raises NotFoundError naming the nearest."""
    from evaldesk.metrics import metric_info, metric_options

    info = metric_info(name)
    return {
        "name": info.name,
        "title": info.title,
        "summary": info.summary,
        "low": info.low if math.isfinite(info.low) else None,
        "high": info.high if math.isfinite(info.high) else None,
        "is_higher_better": info.is_higher_better,
        "default_threshold": info.default_threshold,
        "needs": NEEDS.get(info.needs, info.needs),
        "has_judge": info.has_judge,
        "required": [*info.required],
        "options": [
            {
                "name": option.name,
                "kind": option.kind,
                "label": option.label,
                "explanation": option.explanation,
                "choices": [value for value, _ in option.choices],
                "default": option.default,
            }
            for option in metric_options(name)
        ]
        + ([JUDGE_OPTIONS] if info.has_judge else []),
    }


def range_words(row: dict[str, Any]) -> str:
    """`0 to 1, more is better`."""
    low, high = row["low"], row["high"]
    bounds = f"{low:g} to {high:g}" if high is not None and low is not None else "any number"
    if high is None and low is not None:
        bounds = f"from {low:g} up"
    return f"{bounds}, {'more' if row['is_higher_better'] else 'less'} is better"


def _show_one(row: dict[str, Any]) -> None:
    click.echo(f"{click.style(row['name'], bold=True)}: {row['title']}\n{row['summary']}")
    threshold = "none, it informs" if row["default_threshold"] is None else f"{row['default_threshold']:g}"
    facts = {"Range": range_words(row), "Threshold": threshold, "Needs": row["needs"] or "nothing of the case"}
    if row["has_judge"]:
        facts["Judge"] = "a model judges, and costs"
    for label, text in facts.items():
        click.echo(f"  {label + ':':11}{text}")
    if not row["options"]:
        click.echo("  It has no options.")
    for option in row["options"]:
        required = "  required" if option["name"] in row["required"] else ""
        click.echo(f"  {click.style(option['name'], bold=True)}{required}  {option['explanation']}")
        known = ", ".join(option["choices"])
        default = "" if option["default"] in (None, "", [], {}) else f"default {option['default']}"
        detail = "; ".join(filter(None, [f"one of: {known}" if known else "", default]))
        if detail:
            click.echo(click.style(f"    {detail}", dim=True))
