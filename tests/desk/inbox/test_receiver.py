"""The receiver: taken and refused requests, masks before storing, bursts, and no acknowledged span lost."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.agents.otlp_bytes import encoded
from tests.spans_of_agents import request, turn_spans

from evaldesk.desk.inbox import receiver as receiver_module
from evaldesk.desk.inbox.joining import join_new
from evaldesk.desk.inbox.masks import read_masks
from evaldesk.desk.inbox.receiver import InboxReceiver, span_reader
from evaldesk.errors import WorkspaceError
from evaldesk.model.inbox import ReceivedSpan
from evaldesk.store import Store
from evaldesk.store.tables.columns import unpack
from evaldesk.store.tables.inbox import SPANS

JSON, PROTOBUF = "application/json", "application/x-protobuf"
KEY = "a-key-of-16-letters"
BODY = json.dumps(request(turn_spans("Where is my order?", "On its way.", session="s1"))).encode()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as opened:
        yield opened


@pytest.fixture
def receiver(store: Store, tmp_path: Path) -> Iterator[InboxReceiver]:
    reader = span_reader(read_masks(["email"], "here"), {"SHOP_API_KEY": "zq7-secret-value-9911"}, tmp_path)
    opened = InboxReceiver(store, reader, host="127.0.0.1", port=0)
    yield opened
    opened.close()


def post(
    to: InboxReceiver, body: bytes = BODY, kind: str = JSON, path: str = "/v1/traces", **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", to.port, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, body, {"content-type": kind, **named})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def stored(store: Store) -> list[ReceivedSpan]:
    with store._database.reading() as connection:
        rows = connection.execute(select(SPANS.c.codec, SPANS.c.data).order_by(SPANS.c.id)).all()
    return [span for codec, data in rows for span in unpack(codec, data, list[ReceivedSpan])]


@pytest.mark.parametrize(
    ("body", "kind", "headers"),
    [
        pytest.param(BODY, JSON, {}, id="json"),
        pytest.param(BODY, "application/json; charset=utf-8", {}, id="json-with-charset"),
        pytest.param(encoded(json.loads(BODY)), PROTOBUF, {}, id="protobuf"),
        pytest.param(gzip.compress(encoded(json.loads(BODY))), PROTOBUF, {"content_encoding": "gzip"}, id="gzip"),
    ],
)
def test_spans_are_taken(
    receiver: InboxReceiver, store: Store, body: bytes, kind: str, headers: dict[str, Any]
) -> None:
    response = post(receiver, body, kind, **headers)

    assert response.status == 200
    assert len(stored(store)) == 2
    join_new(store, 0)
    assert store.inbox.list().items[0].first_words == "Where is my order?"


@pytest.mark.parametrize(
    ("status", "values"),
    [
        pytest.param(415, {"kind": "text/plain"}, id="kind-of-a-form"),
        pytest.param(415, {"kind": "application/x-www-form-urlencoded"}, id="form"),
        pytest.param(415, {"content_encoding": "br"}, id="encoding"),
        pytest.param(403, {"origin": "http://evil.example"}, id="origin"),
        pytest.param(403, {"origin": "null"}, id="origin-null"),
        pytest.param(403, {"sec_fetch_site": "same-origin"}, id="sec-fetch-site"),
        pytest.param(403, {"host": "evil.example"}, id="rebound-host"),
        pytest.param(403, {"host": "127.0.0.1"}, id="host-without-port"),
        pytest.param(404, {"path": "/v1/metrics"}, id="metrics"),
        pytest.param(404, {"path": "/a/b/v1/traces"}, id="path"),
        pytest.param(404, {"path": "/%00/v1/traces"}, id="source"),
        pytest.param(400, {"body": b'{"resourceSpans": [{"sco'}, id="truncated"),
        pytest.param(400, {"body": b"\x0a\xff\xff", "kind": PROTOBUF}, id="bytes"),
        pytest.param(400, {"body": b"[" * 100_000}, id="nested"),
        pytest.param(400, {"body": gzip.compress(bytes(64 * 2**20)), "content_encoding": "gzip"}, id="bomb"),
        pytest.param(400, {"body": b"no gzip", "content_encoding": "gzip"}, id="damaged"),
    ],
)
def test_other_requests_are_refused(receiver: InboxReceiver, store: Store, status: int, values: dict[str, Any]) -> None:
    assert post(receiver, **values).status == status
    assert stored(store) == []
    assert post(receiver).status == 200


def test_a_request_without_a_length_is_refused_and_one_that_is_too_long(receiver: InboxReceiver) -> None:
    for header, status in (("transfer-encoding: chunked", 411), (f"content-length: {2**30}", 413)):
        connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=20)
        connection.putrequest("POST", "/v1/traces")
        connection.putheader("content-type", JSON)
        connection.putheader(*header.split(": "))
        connection.endheaders()
        assert connection.getresponse().status == status
        connection.close()


def test_other_methods_are_refused(receiver: InboxReceiver) -> None:
    for method in ("GET", "PUT", "OPTIONS"):
        connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=20)
        connection.request(method, "/v1/traces")
        assert connection.getresponse().status == 405
        connection.close()


def test_a_path_or_a_header_names_the_source(receiver: InboxReceiver, store: Store) -> None:
    post(receiver, path="/shop-prod/v1/traces")
    post(receiver, x_evaldesk_source="mail")
    post(receiver)

    assert [each.name for each in store.inbox_spans.sources()] == ["local", "mail", "shop-prod"]


def test_a_key_is_demanded_where_there_is_one(store: Store, tmp_path: Path) -> None:
    keyed = InboxReceiver(store, span_reader((), {}, tmp_path), host="127.0.0.1", port=0, key=KEY)

    statuses = [
        post(keyed, **values).status
        for values in (
            dict[str, Any](),
            {"path": "/wrong/v1/traces"},
            {"x_evaldesk_key": "wrong"},
            {"path": f"/{KEY}/v1/traces"},
            {"path": f"/{KEY}/shop/v1/traces"},
            {"x_evaldesk_key": KEY},
            {"authorization": f"Bearer {KEY}"},
        )
    ]
    keyed.close()

    assert statuses == [401, 401, 401, 200, 200, 200, 200]
    assert {each.name for each in store.inbox_spans.sources()} == {"local", "shop"}


def test_secrets_and_personal_data_are_masked_before_they_are_stored(
    receiver: InboxReceiver, store: Store, tmp_path: Path
) -> None:
    text = "I am anna@example.org, key zq7-secret-value-9911"
    body = json.dumps(request(turn_spans(text, "Hi Anna", tool="find", attributes={"user.id": "anna"}))).encode()

    post(receiver, body)

    kept = repr(stored(store))
    assert "[email]" in kept
    assert not any(word in kept for word in ("anna@", "zq7-secret"))
    assert all(span.attributes.get("user.id") != "anna" for span in stored(store))
    files = b"".join(path.read_bytes() for path in (tmp_path / ".evaldesk").iterdir() if path.is_file())
    assert b"anna@example" not in files


def test_a_burst_is_told_to_come_back_and_counted(
    receiver: InboxReceiver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, is_reached = threading.Event(), threading.Event()
    receive = store.inbox_spans.receive

    def slow(batches: Any) -> None:
        is_reached.set()
        may_go_on.wait(20)
        receive(batches)

    monkeypatch.setattr(receiver.queue, "_receive", slow)
    monkeypatch.setattr(receiver_module, "MAX_PENDING", len(BODY))
    statuses: list[int] = []
    first = threading.Thread(target=lambda: statuses.append(post(receiver).status))
    first.start()
    assert is_reached.wait(20)

    second = post(receiver, path="/shop/v1/traces")
    may_go_on.set()
    first.join(20)
    receiver.store_refusals()

    assert (second.status, second.headers["retry-after"], statuses) == (503, "5", [200])
    assert {each.name: each.n_refused for each in store.inbox_spans.sources()} == {"local": 0, "shop": 1}
    assert post(receiver).status == 200


def test_a_database_that_refuses_is_a_reason_to_come_back(
    receiver: InboxReceiver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(batches: Any) -> None:
        raise WorkspaceError("the disk is full")

    monkeypatch.setattr(receiver.queue, "_receive", refuse)

    assert post(receiver).status == 503


def test_no_acknowledged_span_is_lost_when_the_receiver_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "evaldesk", "inbox", "listen", "--with-desk", "--port", "0", "--workspace", "."]
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db"):
        pass
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "EVALDESK_INBOX_KEY": ""},
    )
    assert process.stdout
    assert process.stdin
    port = int(json.loads(process.stdout.readline())["address"].rpartition(":")[2])
    acknowledged: list[str] = []

    def send(worker: int) -> None:
        for number in range(10_000):
            query = f"question {worker} {number}"
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            try:
                body = json.dumps(request(turn_spans(query, "Yes."))).encode()
                connection.request("POST", "/v1/traces", body, {"content-type": JSON})
                if connection.getresponse().status == 200:
                    acknowledged.append(query)
            except (OSError, http.client.HTTPException):
                return
            finally:
                connection.close()
                if len(acknowledged) >= 40:
                    is_enough.set()

    is_enough = threading.Event()
    senders = [threading.Thread(target=send, args=(worker,)) for worker in range(4)]
    for sender in senders:
        sender.start()
    assert is_enough.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait(20)
    for sender in senders:
        sender.join(30)
    process.stdout.close()
    process.stdin.close()

    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store:
        while join_new(store, 0):
            pass
        found = {each.first_words for each in store.inbox.list(limit=1000).items}
        assert store.try_hold("inbox") is not None
    assert {*acknowledged} <= found
