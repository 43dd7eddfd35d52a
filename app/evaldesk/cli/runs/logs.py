"""`evaldesk run logs`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

from evaldesk.cli.runs.shared import json_option, stored_runs, workspace_option
from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.wording.printable import in_one_line, printable


@click.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Most trials to show.")
@click.option("--errors", "is_errors", is_flag=True, help="Only trials that errored.")
@json_option
@workspace_option
def logs(name: str, limit: int, is_errors: bool, is_json: bool, workspace: str | None) -> None:
    """Show the output of the agent and the errors in the trials of the run NAME.

    \b
    evaldesk run logs 12
    evaldesk run logs 12 --errors --limit 5
    """
    with stored_runs(workspace) as runs:
        cases = runs.cases(runs.named(name).id)
        for number, entry in enumerate(_entries(cases, is_errors=is_errors)):
            if number == limit:
                click.echo(f"More than {limit} trials; --limit shows more.", err=True)
                break
            if is_json:
                click.echo(json.dumps(entry, ensure_ascii=False))
                continue
            click.echo(
                click.style(f"{in_one_line(entry['case_id'])}, trial {entry['trial']} {entry['verdict']}", bold=True)
            )
            for text in filter(None, (entry["log"], entry["error"], entry["trace"])):
                for line in printable(text).splitlines():
                    click.echo(f"    {line}")


def _entries(cases: Iterable[CaseResult], *, is_errors: bool) -> Iterator[dict[str, Any]]:
    for case in cases:
        for trial in case:
            if not (trial.error or (trial.logs and not is_errors)):
                continue
            yield {
                "case_id": case.id,
                "trial": trial.trial_index + 1,
                "verdict": trial.verdict,
                "log": trial.logs,
                "error": f"{trial.error.kind}: {trial.error.message}" if trial.error else "",
                "trace": trial.error.trace if trial.error else "",
            }
