"""`evaldesk run list`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import get_args

import click

from evaldesk.cli.eval.result_json import run_item
from evaldesk.cli.runs.shared import json_option, stored_runs, workspace_option
from evaldesk.desk.runs.stored_runs import run_name
from evaldesk.model import Outcome, RunStatus
from evaldesk.model.stored import RunSummary
from evaldesk.wording.printable import printable
from evaldesk.wording.words import passed_words

COLUMNS = ("Run", "Name", "Status", "Conclusion", "Passed", "Errored", "Done", "Agent", "Eval set", "Submitted", "By")


@click.command(name="list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Most runs to list.")
@click.option("--all", "is_all", is_flag=True, help="List every run.")
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="Only runs with this status.")
@click.option("--model", help="Only runs of this model.")
@click.option("--dataset", "--evalset", "evalset_id", metavar="NAME", help="Only runs of this eval set or data set.")
@click.option("--rollout", "--agent", "agent_id", metavar="NAME", help="Only runs of this agent.")
@click.option(
    "--search",
    "text",
    default="",
    metavar="TEXT",
    help="Only runs with TEXT in their name, note, agent, eval set or model.",
)
@json_option
@workspace_option
def list_runs(
    limit: int,
    is_all: bool,
    status: RunStatus | None,
    model: str | None,
    evalset_id: str | None,
    agent_id: str | None,
    text: str,
    is_json: bool,
    workspace: str | None,
) -> None:
    """List runs, newest first.

    \b
    evaldesk run list
    evaldesk run list --status running --json
    evaldesk run list --model openai/gpt-5-mini --dataset sums --search nightly
    """
    wanted = {"agent_id": agent_id, "evalset_id": evalset_id, "model": model}
    with stored_runs(workspace) as stored:
        runs, n_all = stored.newest(status, None if is_all else limit, **wanted, text=text)
        listed_runs = [(run, stored.outcome(run)) for run in runs]
    if is_json:
        listed = {
            "items": [run_item(run, outcome) for run, outcome in listed_runs],
            "total_count": n_all,
            "has_more": len(runs) < n_all,
        }
        click.echo(json.dumps(listed, indent=2, ensure_ascii=False))
        return
    if not runs and (status or text or any(wanted.values())):
        click.echo("No matching runs. `evaldesk run list --all` lists every one.")
        return
    if not runs:
        click.echo("No runs yet. `evaldesk eval` and `evaldesk run submit` make some.")
        return
    show_table(COLUMNS, [_cells(run, outcome) for run, outcome in listed_runs])
    if len(runs) < n_all:
        click.echo(f"{len(runs)} of {n_all}; --all lists every one.")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their contents, two spaces apart."""
    clean = [[printable(cell).replace("\n", " ")[:60] for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(columns, *clean, strict=True)]
    for row, is_head in [(columns, True), *((row, False) for row in clean)]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        click.echo(click.style(line, bold=True) if is_head else line)


def _cells(run: RunSummary, outcome: Outcome | None) -> list[str]:
    passed = passed_words(run.counts.passed, run.counts.scored).removesuffix(" passed") if run.counts.scored else "–"
    done = f"{run.n_done:,} of {run.n_trials:,}"
    when = run.created_at.strftime("%Y-%m-%d %H:%M")
    name = "" if run_name(run) == str(run.id) else run_name(run)
    return [
        str(run.id),
        name,
        run.status,
        outcome or "–",
        passed,
        str(run.counts.errored or "–"),
        done,
        run.config.agent.id,
        run.config.evalset_id,
        when,
        run.started_by or "–",
    ]
