"""`evaldesk ui`: the desk in the browser; `evaldesk open RUN`: a run in it."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import (
    ask_trust,
    python_option,
    question_lines,
    stored_runs,
    trust_option,
    workspace_option,
)
from evaldesk.errors import UsageError, WorkspaceError
from evaldesk.process_setup import gc_paused
from evaldesk.wording.writer import show

if TYPE_CHECKING:
    from evaldesk.desk.trust import Trust
    from evaldesk.settings import PublicUrl, Settings

DEFAULT_PORTS = (*range(8420, 8430), 0)
"""Tried in this order; 0 is any free one."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    show_default=f"{DEFAULT_PORTS[0]} or, where it is taken, another",
    help="0 picks a free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--token", help="The token of the address; a random one unless given.")
@click.option("--demo", is_flag=True, help="Serve the sample agents and eval sets.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@workspace_option
@python_option
@click.option("--base-url", help="An OpenAI-compatible endpoint for the agents' models.")
@click.option("--listen-beyond-loopback", is_flag=True, help="Let other machines connect. Needs --allowed-host.")
@click.option("--allowed-host", multiple=True, metavar="NAME", help="A name that browsers may use for this desk.")
@click.option("--public-url", metavar="URL", help="The address of a proxy in front, such as https://evals.example.")
@click.option("--inbox", "has_inbox", is_flag=True, help="Take the spans of running agents (OTLP over HTTP).")
@click.option(
    "--inbox-port", type=click.IntRange(0, 65535), metavar="PORT", help="Its port; default: 4318, or a free one."
)
@click.option(
    "--inbox-key", metavar="KEY", envvar="EVALDESK_INBOX_KEY", help="A key that senders need; 16 characters or more."
)
@trust_option
def ui(
    folders: tuple[str, ...],
    port: int | None,
    host: str,
    token: str | None,
    demo: bool,
    no_open: bool,
    workspace: str | None,
    python: str | None,
    base_url: str | None,
    listen_beyond_loopback: bool,
    allowed_host: tuple[str, ...],
    public_url: str | None,
    has_inbox: bool,
    inbox_port: int | None,
    inbox_key: str | None,
    is_trusted: bool,
) -> None:
    """Chat with the agents under DIR and evaluate them in the browser.

    \b
    evaldesk ui                  agents and eval sets of this folder
    evaldesk ui --demo           the samples; no key needed
    evaldesk ui agents --port 0  a free port

    \b
    Where a desk of this workspace is open, it prints the address of that one.
    """
    names = _names(host, listen_beyond_loopback, allowed_host)
    if token is not None and not re.fullmatch(r"[A-Za-z0-9_.~-]{16,200}", token):
        raise UsageError("--token: 16 to 200 letters, digits, _ . ~ or -; leave it out for a random one")
    with gc_paused():
        from evaldesk.desk.serving import OPENING, desk_address
        from evaldesk.desk.workspace import open_settings
        from evaldesk.model import ModelOptions
        from evaldesk.paths import interpreter_path
        from evaldesk.web.server import Address, serve

        gc.freeze()
    settings = open_settings(folders, workspace=workspace, is_demo=demo)
    if python:
        settings = replace(settings, python=interpreter_path(python, Path.cwd()))
    settings = replace(settings, model_options=settings.model_options | ModelOptions(base_url=base_url))
    settings = _with_public_url(settings, public_url)
    is_person = sys.stdout.isatty() and not no_open and has_screen(sys.platform, os.environ)
    if desk_address(settings) not in ("", OPENING):
        show("The desk of this workspace is open, with the options of its own start. Its address:", err=True)
        show_open_desk(settings, "", is_person_there=is_person)
        show_door_of_open_desk(settings)
        return
    trust = trust_of_desk(settings, is_trusted=is_trusted)
    ports = DEFAULT_PORTS if port is None else (port,)
    address = Address(host=host, ports=ports, names=names, token=token, public=_public_url(settings, trust))
    with _inbox(settings, trust, is_asked=has_inbox or inbox_port is not None, port=inbox_port, key=inbox_key or ""):
        serve(settings, address, is_person_there=is_person, trust=trust)


@contextmanager
def _inbox(settings: Settings, trust: Trust, *, is_asked: bool, port: int | None, key: str) -> Iterator[None]:
    """The inbox of the desk, where it is asked for. The file of a folder that nobody trusts opens no port."""
    if not is_asked and settings.inbox.listen and trust.is_restricted:
        show(
            "[inbox] listen of evaldesk.toml counts once the folder is trusted; --inbox opens the inbox now.", err=True
        )
    if not is_asked and (not settings.inbox.listen or trust.is_restricted):
        yield
        return
    from evaldesk.desk.inbox.listening import started_listener

    with started_listener(settings, port=port, key=key, is_loopback=trust.is_restricted) as listener:
        for line in inbox_lines(listener.address, needs_key=listener.needs_key):
            show(line, err=True)
        yield


def inbox_lines(address: str, *, needs_key: bool) -> list[str]:
    """The address of an inbox as the two variables of the SDKs."""
    lines = [
        "The inbox takes spans at this address:",
        f"  OTEL_EXPORTER_OTLP_ENDPOINT={address}",
        "  OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    ]
    return [*lines, "  OTEL_EXPORTER_OTLP_HEADERS=x-evaldesk-key=KEY"] if needs_key else lines


def _with_public_url(settings: Settings, option: str | None) -> Settings:
    from evaldesk.settings import public_url

    if option is None:
        return settings
    return replace(settings, public_url=public_url(option, "--public-url"), is_public_url_of_file=False)


def _public_url(settings: Settings, trust: Trust) -> PublicUrl | None:
    """The public address of the desk. It names Host and Origin, so that one of an untrusted folder does not count."""
    if settings.public_url and settings.is_public_url_of_file and trust.is_restricted:
        show("public_url of evaldesk.toml counts once the folder is trusted; --public-url names it now.", err=True)
        return None
    return settings.public_url


def trust_of_desk(settings: Settings, *, is_trusted: bool) -> Trust:
    """The trust in the workspace; a page asks the question, and the terminal says so."""
    trust = ask_trust(settings, is_trusted=is_trusted, asks=False)
    if trust.is_restricted:
        for line in (*question_lines(trust), "Nothing of it runs. The page asks whether to trust it; --trust does so."):
            show(line, err=True)
    return trust


def has_screen(platform: str, environment: Mapping[str, str]) -> bool:
    """Whether a browser could open a window; without a screen one in the terminal would open, in our way."""
    return not platform.startswith("linux") or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def _names(host: str, is_beyond: bool, allowed_names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that Host may carry; refuses an address beyond loopback unless all of it is spelled out."""
    from evaldesk.web.guard import LOOPBACK_NAMES

    if host in LOOPBACK:
        return (*LOOPBACK_NAMES, *allowed_names)
    if not (is_beyond and allowed_names):
        raise UsageError(
            f"--host {host} lets other machines reach agents that run code as you; "
            "to do so on purpose add --listen-beyond-loopback and --allowed-host NAME for each name browsers will use"
        )
    return (*LOOPBACK_NAMES, *allowed_names)


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
    from evaldesk.desk.serving import desk_address
    from evaldesk.desk.workspace import open_settings
    from evaldesk.web.guard import LOOPBACK_NAMES
    from evaldesk.web.server import Address, serve

    with stored_runs(workspace) as runs:
        page = f"runs/{runs.find_by_name(run_name).id}"
    settings = open_home(workspace)
    is_person = sys.stdout.isatty() and not no_open and has_screen(sys.platform, os.environ)
    if desk_address(settings):
        show_open_desk(settings, page, is_person_there=is_person)
        return
    settings = open_settings((), workspace=workspace)
    trust = trust_of_desk(settings, is_trusted=is_trusted)
    address = Address(host=LOOPBACK[0], ports=(0,), names=LOOPBACK_NAMES, page=page)
    serve(settings, address, is_person_there=is_person, trust=trust)


def show_open_desk(settings: Settings, page: str, *, is_person_there: bool) -> None:
    """Print the address of a page of the desk that is open, and show it to a person. Raises WorkspaceError."""
    from evaldesk.web.server import ADDRESS_NAME, open_in_browser

    url = page_address(settings.state_folder / ADDRESS_NAME, page)
    show(url)
    if is_person_there:
        open_in_browser(url, settings.state_folder)


def show_door_of_open_desk(settings: Settings) -> None:
    """Print the address for coding agents of the desk that is open, with its key, where the desk has one."""
    from evaldesk.desk.trust import Trust
    from evaldesk.web.server import ADDRESS_NAME, show_door

    if settings.mcp.serve and not Trust(settings).is_restricted:
        home, _, token = page_address(settings.state_folder / ADDRESS_NAME, "").partition("?token=")
        show_door(home, token)


def page_address(file: Path, page: str) -> str:
    """The address of a page of the desk that is open, with its token.

    Raises WorkspaceError while it opens or ends, and when another user wrote the address.
    """
    try:
        if file.lstat().st_uid != os.geteuid():
            raise WorkspaceError("another user serves this workspace; ask for the address, or take another workspace")
        home, _, token = file.read_text("utf-8").strip().partition("?")
    except OSError:
        raise WorkspaceError("the desk of this workspace is opening or ending; try again in a moment") from None
    return f"{home}{page}?{token}"
