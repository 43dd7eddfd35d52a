"""`evaldesk blame`: the decisive turn of a failed trial, and of all failed trials of a run."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import ask_trust, json_option, n_workers, opened_desk, trust_option, workspace_option
from evaldesk.desk.blame.planning import DEFAULT_BUDGET, BlameRequest
from evaldesk.desk.desk import Desk
from evaldesk.desk.trust import Trust
from evaldesk.model.blame import Blame
from evaldesk.model.stored import TrialKey
from evaldesk.settings import Settings
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show, show_json

NOT_LOCATED = 3
"""The exit code where some search has no answer but "not located", or was results before it."""


@click.command()
@click.argument("name", metavar="RUN:CASE:TRIAL")
@click.option("--budget", type=int, default=DEFAULT_BUDGET, show_default=True, help="The most forks, of all trials.")
@click.option("--max-cost", type=float, metavar="DOLLARS", help="The most to spend, of all trials.")
@click.option(
    "--real-tools/--doubled-tools", "runs_tools", default=None, help="Run tools that have no double, or none."
)
@click.option("--plan", "is_plan", is_flag=True, help="Show the plan, and play nothing.")
@click.option("--search", "blame_id", type=int, hidden=True)
@click.option("--verify", "n", type=click.IntRange(1, 100), metavar="N", help="Verify a fix by N plays of each trial.")
@click.option("--agent", default="", metavar="NAME", help="With --verify: the agent that has the fix.")
@json_option
@trust_option
@workspace_option
def blame(
    name: str,
    budget: int,
    max_cost: float | None,
    runs_tools: bool | None,
    is_plan: bool,
    blame_id: int | None,
    n: int | None,
    agent: str,
    is_json: bool,
    is_trusted: bool,
    workspace: str | None,
) -> None:
    """Find the decisive turn of a failed trial by playing on from before its turns.

    Without TRIAL it is the first failed trial of CASE; RUN alone stands for all its failed trials, those of the most
    frequent signature first. A search that was interrupted goes on. Exit code 3: some turn was not located.

    With --verify the trials that have a decisive turn are played on from there, and whole, by the agent as it is now.

    \b
    evaldesk blame 61:overnight_train:17
    evaldesk blame 61 --budget 500 --max-cost 5 --json
    evaldesk blame 61 --verify 5
    """
    from evaldesk.desk.blame.names import find_trial

    request = BlameRequest(budget, max_cost, runs_tools)
    request.check()
    with opened_desk(workspace) as desk:
        run_id, key = find_trial(desk, name)
        concurrency = desk.stored_runs.summary(run_id).config.concurrency
    settings = replace(open_home(workspace), n_workers=n_workers(concurrency))
    trust = None if is_plan else ask_trust(settings, is_trusted=is_trusted, needs_runs_only=True)
    if n is not None:
        asyncio.run(_verify(settings, trust, run_id, key, n, agent, is_plan=is_plan, is_json=is_json))
        return
    if is_plan:
        sys.exit(asyncio.run(_plan(settings, trust, run_id, key, request, is_json=is_json)))
    sys.exit(asyncio.run(_search(settings, trust, run_id, key, request, blame_id, is_json=is_json)))


async def _plan(
    settings: Settings, trust: Trust | None, run_id: int, key: TrialKey | None, request: BlameRequest, *, is_json: bool
) -> int:
    from evaldesk.pages.blame import plan_lines, plan_object

    desk = Desk.open(settings, trust)
    try:
        batch_plan = await (desk.blames.plan(run_id, key, request) if key else desk.blames.plan_run(run_id, request))
        if is_json:
            show_json(plan_object(batch_plan), indent=2)
        for line in () if is_json else plan_lines(batch_plan):
            show(in_one_line(line))
        return 0
    finally:
        await desk.close()


async def _search(
    settings: Settings,
    trust: Trust | None,
    run_id: int,
    key: TrialKey | None,
    request: BlameRequest,
    blame_id: int | None,
    *,
    is_json: bool,
) -> int:
    from evaldesk.pages.blame import blame_lines, blame_object, plan_lines

    desk = Desk.open(settings, trust)
    desk.poll_requests()
    try:
        ids = await _unfinished(desk, run_id, key, blame_id)
        if not ids:
            batch_plan = await (
                desk.blames.plan(run_id, key, request) if key else desk.blames.plan_run(run_id, request)
            )
            for line in plan_lines(batch_plan):
                show(in_one_line(line), err=True)
            ids = await desk.blames.start(batch_plan)
        results: list[Blame] = []
        for each_id in ids:
            async for each in desk.blames.play_out(each_id):
                blame = each
            results.append(blame)
            if not is_json:
                for line in await asyncio.to_thread(blame_lines, desk, blame):
                    show(in_one_line(line) if not line.startswith(" ") else line)
        if is_json:
            objects = [await asyncio.to_thread(blame_object, desk, each) for each in results]
            show_json(objects[0] if key else objects, indent=2)
        answers = [each.answer.finding if each.answer and each.status == "finished" else "" for each in results]
        return NOT_LOCATED if set(answers) & {"", "not located"} else 0
    finally:
        await desk.close()


async def _verify(
    settings: Settings,
    trust: Trust | None,
    run_id: int,
    key: TrialKey | None,
    n: int,
    agent: str,
    *,
    is_plan: bool,
    is_json: bool,
) -> None:
    from evaldesk.pages.blame import fix_plan_lines, fix_plan_object, verification_object

    desk = Desk.open(settings, trust)
    desk.poll_requests()
    try:
        plan = await desk.blames.plan_fix(run_id, key)
        if is_plan and is_json:
            show_json(fix_plan_object(plan, n), indent=2)
        for line in () if is_plan and is_json else fix_plan_lines(plan, n):
            show(in_one_line(line), err=not is_plan)
        if is_plan:
            return
        if agent:
            await desk.agents.start()
        answer = verification_object(await desk.blames.verify(run_id, key, n, agent))
    finally:
        await desk.close()
    if is_json:
        show_json(answer, indent=2)
    else:
        show(in_one_line(answer["sentence"]))


async def _unfinished(desk: Desk, run_id: int, key: TrialKey | None, blame_id: int | None) -> list[int]:
    """The ids of the searches that are to go on; this process plays them unless another one does."""
    if blame_id is not None:
        await desk.blames.resume((await desk.blames.get(blame_id)).batch_id)
        return [blame_id]
    if key:
        blames = await desk.blames.of_trial(run_id, key)
    else:
        blames = await desk.blames.of_run(run_id)
    live = [each for each in blames if each.is_live]
    if not live:
        return []
    await desk.blames.resume(live[-1].batch_id)
    return [each.id for each in live if key or each.batch_id == live[-1].batch_id]
