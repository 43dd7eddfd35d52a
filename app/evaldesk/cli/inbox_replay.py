"""`evaldesk inbox replay`: conversations of the inbox, played again by an agent of the workspace."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from evaldesk.cli.runs.shared import ask_trust, json_option, n_workers, trust_option, workspace_option
from evaldesk.errors import UsageError
from evaldesk.model.conclusion import counted
from evaldesk.wording.writer import confirm, show, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaldesk.desk.desk import Desk
    from evaldesk.desk.inbox.replay import ReplayPlan, StartedReplay
    from evaldesk.model.stored import RunSummary

UNFINISHED = 3


@dataclass(frozen=True, slots=True)
class _Request:
    """The conversations and the way to play them, as the command names them."""

    ids: tuple[int, ...]
    line: str
    draw_id: int | None
    agent: str | None
    n: int
    runs_tools: bool


@click.command()
@click.argument("ids", metavar="[ID]...", type=int, nargs=-1)
@click.option("--where", "line", default="", metavar="FILTER", help="The newest 100 conversations that meet this.")
@click.option("--draw", "draw_id", type=int, metavar="N", help="The conversations of draw N.")
@click.option("--agent", metavar="AGENT", help="An agent of the workspace; default: the only one.")
@click.option("--n", default=3, show_default=True, type=click.IntRange(1, 1000), metavar="N", help="Trials of each.")
@click.option("--run-tools", "runs_tools", is_flag=True, help="Run tools for real; default: recorded results answer.")
@click.option("--dry-run", is_flag=True, help="Show the plan and play nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@trust_option
@workspace_option
def replay(
    ids: tuple[int, ...],
    line: str,
    draw_id: int | None,
    agent: str | None,
    n: int,
    runs_tools: bool,
    dry_run: bool,
    yes: bool,
    is_json: bool,
    is_trusted: bool,
    workspace: str | None,
) -> None:
    """Play conversations again with an agent of this folder, as cases of no file; nothing of an eval set changes.

    Two runs come of it: the conversations as they were seen, which are no trials, and the run that plays. Conversations
    with a bad outcome expect nothing. The exit code is 0 once it was played.

    \b
    evaldesk inbox replay 12 13 --agent shop
    evaldesk inbox replay --where 'feedback<0 since:7d' --n 5 --yes
    evaldesk inbox replay --draw 2 --dry-run
    """
    from evaldesk.cli.files.exchange_files import open_home

    settings = open_home(workspace)
    trust = ask_trust(settings, is_trusted=is_trusted)
    request = _Request(ids, line, draw_id, agent, n, runs_tools)
    ready = replace(settings, n_workers=n_workers(min(n, 8)))
    sys.exit(asyncio.run(_replay(ready, trust, request, is_dry=dry_run, yes=yes, is_json=is_json)))


async def _replay(settings: Any, trust: Any, request: _Request, *, is_dry: bool, yes: bool, is_json: bool) -> int:
    from evaldesk.desk.desk import Desk

    desk = Desk.open(settings, trust)
    try:
        ids = await asyncio.to_thread(_ids, desk, request)
        agent_id = request.agent or _only_agent(desk)
        plan = await desk.inbox_replays.plan(ids, agent_id, request.n, runs_tools=request.runs_tools)
        if is_dry or not is_json:
            _show_plan(plan, is_json=is_json)
        if is_dry:
            return 0
        if not yes:
            if is_json or not sys.stdin.isatty():
                raise UsageError("no terminal for the question; add --yes to play, or --dry-run to see the plan")
            confirm("Play them?", abort=True, err=True)
        started = await desk.inbox_replays.start(plan)
        desk.poll_requests()
        async for _ in desk.runs.watch(started.run_id):
            pass
        summary = await desk.runs.summary(started.run_id)
        _show_result(plan, started, summary, is_json=is_json)
        return 0 if summary.status == "finished" else UNFINISHED
    finally:
        await desk.close()


def _ids(desk: Desk, request: _Request) -> Sequence[int]:
    """The chosen conversations. Raises UsageError, NotFoundError."""
    from evaldesk.desk.inbox.inbox import MAX_CHOSEN

    if bool(request.ids) + bool(request.line) + (request.draw_id is not None) != 1:
        raise UsageError("name conversations by their ids, by --where or by --draw", field="conversation")
    if request.draw_id is not None:
        return [item.conversation_id for item in desk.draws.get(request.draw_id).items]
    if request.line:
        rows = desk.inbox.list(request.line, limit=MAX_CHOSEN).items
        if not rows:
            raise UsageError("no conversation meets the filter", field="where")
        return [each.id for each in rows]
    return request.ids


def _only_agent(desk: Desk) -> str:
    agents = desk.agents.list()
    if len(agents) != 1:
        names = ", ".join(each.id for each in agents[:5])
        raise UsageError(f"name the agent by --agent: {names}" if agents else "there is no agent here", field="agent")
    return agents[0].id


def _plan_object(plan: ReplayPlan) -> dict[str, Any]:
    return {
        "conversations": [*plan.ids],
        "left_out": [*plan.left_out],
        "agent": plan.run.config.agent.id,
        "n": plan.run.config.n,
        "cases": [case.id for case in plan.run.cases],
        "real_tools": [*plan.real_tools],
        "doubled_tools": [*plan.doubled_tools],
    }


def _show_plan(plan: ReplayPlan, *, is_json: bool) -> None:
    from evaldesk.wording.inbox import replay_sentences
    from evaldesk.wording.printable import in_one_line

    if is_json:
        show_json(_plan_object(plan))
        return
    config = plan.run.config
    sentences = replay_sentences(
        len(plan.ids), config.n, config.agent.id, plan.real_tools, plan.doubled_tools, len(plan.left_out)
    )
    for sentence in sentences:
        show(in_one_line(sentence), err=True)


def _show_result(plan: ReplayPlan, started: StartedReplay, summary: RunSummary, *, is_json: bool) -> None:
    from evaldesk.wording.inbox import SEEN_ONCE
    from evaldesk.wording.printable import in_one_line
    from evaldesk.wording.words import asides_words, passed_words

    counts = summary.counts
    if is_json:
        result = {"passed": counts.passed, "scored": counts.scored, "status": summary.status}
        show_json(_plan_object(plan) | {"seen_run": started.seen_run_id, "run": summary.id, "result": result})
        return
    asides = asides_words(counts)
    words = passed_words(counts.passed, counts.scored) + (f"; {asides}" if asides else "")
    show(in_one_line(f"Run {started.seen_run_id}: {counted(len(plan.ids), 'conversation')}. {SEEN_ONCE}"))
    show(in_one_line(f"Run {summary.id}: {words}."))
    show(f"Side by side: evaldesk compare {started.seen_run_id} {summary.id}", err=True)
