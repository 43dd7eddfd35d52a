"""`evaldesk run trials` and `evaldesk run trial`: the trials of a run, and one of them as text."""

from __future__ import annotations

import click

from evaldesk.cli.runs.shared import json_option, opened_desk, workspace_option
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show, show_json, style


@click.command()
@click.argument("name")
@click.option("--filter", "text", default="", metavar="FILTER", help="Words of the case, case:PART, verdict:failed.")
@click.option("--cursor", type=click.IntRange(0), default=0, metavar="N", help="Begin after N matching trials.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Most trials to list.")
@json_option
@workspace_option
def trials(name: str, text: str, cursor: int, limit: int, is_json: bool, workspace: str | None) -> None:
    """List the finished trials of the run NAME with their first divergences.

    Trials count from 1, as on their pages.

    \b
    evaldesk run trials 12
    evaldesk run trials 12 --filter "verdict:failed case:roll_16" --json
    """
    from evaldesk.pages.door.trials import trial_items

    with opened_desk(workspace) as desk:
        answer = trial_items(desk, name, text, cursor, limit)
    if is_json:
        show_json(answer, indent=2)
        return
    for item in answer["items"]:
        words = f": {item['first_divergence']}" if item["first_divergence"] else ""
        show(in_one_line(f"{item['case_id']}, trial {item['trial']} {item['verdict']}{words}"))
    if answer["next_cursor"] is not None:
        show(f"--cursor {answer['next_cursor']} lists more.")


@click.command()
@click.argument("name")
@click.argument("case_id", metavar="CASE")
@click.argument("number", metavar="TRIAL", type=click.IntRange(1))
@click.option("--part", type=click.IntRange(1), metavar="TURN", help="Only this turn, counted from 1.")
@click.option(
    "--detail",
    type=click.Choice(["line", "turns", "full"]),
    default="turns",
    show_default=True,
    help="A line a turn, expected beside actual, or every event.",
)
@click.option("--cursor", type=click.IntRange(0), default=0, metavar="N", help="Begin at this place of the text.")
@json_option
@workspace_option
def trial(
    name: str,
    case_id: str,
    number: int,
    part: int | None,
    detail: str,
    cursor: int,
    is_json: bool,
    workspace: str | None,
) -> None:
    """Print TRIAL of CASE in the run NAME as text: its verdict, its first divergence, then its turns.

    \b
    evaldesk run trial 12 roll_16 1
    evaldesk run trial 12 roll_16 1 --detail full --part 1
    """
    from evaldesk.pages.door.trials import trial_answer

    with opened_desk(workspace) as desk:
        answer = trial_answer(desk, name, case_id, number, part, detail, cursor)
    if is_json:
        show_json(answer, indent=2)
        return
    title = f"run {answer['run']}, {answer['case_id']}, trial {answer['trial']} {answer['verdict']}"
    show(style(in_one_line(title), bold=True))
    if answer["first_divergence"]:
        show(f"first divergence: {in_one_line(answer['first_divergence'])}")
    show(answer["text"])
    if answer["next_cursor"] is not None:
        show(f"--cursor {answer['next_cursor']} shows more.")


@click.command()
@click.argument("before")
@click.argument("after")
@json_option
@workspace_option
def changes(before: str, after: str, is_json: bool, workspace: str | None) -> None:
    """Show the changes of eval set, criteria and gates between the runs BEFORE and AFTER, with their authors.

    \b
    evaldesk run changes 12 14
    evaldesk run changes 12 14 --json
    """
    from evaldesk.pages.door.runs import changes_answer

    with opened_desk(workspace) as desk:
        answer = changes_answer(desk, before, after)
    if is_json:
        show_json(answer, indent=2)
        return
    for each in answer["items"]:
        show(in_one_line(f"{each['kind']} {each['name']}: {each['words']} (by: {each['who']})"))
    if not answer["items"]:
        show(f"Nothing changed between run {answer['before']} and run {answer['after']}.")
