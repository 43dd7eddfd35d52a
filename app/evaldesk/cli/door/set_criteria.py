"""`evaldesk evalset criteria`: the criteria of an eval set, and those of them that judge a case."""

from __future__ import annotations

import click

from evaldesk.cli.runs.shared import opened_desk, workspace_option
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show


@click.command()
@click.argument("name", metavar="SET")
@click.argument("criteria", nargs=-1, metavar="[METRIC=T]...")
@click.option("--case", "case_ids", multiple=True, metavar="CASE", help="The criteria of this case; may be repeated.")
@click.option("--clear", "is_clear", is_flag=True, help="Take the criteria away.")
@workspace_option
def criteria(
    name: str, criteria: tuple[str, ...], case_ids: tuple[str, ...], is_clear: bool, workspace: str | None
) -> None:
    """Print the criteria of SET and its cases, or set them: one step, one version.

    Criteria of a set judge each run that names none. A case names some of them, with a threshold of its own or without.

    \b
    evaldesk evalset criteria calc
    evaldesk evalset criteria calc response_match_score=0.8 final_state_match=1
    evaldesk evalset criteria calc --case roll_16 final_state_match
    """
    from evaldesk.desk.criteria.criteria import text_of_criteria
    from evaldesk.errors import UsageError
    from evaldesk.model.evalset import CRITERIA, own_bars
    from evaldesk.pages.door.evalsets import find_file

    if criteria and is_clear:
        raise UsageError("name criteria or give --clear, not both")
    with opened_desk(workspace) as desk:
        file = find_file(desk, name)
        if criteria or is_clear:
            text = "\n".join(criteria)
            if case_ids:
                desk.evalsets.steps.narrow(file.id, case_ids, text)
            else:
                desk.evalsets.steps.set_criteria(file.id, text)
        evalset, _, _ = desk.evalsets.read(file.id)
    set_lines = text_of_criteria(evalset.extra.get(CRITERIA)).splitlines()
    show(in_one_line(f"{file.name}: {'; '.join(set_lines) if set_lines else 'no criteria of its own'}"))
    for case in evalset.cases:
        bars = own_bars(case) if CRITERIA in case.extra else {}
        if bars and (not case_ids or case.id in case_ids):
            words = ", ".join(metric if bar is None else f"{metric} = {bar:g}" for metric, bar in bars.items())
            show(in_one_line(f"{case.id}: {words}"))
