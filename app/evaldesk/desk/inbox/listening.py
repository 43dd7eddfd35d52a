"""The process of the inbox: it receives spans, joins them, and removes old conversations.

A process of its own, so that reading spans takes no time from the pages of the desk. (docs/decisions/515-inbox.md)
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from evaldesk.desk.inbox.joining import SETTLE_S, join_new
from evaldesk.desk.inbox.masks import check_masks, read_masks
from evaldesk.desk.inbox.receiver import LOOPBACK, InboxReceiver, span_reader
from evaldesk.desk.inbox.upkeep import HOLD, tidy
from evaldesk.desk.trust import Trust
from evaldesk.durable_files import replace_file
from evaldesk.errors import EvaldeskError, UsageError, WorkspaceError
from evaldesk.secrets import scrub
from evaldesk.settings import CONFIG_NAME, InboxSettings, Settings
from evaldesk.store import Store

log = logging.getLogger("evaldesk.inbox")

KEY_VARIABLE = "EVALDESK_INBOX_KEY"
ADDRESS_NAME = "inbox.json"
STEP_S = 0.5
UPKEEP_S = 30.0
N_TEXTS = 50
"""Stored texts by which masks are checked."""
LEAST_KEY = 16


@dataclass(frozen=True, slots=True)
class Listener:
    """The address at which an inbox takes spans, such as `http://127.0.0.1:4318`; `needs_key` beyond loopback."""

    address: str
    needs_key: bool


def listener_of(settings: Settings, store: Store) -> Listener | None:
    """The process that takes spans for this workspace; None where none does."""
    try:
        values = json.loads((settings.state_folder / ADDRESS_NAME).read_bytes())
        listener = Listener(str(values["address"]), bool(values["needs_key"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    end_hold = store.try_hold(HOLD)  # a process that was killed leaves its address behind
    if end_hold is not None:
        end_hold()
        return None
    return listener


def check_listening(inbox: InboxSettings, key: str) -> None:
    """Raise UsageError for an address beyond loopback without a key, and for a short key."""
    if key and (len(key) < LEAST_KEY or not key.isascii() or not key.isprintable() or "/" in key):
        raise UsageError(f"the key of the inbox has {LEAST_KEY} or more letters and digits, without /")
    if inbox.host not in LOOPBACK and not key:
        raise UsageError(
            f"[inbox] host {inbox.host} lets other machines send spans, so it needs a key: set {KEY_VARIABLE} or "
            "--inbox-key"
        )


def with_loopback(inbox: InboxSettings) -> InboxSettings:
    """The settings with the loopback address."""
    return replace(inbox, host=LOOPBACK[0])


@contextmanager
def receiving(settings: Settings, store: Store, *, key: str) -> Iterator[InboxReceiver]:
    """A receiver for this workspace, which is alone in it. Takes a free port where the usual one is taken.

    Raises UsageError for masks and addresses that cannot be, WorkspaceError where another process receives.
    """
    inbox = settings.inbox
    check_listening(inbox, key)
    where = f"{CONFIG_NAME}: [inbox] mask"
    masks = read_masks(inbox.mask, where)
    texts = [each.first_words for each in store.inbox.list(limit=N_TEXTS).items if each.first_words]
    check_masks(masks, texts, where)
    end_hold = store.try_hold(HOLD)
    if end_hold is None:
        raise WorkspaceError("another process takes spans for this workspace")
    try:
        reader = span_reader(masks, os.environ, settings.state_folder)
        receiver = _bound_receiver(store, reader, inbox, key)
        try:
            address = {"address": receiver.address, "needs_key": bool(key)}
            replace_file(settings.state_folder / ADDRESS_NAME, json.dumps(address).encode(), mode=0o600)
            yield receiver
        finally:
            receiver.close()
            (settings.state_folder / ADDRESS_NAME).unlink(missing_ok=True)
    finally:
        end_hold()


@contextmanager
def open_inbox(settings: Settings, *, key: str, is_stopped: threading.Event) -> Iterator[str]:
    """Receive and join spans of this workspace until the context ends; gives the address.

    Raises UsageError and WorkspaceError.
    """
    with Store.open(settings.database) as store, receiving(settings, store, key=key) as receiver:
        upkeep = threading.Thread(
            target=keep_up, args=(store, settings.inbox, is_stopped, receiver.store_refusals), daemon=True
        )
        upkeep.start()
        scoring = threading.Thread(target=keep_scoring, args=(settings, store, is_stopped), daemon=True)
        if settings.inbox.score:
            scoring.start()
        pulling = threading.Thread(target=keep_pulling, args=(settings, store, is_stopped), daemon=True)
        if settings.inbox.pull:
            pulling.start()
        try:
            yield receiver.address
        finally:
            is_stopped.set()
            upkeep.join(10)
            if settings.inbox.score:
                scoring.join(10)
            if settings.inbox.pull:
                pulling.join(10)


def _bound_receiver(store: Store, reader: Any, inbox: InboxSettings, key: str) -> InboxReceiver:
    try:
        return InboxReceiver(store, reader, host=inbox.host, port=inbox.port, key=key)
    except OSError as error:
        if not inbox.port:
            raise WorkspaceError(f"the inbox cannot listen on {inbox.host}: {error}") from error
    try:
        return InboxReceiver(store, reader, host=inbox.host, port=0, key=key)
    except OSError as error:
        raise WorkspaceError(f"the inbox cannot listen on {inbox.host}: {error}") from error


def keep_up(
    store: Store,
    inbox: InboxSettings,
    is_stopped: threading.Event,
    before_upkeep: Callable[[], None],
    seconds: Callable[[], float] = time.monotonic,
) -> None:
    """Join new spans, close quiet conversations and remove old ones, until `is_stopped`."""
    next_upkeep_s = seconds()
    while not is_stopped.is_set():
        began_s = seconds()
        n = 0
        try:
            n = join_new(store, SETTLE_S)
            if began_s >= next_upkeep_s:
                next_upkeep_s = began_s + UPKEEP_S
                before_upkeep()
                tidy(store, inbox)
        except (EvaldeskError, SQLAlchemyError, OSError) as error:
            log.warning("the inbox cannot be brought up to date: %s", error)
        # At most half of the time goes into joining, so that requests are answered meanwhile.
        is_stopped.wait(max(seconds() - began_s, 0.02) if n else STEP_S)


def keep_scoring(settings: Settings, store: Store, is_stopped: threading.Event) -> None:
    """Score new conversations as `[inbox.score]` says, until `is_stopped`; a thread of its own, since judges are slow.

    The consent of a person is asked for each time, so that a desk that was trusted meanwhile scores by judges.
    """
    from evaldesk.desk.inbox.live import LiveDesk

    while settings.inbox.score and not is_stopped.is_set():
        try:
            is_trusted = not Trust(settings).is_restricted
            LiveDesk(settings, store).score_by_settings(settings.inbox.score, is_trusted=is_trusted)
        except (EvaldeskError, SQLAlchemyError, OSError) as error:
            log.warning("the inbox cannot score: %s", error)
        is_stopped.wait(UPKEEP_S)


def keep_pulling(settings: Settings, store: Store, is_stopped: threading.Event) -> None:
    """Pull the sources of `[inbox.pull]` each hour, until `is_stopped`; nothing without the trust of a person."""
    from evaldesk.desk.inbox.pulling import PullDesk

    def wait(seconds: float) -> None:
        if is_stopped.wait(seconds):
            raise WorkspaceError("the inbox is closed")

    pulls = PullDesk(settings, store)
    while not is_stopped.is_set():
        for source in pulls.due() if not Trust(settings).is_restricted else ():
            try:
                pulls.pull(pulls.plan(source), wait)
            except (EvaldeskError, SQLAlchemyError, OSError) as error:
                log.warning("[inbox.pull.%s]: %s", source, scrub(str(error), settings.environment))
        is_stopped.wait(UPKEEP_S)


@contextmanager
def started_listener(
    settings: Settings, *, port: int | None, key: str, is_loopback: bool = False
) -> Iterator[Listener]:
    """A process that listens until the context ends, or this process does. Raises UsageError and WorkspaceError.

    With `is_loopback` it listens there and nowhere else.
    """
    check_listening(with_loopback(settings.inbox) if is_loopback else settings.inbox, key)
    arguments = ["inbox", "listen", "--workspace", str(settings.workspace), "--with-desk"]
    arguments += [] if port is None else ["--port", str(port)]
    arguments += ["--loopback"] if is_loopback else []
    environment = dict(os.environ) | ({KEY_VARIABLE: key} if key else {})
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "evaldesk", *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        line = process.stdout.readline() if process.stdout else b""
        try:
            values = json.loads(line)
            listener = Listener(str(values["address"]), bool(values["needs_key"]))
        except (ValueError, KeyError, TypeError):
            raise WorkspaceError("the inbox could not be opened; the reason is above") from None
        yield listener
    finally:
        # It ends with its input: also when this process is killed.
        with suppress(OSError):
            if process.stdin:
                process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
