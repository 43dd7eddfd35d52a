"""What a client can do below HTTP's manners: upgrades, lies about lengths, and patience."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

WEBSOCKET = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")


def status(answer: bytes) -> int:
    """The status of the first answer; 0 when the connection was closed without one."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


@pytest.mark.parametrize("target", ["/", "/runs/1/events", "/nowhere"])
@pytest.mark.parametrize("origin", ["", "Origin: http://evil.invalid"], ids=["no origin", "foreign"])
def test_no_upgrade_to_a_websocket_happens(served: Any, target: str, origin: str) -> None:
    lines = [line for line in (*WEBSOCKET, origin) if line]

    head = served.head("GET", target, *lines).replace(b"Connection: close", b"Connection: Upgrade")

    answer = served.send(head, timeout_s=1.0)

    assert status(answer) != 101
    assert status(answer) == 403 or not origin


def test_options_is_refused_and_allows_nobody_anything(served: Any) -> None:
    lines = ("Origin: http://evil.invalid", "Access-Control-Request-Method: POST")

    answer = served.send(served.head("OPTIONS", "/runs", *lines))

    assert status(answer) == 405
    assert b"access-control" not in answer.lower()


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: -1",),
        ("Content-Length: 99999999999999999999999999",),
        ("Transfer-Encoding: chunked, identity",),
        ("Bad Header: x",),
        ("X: a\x00b",),
        (" folded: x",),
    ],
    ids=["two lengths", "length and chunked", "negative", "too large", "encoding", "space", "nul", "folded"],
)
def test_a_request_that_can_be_read_in_two_ways_is_not_read(served: Any, lines: tuple[str, ...]) -> None:
    before = served.fort.fingerprint()

    answer = served.send(served.head("POST", "/runs", *lines) + b"0\r\n\r\n")

    assert status(answer) in {0, 400, 413}
    assert served.fort.fingerprint() == before


def test_a_body_shorter_than_its_length_has_no_effect(served: Any) -> None:
    before = served.fort.fingerprint()
    head = served.head("POST", "/evalsets", "Content-Length: 100", "Content-Type: application/x-www-form-urlencoded")

    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(head + b"name=half&descr")

    assert served.fort.fingerprint() == before


def test_a_body_longer_than_its_length_is_cut_there(served: Any) -> None:
    head = served.head("POST", "/evalsets", "Content-Length: 9", "Content-Type: application/x-www-form-urlencoded")

    answer = served.send(head + b"name=fourand more of it")

    assert status(answer) == 303
    assert (served.fort.folder / "evalsets" / "four.evalset.json").is_file()


def test_a_chunked_body_is_counted(served: Any) -> None:
    head = served.head("POST", "/evalsets", "Transfer-Encoding: chunked", "Content-Type: text/plain")
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"

    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
        connection.sendall(head)
        for _ in range(11):
            try:
                connection.sendall(chunk)
            except OSError:
                break  # refused while it was still being sent

    assert served.fort.client is not None
    assert status(served.send(served.head())) == 200


def test_a_head_that_does_not_come_is_not_waited_for(serve: Callable[..., Any]) -> None:
    served = serve(head_s=0.3)
    begun = time.monotonic()

    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as silent:
        with socket.create_connection(("127.0.0.1", served.port), timeout=5) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: 127")
            assert slow.recv(100) == b""
        assert silent.recv(100) == b""

    assert time.monotonic() - begun < 4
    assert status(served.send(served.head())) == 200


def test_a_second_request_has_its_time_as_well(serve: Callable[..., Any]) -> None:
    served = serve(head_s=0.3)

    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
        connection.sendall(served.head("HEAD").replace(b"Connection: close\r\n", b""))
        assert status(connection.recv(65536)) == 200
        connection.sendall(b"GET / HT")
        assert connection.recv(65536) == b""


def test_a_head_of_endless_length_is_cut_off(served: Any) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        n_sent = 0
        try:
            while n_sent < 10_000_000:
                n_sent += connection.send(b"X-Padding: " + b"x" * 8000 + b"\r\n")
        except OSError:
            pass

    assert n_sent < 10_000_000


def test_four_thousand_parameters_are_nothing_much(served: Any) -> None:
    begun = time.monotonic()

    answer = served.send(served.head("GET", "/runs?" + "a=&" * 2700))

    assert status(answer) == 200
    assert time.monotonic() - begun < 2
    assert status(served.send(served.head("GET", "/runs?" + "a=&" * 10_000))) in {0, 400, 414}


def test_many_ranges_of_a_static_file_are_answered_at_once(served: Any) -> None:
    ranges = ",".join(f"{number}-" for number in range(5000))
    begun = time.monotonic()

    answer = served.send(served.head("GET", "/static/app.css", f"Range: bytes={ranges}"))

    assert status(answer) in {200, 206, 400, 416}
    assert time.monotonic() - begun < 2


def test_who_is_refused_is_not_listened_to_any_longer(served: Any) -> None:
    head = f"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: 1000000\r\n\r\n"

    answer = served.send(head.encode())

    assert status(answer) == 401
    assert b"connection: close" in answer.lower()
