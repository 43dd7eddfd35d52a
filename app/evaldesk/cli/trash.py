"""`evaldesk trash`: the deleted eval sets, cases, chats and runs of a workspace."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from evaldesk.cli.runs.shared import json_option, opened_desk, workspace_option
from evaldesk.errors import UsageError
from evaldesk.model.conclusion import counted
from evaldesk.wording.writer import confirm, show, show_json


@click.group()
def trash() -> None:
    """List, restore or remove deleted eval sets, cases, chats and runs.

    A deleted run is removed for good 30 days after its deletion, when a desk starts.

    \b
    evaldesk trash list
    evaldesk trash restore ID
    evaldesk trash empty --yes
    """


@trash.command(name="list")
@json_option
@workspace_option
def list_items(is_json: bool, workspace: str | None) -> None:
    """List the deleted eval sets, cases, chats and runs, newest first.

    \b
    evaldesk trash list
    """
    from evaldesk.desk.trash import trash_items
    from evaldesk.wording.printable import in_one_line

    with opened_desk(workspace) as desk:
        items = trash_items(desk)
    if is_json:
        rows = [
            {
                "id": item.id,
                "kind": item.kind,
                "name": item.name,
                "deleted_at": item.deleted_at.isoformat(),
                "n_bytes": item.n_bytes,
                "kept_until": item.kept_until.isoformat() if item.kept_until else None,
            }
            for item in items
        ]
        show_json(rows)
        return
    for item in items:
        when = item.deleted_at.isoformat(" ", "minutes")
        show(f"{item.id}  {when}  {item.kind:8}  {in_one_line(item.name)}")
    if not items:
        show("The trash is empty.")


@trash.command()
@click.argument("item_id", metavar="ID")
@workspace_option
def restore(item_id: str, workspace: str | None) -> None:
    """Bring the eval set, cases, chat or run ID back.

    \b
    evaldesk trash restore 0123456789abcdef
    """
    from evaldesk.desk.trash import restore_item
    from evaldesk.wording.printable import in_one_line

    with opened_desk(workspace) as desk:
        item, _ = restore_item(desk, item_id)
    show(f"Restored: {item.kind} {in_one_line(item.name)}")


@trash.command()
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@workspace_option
def empty(yes: bool, workspace: str | None) -> None:
    """Remove everything in the trash for good.

    \b
    evaldesk trash empty --yes
    """
    from evaldesk.desk import trash as kept
    from evaldesk.wording.words import space_words

    if not yes and not sys.stdin.isatty():
        raise UsageError("trash empty removes everything in it for good; without a terminal add --yes")
    with opened_desk(workspace) as desk:
        entries = kept.trash_items(desk)
        n = len(entries)
        items = counted(n, "item")
        if n and not yes:
            confirm(f"Remove {items} for good?", abort=True)
        # An empty trash, too: a kill may have left rows of what was removed.
        n_removed, space = kept.empty(desk, entries[0].deleted_at if entries else datetime.now(UTC))
    freed = space_words(space.n_given_back, space.n_kept)
    show(f"Removed {n_removed:,} of {items}.{freed}" if n else f"The trash is empty.{freed}")
