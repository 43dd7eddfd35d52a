"""`evaldesk propose` for coding agents, and `evaldesk proposals` for the person deciding."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from evaldesk.cli.runs.shared import json_option, opened_desk, workspace_option
from evaldesk.desk.client_proposals import ClientProposalDesk
from evaldesk.desk.desk import Desk
from evaldesk.errors import UsageError
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import confirm, show, show_json, style

MAX_FILE = 1_000_000


@click.group()
def propose() -> None:
    """Propose cases, edits, expectations, findings and kinds of failure; a person accepts or refuses them.

    \b
    evaldesk propose case calc new_case.json --why "no case asks for two dice"
    evaldesk propose finding 12 roll_16 1 --kind "wrong date" --quote "Friday, 4 December"
    """


_CLIENT = click.option(
    "--by", "client", default="a coding agent", show_default=True, metavar="NAME", help="The name of the coding agent."
)
_WHY = click.option("--why", default="", metavar="TEXT", help="The reason, for the person deciding.")


@propose.command()
@click.argument("name", metavar="SET")
@click.argument("file", metavar="FILE")
@_WHY
@_CLIENT
@json_option
@workspace_option
def case(name: str, file: str, why: str, client: str, is_json: bool, workspace: str | None) -> None:
    """Propose the case in FILE, or in the stream `-`, as a new one of SET.

    \b
    evaldesk propose case calc new_case.json
    evaldesk propose case calc - --why "no case asks for two dice" --json
    """
    from evaldesk.pages.door.proposals import propose_case

    value = _read(file)
    with _open_to_propose(workspace) as desk:
        _show_made(propose_case(desk, name, value, why, client), is_json=is_json)


@propose.command()
@click.argument("name", metavar="SET")
@click.argument("case_id", metavar="CASE")
@click.argument("file", metavar="FILE")
@click.option("--why", required=True, metavar="TEXT", help="The reason, for the person deciding.")
@_CLIENT
@json_option
@workspace_option
def edit(name: str, case_id: str, file: str, why: str, client: str, is_json: bool, workspace: str | None) -> None:
    """Propose the JSON merge patch in FILE, or in the stream `-`, as a change of CASE in SET.

    \b
    evaldesk propose edit calc roll_16 patch.json --why "both dates are reasonable"
    """
    from evaldesk.pages.door.proposals import propose_edit

    value = _read(file)
    with _open_to_propose(workspace) as desk:
        _show_made(propose_edit(desk, name, case_id, value, why, client), is_json=is_json)


@propose.command()
@click.argument("name", metavar="RUN")
@click.argument("case_id", metavar="CASE")
@click.argument("trial", type=click.IntRange(1), metavar="TRIAL")
@click.argument("parts", nargs=-1, metavar="KEY=WAY...")
@_WHY
@_CLIENT
@json_option
@workspace_option
def expectation(
    name: str,
    case_id: str,
    trial: int,
    parts: tuple[str, ...],
    why: str,
    client: str,
    is_json: bool,
    workspace: str | None,
) -> None:
    """Propose values of TRIAL as expectations of its CASE; without KEY=WAY the offered ones are named.

    \b
    evaldesk propose expectation 12 roll_16 1 1.answer=as_well --why "both are right"
    """
    from evaldesk.pages.door.proposals import propose_expectation

    ways = dict(part.rpartition("=")[::2] for part in parts)
    with _open_to_propose(workspace) as desk:
        _show_made(propose_expectation(desk, name, case_id, trial, ways, why, client), is_json=is_json)


@propose.command()
@click.argument("name", metavar="RUN")
@click.argument("case_id", metavar="CASE")
@click.argument("trial", type=click.IntRange(1), metavar="TRIAL")
@click.option("--kind", required=True, metavar="NAME", help="The kind of failure.")
@click.option("--quote", required=True, metavar="TEXT", help="Words that stand in the trial, letter by letter.")
@click.option("--turn", type=click.IntRange(1), metavar="TURN", help="The turn with the words, from 1.")
@click.option("--note", default="", metavar="TEXT", help="What went wrong.")
@_CLIENT
@json_option
@workspace_option
def finding(
    name: str,
    case_id: str,
    trial: int,
    kind: str,
    quote: str,
    turn: int | None,
    note: str,
    client: str,
    is_json: bool,
    workspace: str | None,
) -> None:
    """Propose a failure in TRIAL of CASE.

    \b
    evaldesk propose finding 12 roll_16 1 --kind "wrong date" --quote "Friday, 4 December"
    """
    from evaldesk.pages.door.proposals import propose_finding

    with _open_to_propose(workspace) as desk:
        _show_made(propose_finding(desk, name, case_id, trial, kind, quote, turn, note, client), is_json=is_json)


@propose.command()
@click.argument("name")
@click.option("--definition", required=True, metavar="TEXT", help="One sentence: when does a trial show it?")
@_CLIENT
@json_option
@workspace_option
def kind(name: str, definition: str, client: str, is_json: bool, workspace: str | None) -> None:
    """Propose the kind of failure NAME.

    \b
    evaldesk propose kind "weekday a week late" --definition "The date is 7 days after the one meant."
    """
    from evaldesk.pages.door.proposals import propose_kind

    with _open_to_propose(workspace) as desk:
        _show_made(propose_kind(desk, name, definition, client=client), is_json=is_json)


def _read(name: str) -> Any:
    """The JSON of a file or of the stream. Raises UsageError with the place."""
    from evaldesk.desk.imports.files import bytes_of

    try:
        data = sys.stdin.buffer.read(MAX_FILE + 1) if name == "-" else bytes_of(Path(name))
        if len(data) > MAX_FILE:
            raise UsageError(f"{name}: {len(data):,} bytes; at most {MAX_FILE:,} are read")
        return json.loads(data)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}; name a file with JSON") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: not JSON: {error}") from error


@contextmanager
def _open_to_propose(workspace: str | None) -> Iterator[Desk]:
    """The desk, where a coding agent may propose. Raises UsageError, as the tools do."""
    from evaldesk.pages.door.tools import check_open

    with opened_desk(workspace) as desk:
        check_open(desk, click.get_current_context().command_path.partition(" ")[2])
        yield desk


def _show_made(answer: Mapping[str, Any], *, is_json: bool) -> None:
    if is_json:
        show_json(answer, indent=2)
        return
    joined_words = ", as an open one already says" if answer["is_joined"] else ""
    masked_words = ", with a secret masked" if answer["is_masked"] else ""
    show(f"Proposal {answer['proposal']} waits for a person{joined_words}{masked_words}.")


@click.group()
def proposals() -> None:
    """List, show, accept and refuse the proposals of coding agents.

    \b
    evaldesk proposals list
    evaldesk proposals show 3
    evaldesk proposals accept 3
    """


@proposals.command(name="list")
@click.option(
    "--status",
    type=click.Choice(["open", "accepted", "refused", "all"]),
    default="open",
    show_default=True,
    help="Only proposals with this status.",
)
@click.option("--set", "name", default="", metavar="SET", help="Only those of this eval set.")
@click.option("--cursor", type=click.IntRange(0), default=0, metavar="N", help="Begin after N matching proposals.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Most proposals to list; all unless given.")
@json_option
@workspace_option
def list_proposals(
    status: str, name: str, cursor: int, limit: int | None, is_json: bool, workspace: str | None
) -> None:
    """List proposals, newest first.

    \b
    evaldesk proposals list
    evaldesk proposals list --status all --json
    """
    from evaldesk.model.proposals import TITLES
    from evaldesk.pages.door.proposals import proposal_page

    with opened_desk(workspace) as desk:
        answer = proposal_page(desk, status, name, cursor, limit)
    if is_json:
        show_json(answer, indent=2)
        return
    for each in answer["items"]:
        about = f" {each['case_id']}" if each["case_id"] else ""
        show(in_one_line(f"{each['id']}  {TITLES[each['kind']]}{about}, {each['status']}, by {each['client']}"))
    if answer["next_cursor"] is not None:
        show(f"--cursor {answer['next_cursor']} lists more.")
    if not answer["items"]:
        show("No proposals.")


@proposals.command(name="show")
@click.argument("number", metavar="ID", type=click.IntRange(1))
@json_option
@workspace_option
def show_proposal(number: int, is_json: bool, workspace: str | None) -> None:
    """Show the proposal ID with its content and its effect on stored trials.

    \b
    evaldesk proposals show 3
    evaldesk proposals show 3 --json
    """
    from evaldesk.pages.door.proposals import proposal_answer

    with opened_desk(workspace) as desk:
        answer = proposal_answer(desk, number)
    if is_json:
        show_json(answer, indent=2)
    else:
        _show_answer(answer)


@proposals.command()
@click.argument("number", metavar="ID", type=click.IntRange(1))
@click.option("--by", "author", metavar="NAME", help="Your name; default: the reviewer's of this workspace.")
@workspace_option
def accept(number: int, author: str | None, workspace: str | None) -> None:
    """Accept the proposal ID at a terminal, after a look at it.

    \b
    evaldesk proposals accept 3
    """
    with opened_desk(workspace) as desk:
        seen = _ask(desk, number, "Accept it?")
        ClientProposalDesk(desk).accept(number, author or desk.person.name(), seen)
    show(f"Accepted. `evaldesk proposals undo {number}` takes it back.")


@proposals.command()
@click.argument("number", metavar="ID", type=click.IntRange(1))
@click.option("--by", "author", metavar="NAME", help="Your name; default: the reviewer's of this workspace.")
@workspace_option
def refuse(number: int, author: str | None, workspace: str | None) -> None:
    """Refuse the proposal ID at a terminal.

    \b
    evaldesk proposals refuse 3
    """
    with opened_desk(workspace) as desk:
        _ask(desk, number, "Refuse it?")
        ClientProposalDesk(desk).refuse(number, author or desk.person.name())
    show(f"Refused. `evaldesk proposals undo {number}` takes it back.")


@proposals.command()
@click.argument("number", metavar="ID", type=click.IntRange(1))
@click.option("--by", "author", metavar="NAME", help="Your name; default: the reviewer's of this workspace.")
@workspace_option
def undo(number: int, author: str | None, workspace: str | None) -> None:
    """Take back the answer to the proposal ID, which is open again.

    \b
    evaldesk proposals undo 3
    """
    with opened_desk(workspace) as desk:
        _ask(desk, number, "Take the answer back?")
        ClientProposalDesk(desk).undo(number, author or desk.person.name())
    show(f"Proposal {number} is open again.")


def _ask(desk: Desk, number: int, question: str) -> str:
    """Show the proposal, ask the person at the terminal, and give its version. Raises UsageError without a person."""
    from evaldesk.pages.door.proposals import proposal_answer

    answer = proposal_answer(desk, number)
    if not _has_terminal():
        raise UsageError(f"proposal {number} is for a person at a terminal, or on the page /proposals of `evaldesk ui`")
    _show_answer(answer)
    confirm(question, abort=True)
    return str(answer["version"])


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _show_answer(answer: Mapping[str, Any]) -> None:
    from evaldesk.model.proposals import TITLES

    about = f" of {answer['case_id']}" if answer["case_id"] else ""
    if answer["run"] is not None and answer["trial"] is not None:
        about = f"{about}, run {answer['run']}, trial {answer['trial']}"
    title = f"proposal {answer['id']}: {TITLES[answer['kind']]}{about}, {answer['status']}, by {answer['client']}"
    show(style(in_one_line(title), bold=True))
    if answer["why"]:
        show(in_one_line(f"says: {answer['why']}"))
    if answer["reply"]:
        show(in_one_line(f"answered: {answer['reply']}"))
    if effect := answer["effect"]:
        before, after = (
            (effect[f"passed_{at}"], effect[n]) for at, n in (("before", "scored"), ("after", "scored_after"))
        )
        counts = f"{before[0]} of {before[1]} -> {after[0]} of {after[1]} trials pass"
        reason = ", because the test changes, not the agent" if before != after else ", as before"
        edit_words = "; the case was edited after the run, which is on both sides" if effect["is_edited_since"] else ""
        show(f"run {effect['run']}: {counts}{reason}{edit_words}")
    show(json.dumps(answer["content"], indent=2, ensure_ascii=False))
