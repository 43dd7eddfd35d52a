"""`evaldesk open RUN`: a run in the browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import stored_runs, workspace_option
from evaldesk.cli.trust import trust_option
from evaldesk.errors import WorkspaceError


@click.command(name="open")
@click.argument("run_name", metavar="RUN")
@click.option("--no-open", is_flag=True, help="Print the address; open no browser.")
@trust_option
@workspace_option
def open_run(run_name: str, no_open: bool, is_trusted: bool, workspace: str | None) -> None:
    """Show RUN, by its number or its name, in the browser; starts the desk if necessary.

    \b
    evaldesk open 12
    evaldesk open my-run --no-open
    """
    from evaldesk.cli.ui import LOOPBACK, has_screen, trust_of_desk
    from evaldesk.desk.serving import desk_address
    from evaldesk.desk.workspace import open_settings
    from evaldesk.web.guard import LOOPBACK_NAMES
    from evaldesk.web.server import ADDRESS_NAME, Address, open_in_browser, serve

    with stored_runs(workspace) as runs:
        page = f"runs/{runs.named(run_name).id}"
    settings = open_home(workspace)
    is_person = sys.stdout.isatty() and not no_open and has_screen(sys.platform, os.environ)
    if desk_address(settings):
        url = page_address(settings.state_folder / ADDRESS_NAME, page)
        click.echo(url)
        if is_person:
            open_in_browser(url, settings.state_folder)
        return
    address = Address(host=LOOPBACK[0], port=0, names=LOOPBACK_NAMES, page=page)
    settings = open_settings((), workspace=workspace)
    trust = trust_of_desk(settings, is_trusted=is_trusted)
    serve(settings, address, is_person_there=is_person, trust=trust)


def page_address(file: Path, page: str) -> str:
    """The address of a page of the desk that is open, with its token. Raises WorkspaceError while it opens or ends."""
    try:
        home, _, token = file.read_text("utf-8").strip().partition("?")
    except OSError:
        raise WorkspaceError("the desk of this workspace is opening or ending; try again in a moment") from None
    return f"{home}{page}?{token}"
