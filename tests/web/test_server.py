"""Where the desk listens, and what is said when it cannot."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

import pytest

from evaldesk.errors import WorkspaceError
from evaldesk.web import server


def test_a_port_that_is_taken_is_not_shared() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        with pytest.raises(
            WorkspaceError, match=rf"127\.0\.0\.1:{port} cannot be used: .*; choose another with --port"
        ):
            server._bind("127.0.0.1", [port])


def test_two_desks_that_start_at_once_take_two_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        first_port = free.getsockname()[1]

    with (
        closing(server._bind("127.0.0.1", [first_port, 0])) as first,
        closing(server._bind("127.0.0.1", [first_port, 0])) as second,
    ):
        ports = [each.getsockname()[1] for each in (first, second)]

    assert ports[0] == first_port
    assert ports[1] != first_port


def test_a_host_that_cannot_be_used_is_not_tried_with_other_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", _raising(OSError(errno.EADDRNOTAVAIL, "no such address")))

    with pytest.raises(
        WorkspaceError, match=r"192\.0\.2\.1:8420 cannot be used: no such address; choose another --host"
    ):
        server._bind("192.0.2.1", [8420, 8421])


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EAFNOSUPPORT, "choose another --host"),
        (errno.EADDRNOTAVAIL, "choose another --host"),
        (errno.EADDRINUSE, "choose another with --port, or --port 0"),
        (errno.EACCES, "choose another with --port, or --port 0"),
    ],
    ids=["no IPv6", "no such address", "taken", "for root"],
)
def test_an_address_that_cannot_be_used_says_what_else_to_try(
    monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    monkeypatch.setattr(socket, "socket", _raising(OSError(number, os.strerror(number))))

    with pytest.raises(WorkspaceError) as raised:
        server._bind("::1", [8420])

    assert str(raised.value) == f"[::1]:8420 cannot be used: {os.strerror(number)}; {advice}"


def _raising(error: OSError) -> Callable[..., socket.socket]:
    def raise_it(*_: object, **__: object) -> socket.socket:
        raise error

    return raise_it


@pytest.mark.parametrize(("usual", "is_heard"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)], ids=["", "nohup"])
def test_a_closed_terminal_ends_the_server_as_ctrl_c_does(usual: signal.Handlers, *, is_heard: bool) -> None:
    found = server._Server(server.server_config(cast("Any", None)), "", None, asyncio.Event())
    before = signal.signal(signal.SIGHUP, usual)
    try:
        with found.capture_signals():
            heard = signal.getsignal(signal.SIGHUP)
        after = signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert (heard == found.handle_exit, after) == (is_heard, usual)
