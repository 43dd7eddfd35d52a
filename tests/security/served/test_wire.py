"""What a client can do below HTTP's manners: upgrades, lies about lengths, and patience."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

import pytest

WEBSOCKET = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")

FORM = "application/x-www-form-urlencoded"


def status(answer: bytes) -> int:
    """The status of the first answer; 0 when the connection was closed without one."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


@pytest.mark.parametrize("target", ["/", "/runs/1/events", "/nowhere"])
@pytest.mark.parametrize("origin", ["", "Origin: http://evil.invalid"], ids=["no origin", "foreign"])
def test_no_upgrade_to_a_websocket_happens(served: Any, target: str, origin: str) -> None:
    lines = [line for line in (*WEBSOCKET, origin) if line]

    head = served.head("GET", target, *lines).replace(b"Connection: close", b"Connection: Upgrade")

    answer = served.head_of_answer(head)

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
    head = served.head("POST", "/evalsets", "Content-Length: 100", f"Content-Type: {FORM}")

    with served.connect() as connection:
        connection.sendall(head + b"name=half&descr")
        connection.shutdown(socket.SHUT_WR)
        served.rest(connection)

    assert served.fort.fingerprint() == before


def test_a_body_longer_than_its_length_is_cut_there(served: Any) -> None:
    head = served.head("POST", "/evalsets", "Content-Length: 9", f"Content-Type: {FORM}")

    answer = served.send(head + b"name=fourand more of it")

    assert status(answer) == 303
    assert (served.fort.folder / "evalsets" / "four.evalset.json").is_file()


def test_a_chunked_body_is_counted(served: Any) -> None:
    before = served.fort.fingerprint()
    head = served.head("POST", "/evalsets", "Transfer-Encoding: chunked", f"Content-Type: {FORM}")
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"

    with served.connect() as connection:
        with suppress(OSError):  # refused while it is still being sent
            connection.sendall(head + chunk * 11)
        answer = served.rest(connection)

    assert status(answer) in {0, 413}  # nothing arrives where the refusal is overtaken by the end of the connection
    assert served.fort.fingerprint() == before
    assert status(served.send(served.head())) == 200


def test_a_head_that_does_not_come_is_not_waited_for(served: Any) -> None:
    served.http.head_s = 0.1

    with served.connect() as silent, served.connect() as slow:
        with suppress(OSError):  # closed already
            slow.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        assert served.rest(slow) == b""
        assert served.rest(silent) == b""

    served.http.head_s = 60.0
    assert status(served.send(served.head())) == 200


def test_a_second_request_has_its_time_as_well(served: Any) -> None:
    with served.connect() as connection:
        connection.sendall(served.head("HEAD").replace(b"Connection: close\r\n", b""))
        assert status(connection.recv(65536)) == 200
        served.http.head_s = 0.1
        connection.sendall(b"GET / HT")
        assert served.rest(connection) == b""


def test_a_head_of_endless_length_is_cut_off(served: Any) -> None:
    most = 64_000_000  # more than the buffers between the two hold

    with served.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        n_sent = 0
        with suppress(ConnectionError):
            while n_sent < most:
                n_sent += connection.send(b"X-Padding: " + b"x" * 8000 + b"\r\n")

    assert n_sent < most


def test_more_cookies_than_a_browser_keeps_lock_nobody_out(served: Any) -> None:
    cookies = "; ".join(f"evaldesk-{served.port}={'x' * 4000}" for _ in range(180))

    assert status(served.send(served.head("GET", "/", f"Cookie: {cookies}"))) == 200


def test_a_head_that_is_too_large_is_answered_with_what_to_do(served: Any) -> None:
    head = served.head("GET", "/", f"Cookie: {'x' * 2**20}")

    with served.connect() as connection:
        connection.sendall(head[: 2**20 + 1])
        answer = served.rest(connection)

    assert status(answer) == 400
    assert b"delete the cookies of this host" in answer


def test_four_thousand_parameters_are_nothing_much(served: Any) -> None:
    answer = served.send(served.head("GET", "/runs?" + "a=&" * 2700))

    assert status(answer) == 200
    assert status(served.send(served.head("GET", "/runs?" + "a=&" * 10_000))) in {0, 400, 414}


def test_many_ranges_of_a_static_file_are_answered_at_once(served: Any) -> None:
    ranges = ",".join(f"{number}-" for number in range(5000))

    answer = served.send(served.head("GET", "/static/app.css", f"Range: bytes={ranges}"))

    assert status(answer) in {200, 206, 400, 416}
    assert answer.count(b"Content-Range") <= 1


def test_who_is_refused_is_not_listened_to_any_longer(served: Any) -> None:
    head = f"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: 1000000\r\n\r\n"

    answer = served.send(head.encode())

    assert status(answer) == 401
    assert b"connection: close" in answer.lower()
