"""`evaldesk status`, `evaldesk search` and `evaldesk docs`: the workspace, its texts and the documentation."""

from __future__ import annotations

import click

from evaldesk.cli.runs.shared import json_option, opened_desk, workspace_option
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show, show_json, style


@click.command()
@json_option
@workspace_option
def status(is_json: bool, workspace: str | None) -> None:
    """Show runs that are running, the newest runs, the worst cases and the next steps of a workspace.

    \b
    evaldesk status
    evaldesk status --json
    """
    from evaldesk.pages.door.runs import status_answer

    with opened_desk(workspace) as desk:
        answer = status_answer(desk)
    if is_json:
        show_json(answer, indent=2)
        return
    show(f"{answer['n_runs']:,} runs, {answer['n_evalsets']:,} eval sets in {in_one_line(answer['workspace'])}")
    for run in answer["running"]:
        progress = run["summary"]["progress"]
        show(in_one_line(f"running: run {run['id']}, {progress['completed']} of {progress['total']} trials"))
    for run in answer["newest_runs"]:
        show(in_one_line(f"run {run['id']} {run['name']}: {run['outcome'] or run['status']}, agent {run['agent']}"))
    for step in answer["next"]:
        show(in_one_line(f"next: {step['title']}. {step['text']}"))


@click.command()
@click.argument("text")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Most places to show.")
@json_option
@workspace_option
def search(text: str, limit: int, is_json: bool, workspace: str | None) -> None:
    """Search TEXT in the messages of trials and cases, and in the notes on them.

    \b
    evaldesk search "wrong date"
    evaldesk search refund --limit 5 --json
    """
    from evaldesk.pages.door.trials import search_answer

    with opened_desk(workspace) as desk:
        answer = search_answer(desk, text, limit)
    if is_json:
        show_json(answer, indent=2)
        return
    for hit in (*answer["items"], *answer["notes"]):
        trial = "" if hit["trial"] is None else f", trial {hit['trial']}"
        show(style(in_one_line(f"run {hit['run']}, {hit['case_id']}{trial}"), bold=True))
        show(f"  {in_one_line(hit['text'])}")
    if not (answer["items"] or answer["notes"]):
        show("Nothing matches." + (f" {answer['behind']}" if answer["behind"] else ""))


@click.command()
@click.argument("topic", required=False, default="")
@json_option
def docs(topic: str, is_json: bool) -> None:
    """Print a page of the documentation, or its section TOPIC#SECTION; without a TOPIC the list of topics.

    \b
    evaldesk docs
    evaldesk docs metrics
    evaldesk docs formats#adk --json
    """
    from evaldesk.pages.door.docs import docs_answer

    answer = docs_answer(topic)
    if is_json:
        show_json(answer, indent=2)
    elif "text" in answer:
        show(answer["text"].rstrip())
    else:
        for each in answer["topics"]:
            show(f"{each['topic']:<18} {each['title']}")
