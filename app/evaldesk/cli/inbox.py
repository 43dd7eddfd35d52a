"""`evaldesk inbox`: conversations of running agents."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from evaldesk.cli.inbox_draw import draw
from evaldesk.cli.inbox_pull import pull
from evaldesk.cli.inbox_replay import replay
from evaldesk.cli.inbox_score import score
from evaldesk.cli.runs.shared import json_option, opened_desk, workspace_option
from evaldesk.errors import UsageError
from evaldesk.model.conclusion import counted
from evaldesk.wording.writer import confirm, show, show_json

if TYPE_CHECKING:
    from evaldesk.model import TrialResult
    from evaldesk.model.inbox import Conversation

MOST_LISTED = 1_000


@click.group()
def inbox() -> None:
    """Receive, pull, list, draw, show, label, drop and replay conversations of agents, and make cases of them.

    \b
    evaldesk ui --inbox              a desk that takes spans
    evaldesk inbox list 'error'      conversations with an error
    evaldesk inbox draw 'error:all' 'rest:100'      conversations to read
    evaldesk inbox case 12 --evalset trips
    """


inbox.add_command(draw)
inbox.add_command(pull)
inbox.add_command(replay)
inbox.add_command(score)


@inbox.command(name="list")
@click.argument("conditions", nargs=-1, metavar="[FILTER]...")
@click.option("--limit", type=click.IntRange(1, MOST_LISTED), default=50, show_default=True, help="At most so many.")
@click.option("--eval", "is_eval", is_flag=True, help="Conversations of agents that Evaldesk played.")
@json_option
@workspace_option
def list_conversations(
    conditions: tuple[str, ...], limit: int, is_eval: bool, is_json: bool, workspace: str | None
) -> None:
    """List the conversations that meet all conditions of FILTER, newest first.

    Conditions: error, no-case, turns, calls, tokens, cost, latency and feedback with < <= = >= > or !=, and tool:,
    tag:, release:, source:, agent:, state:, text:, since: and until:; `not` before one turns it around.

    \b
    evaldesk inbox list
    evaldesk inbox list 'feedback<0' since:7d not tool:search
    """
    from evaldesk.wording.printable import in_one_line

    with opened_desk(workspace) as desk:
        page = desk.inbox.list(_line(conditions), limit=limit, is_eval=is_eval)
    if is_json:
        show_json([_as_json(each) for each in page.items])
        return
    for each in page.items:
        when = each.began_at.astimezone().isoformat(" ", "minutes")[:16]
        parts = (
            str(each.id),
            when,
            each.state,
            counted(each.n_turns, "turn"),
            " > ".join(each.tools[:4]),
            each.first_words,
        )
        show(in_one_line("  ".join(filter(None, (*parts[:4], "error" if each.has_error else "", *parts[4:])))))
    if not page.items:
        show(
            "No conversation meets the filter." if conditions else "The inbox is empty; `evaldesk ui --inbox` opens it."
        )
    elif page.following:
        show(f"The newest {limit} are shown; --limit shows more.")


@inbox.command(name="show")
@click.argument("conversation_id", metavar="ID", type=int)
@json_option
@workspace_option
def show_conversation(conversation_id: int, is_json: bool, workspace: str | None) -> None:
    """Show the turns of conversation ID.

    \b
    evaldesk inbox show 12
    """
    from evaldesk.wording.printable import in_one_line, printable

    with opened_desk(workspace) as desk:
        desk.inbox.mark_read(conversation_id)
        conversation, result = desk.inbox.read(conversation_id)
        labels = desk.inbox.labels(conversation_id)
    if is_json:
        turns = [_turn_as_json(result, place) for place in range(len(result.transcript.turns))]
        verdicts = [{"by": each.labeller, "verdict": each.verdict, "note": each.note} for each in labels]
        show_json(_as_json(conversation) | {"turns": turns, "labels": verdicts})
        return
    show(in_one_line(_title(conversation)))
    for number, turn in enumerate(result.transcript.turns, start=1):
        show(f"\nTurn {number}")
        for event in turn.events:
            if event.kind in ("user_message", "agent_message"):
                show(printable(f"{'user' if event.kind == 'user_message' else event.author or 'agent'}: {event.text}"))
            elif event.kind == "tool_call" and event.call:
                arguments = json.dumps(event.call.args, ensure_ascii=False, default=str)
                show(in_one_line(f"  {event.call.name}({arguments})"))
            elif event.kind == "tool_result":
                value = event.result if isinstance(event.result, str) else json.dumps(event.result, ensure_ascii=False)
                show(in_one_line(f"  -> {value}"[:400]))
    for each in labels:
        show(in_one_line(f"\n{each.verdict} by {each.labeller}{': ' + each.note if each.note else ''}"))


@inbox.command(name="label")
@click.argument("conversation_id", metavar="ID", type=int)
@click.argument("verdict", type=click.Choice(["passed", "failed", "none"]))
@click.option("--note", default="", metavar="TEXT", help="A note beside the verdict.")
@click.option("--by", "labeller", default="", metavar="NAME", help="The name of the person; default: this user.")
@json_option
@workspace_option
def label(conversation_id: int, verdict: str, note: str, labeller: str, is_json: bool, workspace: str | None) -> None:
    """Label conversation ID passed or failed; none takes the label away.

    \b
    evaldesk inbox label 12 failed --note "wrong date"
    """
    with opened_desk(workspace) as desk:
        desk.inbox.label(conversation_id, "" if verdict == "none" else verdict, note, labeller)
    words = f"The label of conversation {conversation_id} was taken away." if verdict == "none" else f"{verdict}."
    show_json({"id": conversation_id, "verdict": verdict}) if is_json else show(words)


@inbox.command(name="drop")
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Take dropped conversations back.")
@click.option("--remove", is_flag=True, help="Remove them for good, with their spans.")
@click.option("--yes", is_flag=True, help="Do not ask before they are removed.")
@json_option
@workspace_option
def drop(ids: tuple[int, ...], undo: bool, remove: bool, yes: bool, is_json: bool, workspace: str | None) -> None:
    """Drop conversations: nobody needs to read them. They stay in the list until they are removed for their age.

    \b
    evaldesk inbox drop 12 13
    evaldesk inbox drop 12 --remove --yes
    """
    if remove and not yes and not confirm(f"Remove {counted(len(ids), 'conversation')} for good?", err=True):
        raise UsageError("nothing was removed; --yes removes without a question")
    with opened_desk(workspace) as desk:
        verb_of_desk = desk.inbox.remove if remove else desk.inbox.take_back if undo else desk.inbox.drop
        n = verb_of_desk(ids)
    verb = "removed" if remove else "taken back" if undo else "dropped"
    show_json({"n": n}) if is_json else show(f"{counted(n, 'conversation')} {verb}.")


@inbox.command(name="case")
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--evalset", metavar="SET", help="The eval set, by its name or file; created if there is none.")
@click.option("--preview", is_flag=True, help="Show the cases; change nothing.")
@json_option
@workspace_option
def case(ids: tuple[int, ...], evalset: str | None, preview: bool, is_json: bool, workspace: str | None) -> None:
    """Add conversations as cases to an eval set.

    A case expects the calls of its conversation, but nothing where the outcome was bad: an error, bad feedback or the
    label failed. Cases with the same first message are named, and the conversation is left out.

    \b
    evaldesk inbox case 12 13 --evalset trips --preview
    evaldesk inbox case 12 13 --evalset trips
    """
    from evaldesk.desk.inbox.inbox import CaseChoice
    from evaldesk.wording.printable import in_one_line

    name = evalset or "inbox"
    with opened_desk(workspace) as desk:
        evalset_id = next((each.id for each in desk.evalsets.list() if name in (each.name, str(each.path))), "")
        proposals = desk.inbox.proposals(ids, evalset_id)
        proposals_without_twin = [each for each in proposals if not each.twins]
        rows: list[dict[str, Any]] = [
            {
                "id": each.conversation.id,
                "case": each.case_id,
                "expectation": f"nothing: {each.had_bad_outcome}" if each.had_bad_outcome else "its calls",
                "twins": [*each.twins],
            }
            for each in proposals
        ]
        outcome = None
        if proposals_without_twin and not preview:
            outcome = desk.inbox.add_cases(
                [CaseChoice(each.conversation.id) for each in proposals_without_twin], evalset_id, name
            )
    if is_json:
        show_json({"evalset": name, "cases": rows, "added": [*outcome.ids] if outcome else []})
        return
    for row in rows:
        twins = f"  left out: the same first message as {', '.join(row['twins'])}" if row["twins"] else ""
        show(in_one_line(f"{row['id']}  {row['case']}  expects {row['expectation']}{twins}"))
    show(in_one_line(outcome.words) if outcome else "Nothing was added.")


@inbox.command(name="status")
@json_option
@workspace_option
def status(is_json: bool, workspace: str | None) -> None:
    """Show the address of the inbox, its sources, and the numbers of its conversations.

    Exit code 1 while the alarm of the pass rate rang in the last 14 days.

    \b
    evaldesk inbox status
    """
    from evaldesk.cli.inbox_score import ALARM
    from evaldesk.wording.printable import in_one_line

    with opened_desk(workspace) as desk:
        listener, sources = desk.inbox.listener(), desk.inbox.sources()
        n, n_eval, n_bytes = desk.inbox.count(), desk.inbox.count(is_eval=True), desk.inbox.size()
        alarms, pulls = desk.live.recent_rates().alarms, desk.pulls.records()
    rows = [
        {
            "name": each.name,
            "spans": each.n_spans,
            "last_at": each.last_at.isoformat(),
            "refused": each.n_refused,
            "removed": each.n_removed,
        }
        for each in sources
    ]
    address = listener.address if listener else None
    if is_json:
        alarm_rows = [{"conversation": number, "at": at.isoformat()} for number, at in alarms]
        pull_rows = [
            {"source": each.source, "at": each.began_at.isoformat(), "error": each.error or None} for each in pulls
        ]
        values = {"address": address, "conversations": n, "eval": n_eval, "bytes": n_bytes, "sources": rows}
        show_json(values | {"pulls": pull_rows, "alarms": alarm_rows})
        if alarms:
            sys.exit(ALARM)
        return
    show(f"Listening on {address}." if address else "Not listening; `evaldesk ui --inbox` or `evaldesk inbox listen`.")
    show(f"{counted(n, 'conversation')}, {n_bytes / 1e6:.1f} MB; {n_eval:,} played by Evaldesk.")
    for each in sources:
        refusals = f", {each.n_refused:,} requests refused in a burst" if each.n_refused else ""
        removals = f", {counted(each.n_removed, 'conversation')} removed" if each.n_removed else ""
        show(in_one_line(f"{each.name}: {counted(each.n_spans, 'span')}{refusals}{removals}"))
    for pulled in pulls:
        outcome = f"failed: {pulled.error}" if pulled.error else "ended"
        show(in_one_line(f"The pull of {pulled.source} of {pulled.began_at:%Y-%m-%d %H:%M} UTC {outcome}"))
    for number, at in alarms:
        show(f"Alarm: the pass rate fell below the bar, after conversation {number}, {at:%Y-%m-%d %H:%M} UTC.")
    if alarms:
        sys.exit(ALARM)


@inbox.command(name="listen")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="Default: 4318, or a free port.")
@click.option(
    "--key",
    metavar="KEY",
    envvar="EVALDESK_INBOX_KEY",
    default="",
    help="A key that senders need; demanded beyond loopback. EVALDESK_INBOX_KEY names it out of sight.",
)
@click.option("--with-desk", is_flag=True, hidden=True)
@click.option("--loopback", is_flag=True, hidden=True)
@workspace_option
def listen(port: int | None, key: str, with_desk: bool, loopback: bool, workspace: str | None) -> None:
    """Take the spans of running agents (OTLP over HTTP) until it is stopped, without pages.

    \b
    evaldesk inbox listen
    evaldesk inbox listen --port 4318
    """
    from evaldesk.cli.files.exchange_files import open_home
    from evaldesk.cli.ui import inbox_lines
    from evaldesk.desk.inbox.listening import open_inbox, with_loopback

    settings = open_home(workspace)
    own = settings.inbox if port is None else replace(settings.inbox, port=port)
    settings = replace(settings, inbox=with_loopback(own) if loopback else own)
    is_stopped = threading.Event()
    # Waiting requests are answered before it ends (decision 515).
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_stopped.set())
    with open_inbox(settings, key=key, is_stopped=is_stopped) as address:
        if with_desk:
            show(json.dumps({"address": address, "needs_key": bool(key)}))
            threading.Thread(target=_wait_for_end, args=(is_stopped,), daemon=True).start()
        else:
            for line in inbox_lines(address, needs_key=bool(key)):
                show(line)
        while not is_stopped.wait(3600):
            pass


def _wait_for_end(is_stopped: threading.Event) -> None:
    """Stop once the desk that started this process has ended."""
    while sys.stdin.buffer.read(4096):
        pass
    is_stopped.set()


def _line(conditions: Sequence[str]) -> str:
    return " ".join(conditions)


def _title(conversation: Conversation) -> str:
    about = [f"conversation {conversation.id}", conversation.agent, conversation.release, conversation.source]
    return ", ".join(filter(None, (*about, conversation.state, "cut off" * (conversation.ending == "cut_off"))))


def _as_json(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "source": conversation.source,
        "service": conversation.service,
        "conversation": conversation.name,
        "agent": conversation.agent,
        "release": conversation.release,
        "began_at": conversation.began_at.isoformat(),
        "ended_at": conversation.ended_at.isoformat(),
        "state": conversation.state,
        "ending": conversation.ending,
        "turns": conversation.n_turns,
        "tools": [*conversation.tools],
        "tags": [*conversation.tags],
        "tokens": conversation.tokens,
        "cost": conversation.cost,
        "error": conversation.error,
        "feedback": conversation.feedback,
        "first_words": conversation.first_words,
    }


def _turn_as_json(result: TrialResult, place: int) -> dict[str, Any]:
    turn = result.transcript.turns[place]
    return {
        "query": turn.query,
        "answer": turn.answer,
        "calls": [{"name": call.name, "args": dict(call.args)} for call in turn.tool_calls],
    }
