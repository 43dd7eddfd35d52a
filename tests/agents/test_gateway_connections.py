"""The connections of the model gateway: kept on both sides between calls, and never a way into another call."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.agents.endpoint import chunks, completion

from evaldesk.agents.remote import providers
from evaldesk.agents.remote.forwarding import open_gateway
from evaldesk.agents.remote.providers import open_answer
from evaldesk.model import Event, Session

CALL = {"model": "small", "messages": [{"role": "user", "content": "hi"}]}
STREAMED = {**CALL, "stream": True}


@dataclass
class Provider:
    """A provider that keeps connections: how many came, the calls in order, whether it ends one after its answer."""

    address: str = ""
    n_connections: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    ends_silently: bool = False
    length_told: int | None = None


@pytest.fixture(autouse=True)
def _kept_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes between two calls."""
    monkeypatch.setattr(providers, "MAX_IDLE_S", 3600.0)


@pytest.fixture
def provider() -> Iterator[Provider]:
    seen = Provider()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            seen.n_connections += 1
            super().handle()

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.asked.append(asked)
            self.send_response(200)
            self._stream() if asked.get("stream") else self._whole(json.dumps(completion("hello")).encode())
            self.wfile.flush()
            self.close_connection = seen.ends_silently

        def _whole(self, data: bytes) -> None:
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(seen.length_told or len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self) -> None:
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for event in (*map(json.dumps, chunks({"role": "assistant", "content": "hello"})), "[DONE]"):
                piece = f"data: {event}\n\n".encode()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    seen.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield seen
    server.shutdown()
    server.server_close()


@dataclass
class Gateway:
    """A gateway in a turn: where an SDK finds it, and the events of its calls."""

    host: str
    path: str
    events: list[Event]

    @property
    def n_usages(self) -> int:
        return sum(event.usage is not None for event in self.events)


@pytest.fixture
def gateway(provider: Provider) -> Iterator[Gateway]:
    opened, events = open_gateway({"OPENAI_BASE_URL": provider.address}), list[Event]()
    address = urlsplit(opened.variables()["OPENAI_BASE_URL"])
    with opened.listening(Session("s"), events.append):
        yield Gateway(address.netloc, f"{address.path}/chat/completions", events)
    opened.close()


def called(connection: HTTPConnection, path: str, body: object) -> tuple[int, bytes]:
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    with connection.getresponse() as answer:
        return answer.status, answer.read()


def sent(host: str, data: bytes) -> bytes:
    """The whole answer to these bytes, until the gateway ends the connection."""
    name, _, port = host.partition(":")
    answer = b""
    with socket.create_connection((name, int(port)), timeout=300) as connection:
        connection.sendall(data)
        while piece := connection.recv(65536):
            answer += piece
    return answer


def test_calls_of_an_sdk_that_keeps_its_connection_take_one_to_the_provider(
    gateway: Gateway, provider: Provider
) -> None:
    sdk = HTTPConnection(gateway.host)

    answers = [called(sdk, gateway.path, body) for body in (CALL, STREAMED, CALL, STREAMED)]
    kept = sdk.sock

    assert [status for status, _ in answers] == [200] * 4
    assert [b"hello" in body for _, body in answers] == [True] * 4
    assert kept is not None
    assert gateway.n_usages == len(provider.asked) == 4
    assert provider.n_connections == 1
    sdk.close()


def test_a_connection_that_the_provider_ended_is_not_used_again(gateway: Gateway, provider: Provider) -> None:
    provider.ends_silently = True
    sdk = HTTPConnection(gateway.host)

    answers = [called(sdk, gateway.path, CALL) for _ in range(5)]

    assert [status for status, _ in answers] == [200] * 5
    assert [event.usage.n_attempts for event in gateway.events if event.usage] == [1] * 5
    assert len(provider.asked) == 5
    sdk.close()


def test_a_connection_closed_during_the_request_is_replaced(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "_is_ended", lambda connection: False)
    provider.ends_silently = True
    data = json.dumps(CALL).encode()

    for _ in range(3):
        with open_answer("POST", provider.address, data, {}) as answer:
            assert b"hello" in answer.read()
        time.sleep(0.05)  # its end arrives

    assert len(provider.asked) == provider.n_connections == 3


def test_an_unfinished_answer_closes_its_connection(provider: Provider) -> None:
    for size in (10, None):
        with open_answer("POST", provider.address, json.dumps(CALL).encode(), {}) as answer:
            assert answer.read(size).startswith(b'{"id"')

    assert provider.n_connections == 2


def test_an_answer_shorter_than_its_content_length_closes_its_connection(gateway: Gateway, provider: Provider) -> None:
    provider.length_told, provider.ends_silently = 100_000, True
    sdk = HTTPConnection(gateway.host)

    first = called(sdk, gateway.path, CALL)
    provider.length_told, provider.ends_silently = None, False
    second = called(sdk, gateway.path, CALL)

    assert b"hello" in first[1]
    assert second[0] == 200
    assert b"hello" in second[1]
    assert provider.n_connections == 2
    sdk.close()


def test_the_body_of_a_refused_request_is_never_read_as_the_next_one(gateway: Gateway, provider: Provider) -> None:
    inner = f"POST {gateway.path} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{{}}"
    nowhere = gateway.path.replace("/openai/", "/evil/")
    told = f"POST {nowhere} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(inner)}\r\n\r\n{inner}"
    chunked = f"POST {gateway.path} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{inner}"
    both = chunked.replace("transfer-encoding", "content-length: 0\r\ntransfer-encoding")
    huge = f"POST {gateway.path} HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n{inner}"

    answers = [sent(gateway.host, request.encode()) for request in (told, chunked, both, huge)]

    assert [answer.split(b" ")[1] for answer in answers] == [b"404", b"400", b"400", b"400"]
    assert [answer.count(b"HTTP/1.1 ") for answer in answers] == [1] * 4
    assert provider.asked == []


def test_a_client_of_http_1_0_reads_a_stream_without_chunks(gateway: Gateway) -> None:
    body = json.dumps(STREAMED)

    answer = sent(gateway.host, f"POST {gateway.path} HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())

    head, _, stream = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert stream.startswith(b"data: ")
    assert stream.endswith(b"data: [DONE]\n\n")


def test_a_large_body_gets_100_continue_first(gateway: Gateway, provider: Provider) -> None:
    name, _, port = gateway.host.partition(":")
    body = json.dumps({**CALL, "more": "x" * 100_000}).encode()
    head = f"POST {gateway.path} HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: {len(body)}\r\n\r\n"

    with socket.create_connection((name, int(port)), timeout=300) as connection:
        connection.sendall(head.encode())
        said = connection.recv(65536)
        connection.sendall(body)
        answer = connection.recv(65536)

    assert said.startswith(b"HTTP/1.1 100 ")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(provider.asked[0]["more"]) == 100_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_fork_does_not_use_the_connections_of_its_parent(provider: Provider) -> None:
    def call() -> None:
        with open_answer("POST", provider.address, json.dumps(CALL).encode(), {}) as answer:
            assert b"hello" in answer.read()

    call()
    child = os.fork()
    if not child:
        try:
            call()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    call()

    assert provider.n_connections == 2
    assert len(provider.asked) == 3
