"""`evaldesk inbox draw`: conversations to read, drawn by strata, and the share of failures in these strata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evaldesk.cli.runs.shared import json_option, opened_desk, workspace_option
from evaldesk.errors import UsageError
from evaldesk.model.conclusion import counted
from evaldesk.wording.writer import show, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaldesk.desk.desk import Desk
    from evaldesk.desk.inbox.drawing import DrawnShare
    from evaldesk.model.inbox import Draw

AT_ONCE = 100
"""Conversations that become cases in one step."""


@click.command()
@click.argument("more_strata", nargs=-1, metavar="[STRATUM]...")
@click.option("--strata", multiple=True, metavar="STRATUM", help="A stratum; others may follow it.")
@click.option("--where", "line", default="", metavar="FILTER", help="Draw only among these conversations.")
@click.option("--seed", type=int, metavar="N", help="The same seed draws the same; default: the number of the draw.")
@click.option("--with-twins", is_flag=True, help="Draw any conversations, not one of each group of twins in a stratum.")
@click.option("--to", "evalset", metavar="SET", help="Add the drawn conversations to an eval set as cases.")
@json_option
@workspace_option
def draw(
    more_strata: tuple[str, ...],
    strata: tuple[str, ...],
    line: str,
    seed: int | None,
    with_twins: bool,
    evalset: str | None,
    is_json: bool,
    workspace: str | None,
) -> None:
    """Draw conversations to read by strata; without strata, show the newest draw and the share of failures.

    A stratum is a filter, a colon, and a number or all; rest has all the others. A conversation belongs to the first
    stratum that has it. The labels of the drawn ones are weighted by the sizes of the strata.

    \b
    evaldesk inbox draw --strata 'error:all' 'feedback<0:30' 'rest:100' --seed 7
    evaldesk inbox draw
    """
    from evaldesk.desk.inbox.drawing import share_of
    from evaldesk.wording.printable import in_one_line

    all_strata = (*strata, *more_strata)
    with opened_desk(workspace) as desk:
        if all_strata:
            newest = desk.draws.draw(all_strata, line=line, seed=seed, is_one_per_twin_group=not with_twins)
        else:
            if line or evalset or seed is not None or with_twins:
                raise UsageError("name strata to draw, such as error:all rest:100", field="strata")
            known_draw = desk.draws.newest()
            if known_draw is None:
                raise UsageError("there is no draw yet; name strata, such as error:all rest:100", field="strata")
            newest = known_draw
        case_ids = _add_cases(desk, [item.conversation_id for item in newest.items], evalset) if evalset else []
    share = share_of(newest)
    if is_json:
        show_json(_as_json(newest, share) | ({"evalset": evalset, "added": case_ids} if evalset else {}))
        return
    for text in _lines(newest, share):
        show(text)
    if evalset:
        show(in_one_line(f"{counted(len(case_ids), 'case')} added to {evalset}."))


def _add_cases(desk: Desk, ids: Sequence[int], evalset: str) -> list[str]:
    """Add conversations without a twin in the set as cases; gives the ids of the cases."""
    from evaldesk.desk.inbox.inbox import CaseChoice

    case_ids: list[str] = []
    for start in range(0, len(ids), AT_ONCE):
        evalset_id = next((each.id for each in desk.evalsets.list() if evalset in (each.name, str(each.path))), "")
        proposals = desk.inbox.proposals(ids[start : start + AT_ONCE], evalset_id)
        choices = [CaseChoice(each.conversation.id) for each in proposals if not each.twins]
        if choices:
            case_ids += desk.inbox.add_cases(choices, evalset_id, evalset).ids
    return case_ids


def _lines(draw: Draw, share: DrawnShare) -> list[str]:
    from evaldesk.wording.printable import in_one_line
    from evaldesk.wording.words import rate_words

    lines = [f"Draw {draw.id}, seed {draw.seed}: {counted(len(draw.items), 'conversation')} to read."]
    for stratum in share.strata:
        read = f", {stratum.n_read:,} read, {stratum.n_failed:,} failed" if stratum.n_read else ""
        lines.append(in_one_line(f"  {stratum.name}: {stratum.n_drawn:,} of {stratum.size:,} drawn{read}"))
    unread_ids = [str(item.conversation_id) for item in draw.items if not item.verdict]
    if unread_ids:
        more = " …" if unread_ids[10:] else ""
        lines.append(f"Next: evaldesk inbox show {unread_ids[0]}; unread: {' '.join(unread_ids[:10])}{more}")
    if share.share is not None:
        words = rate_words(share.share.share, share.share.interval)
        among = counted(share.size, "conversation")
        lines.append(f"Share of failures among {among}, weighted by the sizes of strata and groups of twins: {words}.")
    elif share.n_read:
        lines.append("The share of failures is known once each stratum has a label: evaldesk inbox label ID passed")
    return lines


def _as_json(draw: Draw, share: DrawnShare) -> dict[str, Any]:
    strata = [
        {"name": each.name, "size": each.size, "drawn": each.n_drawn, "read": each.n_read, "failed": each.n_failed}
        for each in share.strata
    ]
    failure_share = share.share
    interval = [failure_share.interval.low, failure_share.interval.high] if failure_share else None
    items = [{"id": item.conversation_id, "stratum": item.stratum, "verdict": item.verdict} for item in draw.items]
    return {
        "draw": draw.id,
        "seed": draw.seed,
        "filter": draw.filter,
        "strata": strata,
        "failure_share": failure_share.share if failure_share else None,
        "interval": interval,
        "conversations": items,
    }
