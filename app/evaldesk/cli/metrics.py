"""`evaldesk metrics`: every metric there is, with its range, direction, needs and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evaldesk.wording.writer import show, show_json, style


@click.command(name="metrics")
@click.argument("name", required=False)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
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
    from evaldesk.pages.metrics import metric_rows, range_words
    from evaldesk.settings import read_settings

    functions = read_settings(Path.cwd(), (), environment={}).functions
    rows = metric_rows(functions, name)
    if is_json:
        show_json(rows, separators=(",", ":"))
    elif name:
        _show_one(rows[0])
    else:
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            show(f"{style(row['name'].ljust(width), bold=True)}  {row['summary']}")
            needs = row["needs"] + (" and a judge" if row["has_judge"] and row["needs"] else "")
            needs = needs or ("a judge" if row["has_judge"] else "")
            facts = [range_words(row), f"needs {needs}" if needs else ""]
            show(style(" " * width + "  " + "; ".join(filter(None, facts)), dim=True))
        show(f"{len(rows)} metrics. `evaldesk metrics NAME` shows the options of one.")


def _show_one(row: dict[str, Any]) -> None:
    from evaldesk.pages.metrics import range_words

    show(f"{style(row['name'], bold=True)}: {row['title']}\n{row['summary']}")
    threshold = "none" if row["default_threshold"] is None else f"{row['default_threshold']:g}"
    facts = {"Range": range_words(row), "Threshold": threshold, "Needs": row["needs"] or "nothing of the case"}
    if row["has_judge"]:
        facts["Judge"] = "a model; its calls have a cost"
    for label, text in facts.items():
        show(f"  {label + ':':11}{text}")
    if not row["options"]:
        show("  It has no options.")
    for option in row["options"]:
        required_mark = "  required" if option["name"] in row["required"] else ""
        show(f"  {style(option['name'], bold=True)}{required_mark}  {option['explanation']}")
        choices = ", ".join(option["choices"])
        default = "" if option["default"] in (None, "", [], {}) else f"default {option['default']}"
        detail = "; ".join(filter(None, [f"one of: {choices}" if choices else "", default]))
        if detail:
            show(style(f"    {detail}", dim=True))
