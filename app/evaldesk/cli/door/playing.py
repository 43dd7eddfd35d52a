"""`evaldesk run start` and `evaldesk run wait`: runs in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from evaldesk.cli.runs.shared import FiniteRange, json_option, opened_desk, workspace_option
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show, show_json


@click.command()
@click.argument("agent")
@click.argument("name", metavar="SET")
@click.option("--case", "cases", multiple=True, metavar="CASE", help="Only this case; may be repeated.")
@click.option("--n", "n", type=click.IntRange(1, 1_000), default=1, show_default=True, help="Trials of each case.")
@click.option("--budget", metavar="5usd/day", help="Refuse the run where coding agents spent this in a day.")
@click.option("--by", "client", default="", metavar="NAME", help="The name of the coding agent that starts it.")
@json_option
@workspace_option
def start(
    agent: str,
    name: str,
    cases: tuple[str, ...],
    n: int,
    budget: str | None,
    client: str,
    is_json: bool,
    workspace: str | None,
) -> None:
    """Start a run of AGENT and SET, by the criteria of SET, in the background.

    AGENT is a name of `evaldesk agents`. With --budget or --by it is the run of a coding agent, and counts against the
    budget of the day.

    \b
    evaldesk run start my_agent calc --n 5
    evaldesk run start my_agent calc --case roll_16 --json
    evaldesk run start my_agent calc --budget 5usd/day --by "Claude Code"
    """
    from evaldesk.model.client_budget import Budget
    from evaldesk.model.proposals import UNKNOWN_CLIENT
    from evaldesk.pages.door.playing import start_answer
    from evaldesk.pages.door.tools import check_open

    client = client or (UNKNOWN_CLIENT if budget else "")
    most = Budget.read(budget) if budget else None
    with opened_desk(workspace) as desk:
        if client:
            check_open(desk, "run start")
        answer = asyncio.run(start_answer(desk, agent, name, cases, n, client=client, budget=most))
    _show(answer, is_json=is_json)


@click.command()
@click.argument("name")
@click.option("--seconds", type=FiniteRange(0, 50), default=30, show_default=True, help="The longest time to wait.")
@json_option
@workspace_option
def wait(name: str, seconds: float, is_json: bool, workspace: str | None) -> None:
    """Wait until the run NAME ends, and show it as it is then.

    \b
    evaldesk run wait 12
    evaldesk run wait 12 --seconds 50 --json
    """
    from evaldesk.pages.door.playing import wait_answer

    with opened_desk(workspace) as desk:
        answer = asyncio.run(wait_answer(desk, name, seconds))
    _show(answer, is_json=is_json)


def _show(answer: Mapping[str, Any], *, is_json: bool) -> None:
    if is_json:
        show_json(answer, indent=2)
        return
    progress = answer["summary"]["progress"]
    show(in_one_line(f"run {answer['id']}: {answer['status']}, {progress['completed']} of {progress['total']} trials"))
