"""`evaldesk fork RUN:CASE:TRIAL@TURN`: a trial played on from one of its turns, changed or not."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from evaldesk.cli.runs.shared import ask_trust, json_option, n_workers, trial_place, trust_option, workspace_option
from evaldesk.errors import UsageError
from evaldesk.wording.writer import confirm, show, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaldesk.desk.desk import Desk
    from evaldesk.desk.forks.plan import ForkPlan
    from evaldesk.model.fork import Edit, Fork
    from evaldesk.model.stored import RunSummary

FORM = "RUN:CASE[:TRIAL]@TURN[.CALL]"


@click.command()
@click.argument("place", metavar=FORM)
@click.option("--n", default=10, show_default=True, metavar="N", type=int, help="Trials of the fork.")
@click.option("--message", metavar="TEXT", help="Another message in the turn.")
@click.option("--drop-turn", is_flag=True, help="Leave the turn out.")
@click.option("--insert-turn", metavar="TEXT", help="A further turn before it.")
@click.option("--state", metavar="JSON", help="A merge patch of the session state; null removes a key.")
@click.option("--tool-result", multiple=True, metavar="N=JSON", help="The result of tool call N of the turn before.")
@click.option("--tool-error", multiple=True, metavar="N=TEXT", help="An error as its result.")
@click.option("--assistant", metavar="TEXT", help="Another answer of the turn before.")
@click.option("--instruction", metavar="TEXT", help="Another instruction of the agent.")
@click.option("--model", metavar="MODEL", help="Another model.")
@click.option("--model-options", metavar="JSON", help='Options of its calls, such as {"temperature": 0}.')
@click.option("--double", multiple=True, metavar="TOOL=JSON", help="Answer a tool by a double; JSON lists its answers.")
@click.option("--agent", metavar="AGENT", help="Another agent of the workspace.")
@click.option("--say", metavar="TEXT", help="Play this one message in place of the rest of the case.")
@click.option("--run-tools/--double-tools", default=None, help="Run tools for real; default: not for imported trials.")
@click.option("--keep", metavar="SET", help="Play nothing: add the fork to SET as a case with pinned turns.")
@click.option("--case", "case_id", metavar="NAME", help="The name of that case.")
@click.option("--dry-run", is_flag=True, help="Show the plan and play nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@trust_option
@workspace_option
def fork(place: str, n: int, yes: bool, is_json: bool, is_trusted: bool, workspace: str | None, **values: Any) -> None:
    """Play a trial on from before TURN, changed or not; the turns before it are not played again.

    With CALL it is before that model call of the turn: the ones before it are answered from the recording of the trial.
    Without TRIAL it is the first trial that failed. Cost and tools are shown first, and a person is asked. A fork is a
    run of its own: the counts of RUN stay as they are. The exit code is 0 once it was played.

    With --keep it becomes a case of an eval set, which is created if there is none: the turns before the point are
    pinned, so no trial plays or judges them. RUN alone is a fork that was played.

    \b
    evaldesk fork 12:refund:1@3
    evaldesk fork 12:refund:1@3.2 --n 5
    evaldesk fork 12:refund@3 --message "Use the other card" --n 20
    evaldesk fork 12:refund@3 --state '{"card": null}' --yes --json
    evaldesk fork 12:refund@3 --tool-result 1='{"price": 12}' --dry-run
    evaldesk fork 14 --keep trips
    """
    from evaldesk.cli.files.exchange_files import open_home

    settings = open_home(workspace)
    trust = ask_trust(settings, is_trusted=is_trusted)
    sys.exit(
        asyncio.run(_fork(replace(settings, n_workers=n_workers(min(n, 8))), trust, place, n, yes, is_json, values))
    )


async def _fork(settings: Any, trust: Any, place: str, n: int, yes: bool, is_json: bool, values: dict[str, Any]) -> int:
    from evaldesk.desk.desk import Desk

    desk = Desk.open(settings, trust)
    try:
        if values["keep"] is not None:
            return await _keep(desk, place, n, is_json, values)
        if values["case_id"] is not None:
            raise UsageError("--case names the case of --keep; add --keep SET", field="case")
        request = await asyncio.to_thread(_request, desk, place, n, values)
        plan = await desk.forks.plan(request)
        if values["dry_run"]:
            _show_plan(plan, is_json=is_json)
            return 0
        if not is_json:
            _show_plan(plan, is_json=False)
        if not yes:
            _ask(is_json=is_json)
        run_id = await desk.runs.start(plan.run)
        desk.poll_requests()
        async for _ in desk.runs.watch(run_id):
            pass
        summary = await desk.runs.summary(run_id)
        _show_result(plan, summary, is_json=is_json)
        return 0 if summary.status == "finished" else 3
    finally:
        await desk.close()


async def _keep(desk: Desk, place: str, n: int, is_json: bool, values: dict[str, Any]) -> int:
    """Add a fork to a set as a case. Raises UsageError, NotFoundError, ConflictError."""
    from evaldesk.desk.forks.keeping import add_case, case_of_fork, case_of_run, kept_words
    from evaldesk.pages.forks import kept_object
    from evaldesk.wording.printable import in_one_line

    if "@" in place:
        source = await case_of_fork(desk, await asyncio.to_thread(_request, desk, place, n, values))
    elif ":" in place:
        raise click.BadParameter(f"name a fork by its run, as in 14, or write {FORM}", param_hint=FORM)
    elif edits := _edits(values):
        raise UsageError(f"run {place} was played with its own edits; leave {edits[0].kind} out", field=edits[0].kind)
    else:
        source = await case_of_run(desk, desk.stored_runs.find_by_name(place).id)
    name = values["keep"]
    evalset_id = next((each.id for each in desk.evalsets.list() if name in (each.name, str(each.path))), "")
    if values["dry_run"]:
        added_case = None
    else:
        added_case = await asyncio.to_thread(add_case, desk, source, evalset_id, name, values["case_id"])
    if is_json:
        show_json(kept_object(source, added_case), indent=2)
        return 0
    for sentence in (source.words, *source.notes):
        show(in_one_line(sentence), err=True)
    if added_case is not None:
        show(in_one_line(kept_words(added_case)))
        if added_case.version_before:
            undo = f"evaldesk evalset restore {added_case.set_name}@{added_case.version_before}"
            show(in_one_line(f"{undo} takes that back."), err=True)
    return 0


def _request(desk: Desk, place: str, n: int, values: dict[str, Any]) -> Fork:
    """The fork that the command names. Raises UsageError, NotFoundError."""
    from evaldesk.model.fork import Fork

    target, at, number = place.rpartition("@")
    turn, dot, call = number.partition(".")
    if not at or not turn.isdecimal() or (dot and not call.isdecimal()):
        raise click.BadParameter(f"write {FORM}, such as 12:refund:1@3", param_hint=FORM)
    name, case_id, trial_index = trial_place(target, FORM)
    if case_id is None:
        raise click.BadParameter(f"name the case as well: {FORM}, such as 12:refund:1@3", param_hint=FORM)
    run = desk.stored_runs.find_by_name(name)
    point = desk.forks.point(run, case_id, trial_index, int(turn), int(call) if dot else None)
    edits = tuple(_edits(values))
    say = values["say"]
    return Fork(point, edits, n, "message" if say else "script", say or "", values["run_tools"])


def _edits(values: dict[str, Any]) -> Sequence[Edit]:
    from evaldesk.model.fork import Edit

    edits = []
    if values["drop_turn"]:
        edits.append(Edit("drop_turn"))
    for kind in ("message", "insert_turn", "assistant", "instruction"):
        if values[kind] is not None:
            edits.append(Edit(kind, text=values[kind]))
    if values["state"] is not None:
        edits.append(Edit("state", value=_json("--state", values["state"])))
    for text in values["tool_result"]:
        number, result = _numbered("--tool-result", text)
        edits.append(Edit("tool_result", call=number, value=_json("--tool-result", result)))
    for text in values["tool_error"]:
        number, error = _numbered("--tool-error", text)
        edits.append(Edit("tool_result", call=number, error=error))
    if values["model"] is not None or values["model_options"] is not None:
        options = None if values["model_options"] is None else _json("--model-options", values["model_options"])
        edits.append(Edit("model", name=values["model"] or "", value=options))
    for text in values["double"]:
        tool, _, answers = text.partition("=")
        edits.append(Edit("double", name=tool.strip(), value=_json("--double", answers)))
    if values["agent"] is not None:
        edits.append(Edit("agent", name=values["agent"]))
    return edits


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option}: {error}", field=option.strip("-")) from error


def _numbered(option: str, text: str) -> tuple[int, str]:
    number, equals, value = text.partition("=")
    if not equals or not number.strip().isdecimal():
        raise UsageError(f"{option} {text[:40]!r}: write N=VALUE, N being the number of the tool call", field=option)
    return int(number), value


def _ask(*, is_json: bool) -> None:
    if is_json or not sys.stdin.isatty():
        raise UsageError("no terminal for the question; add --yes to play the fork, or --dry-run to see its plan")
    confirm("Play it?", abort=True, err=True)


def _show_plan(plan: ForkPlan, *, is_json: bool) -> None:
    from evaldesk.pages.forks import plan_object, plan_sentences
    from evaldesk.wording.printable import in_one_line

    if is_json:
        show_json(plan_object(plan), indent=2)
        return
    for sentence in plan_sentences(plan):
        show(in_one_line(sentence), err=True)


def _show_result(plan: ForkPlan, summary: RunSummary, *, is_json: bool) -> None:
    from evaldesk.pages.forks import fork_object, plan_object
    from evaldesk.wording.printable import in_one_line
    from evaldesk.wording.words import asides_words, passed_words

    if is_json:
        show_json(plan_object(plan) | {"result": fork_object(summary)}, indent=2)
        return
    asides = asides_words(summary.counts)
    words = passed_words(summary.counts.passed, summary.counts.scored) + (f"; {asides}" if asides else "")
    show(in_one_line(f"Run {summary.id}: {words}."))
    show(f"Show it: evaldesk run show {summary.id}", err=True)
