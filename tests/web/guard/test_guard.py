"""The gate in front of every page: DESIGN.md section 9, one test a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Message

from evaldesk.settings import public_url
from evaldesk.web.guard import LOOPBACK_NAMES, MAX_BODY, Guard, guard_settings

if TYPE_CHECKING:
    from tests.web.guard.conftest import Changes

TOKEN = "a-token-of-enough-letters"
GOOD_HOST = "127.0.0.1:8420"
COOKIE = {"Cookie": f"evaldesk-8420={TOKEN}"}


@pytest.mark.parametrize("host", ["127.0.0.1:8420", "localhost:8420", "LOCALHOST:8420", "[::1]:8420"])
def test_the_names_of_loopback_are_served(client: TestClient, host: str) -> None:
    assert client.get("/", headers={**COOKIE, "Host": host}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
@pytest.mark.parametrize(
    "host",
    [
        "evil.com",
        "evil.com:8420",
        "127.0.0.1.evil.com:8420",
        "localhost:8420@evil.com",
        "127.1:8420",
        "0.0.0.0:8420",
        "2130706433:8420",
        "127.0.0.1:9999",
        "127.0.0.1",
        "localhost.:8420",
        "localhost:8420/static?x",
        "127.0.0.1:8420, evil.com",
        "",
    ],
)
def test_any_other_host_is_refused_without_an_echo(
    client: TestClient, changes: Changes, host: str, method: str
) -> None:
    answer = client.request(method, "/static/app.css", headers={**COOKIE, "Host": host})

    assert answer.status_code == 400
    assert "evil.com" not in answer.text
    assert changes.seen == []


@pytest.mark.anyio
@pytest.mark.parametrize("hosts", [[], [GOOD_HOST, "evil.com"], [GOOD_HOST, GOOD_HOST]], ids=["none", "two", "twice"])
async def test_exactly_one_host_header_is_wanted(hosts: list[str]) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [(b"host", host.encode()) for host in hosts] + [(b"cookie", COOKIE["Cookie"].encode())],
    }
    await Guard(Starlette(), guard_settings(TOKEN, 8420))(scope, receive, send)

    assert sent[0]["status"] == 400


def test_forwarded_headers_change_nothing(client: TestClient) -> None:
    headers = {**COOKIE, "X-Forwarded-Host": "evil.com", "Forwarded": "host=evil.com"}

    assert client.get("/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
        {"Origin": "http://evil.com"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "https://127.0.0.1:8420"},
        {"Origin": "http://localhost.evil.com:8420"},
        {"Origin": "http://127.0.0.1:8420", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
def test_a_post_from_elsewhere_has_no_effect(
    client: TestClient, changes: Changes, headers: dict[str, str], content_type: str
) -> None:
    answer = client.post("/runs", content="n=5", headers={**COOKIE, **headers, "Content-Type": content_type})

    assert answer.status_code == 403
    assert changes.seen == []


@pytest.mark.parametrize(
    "lines",
    [
        [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "same-origin"), ("Origin", "http://127.0.0.1:8420"), ("Origin", "null")],
    ],
    ids=["two sites", "two origins"],
)
def test_a_line_that_says_our_own_page_hides_no_other(
    client: TestClient, changes: Changes, lines: list[tuple[str, str]]
) -> None:
    answer = client.post("/runs", headers=[*COOKIE.items(), *lines])

    assert answer.status_code == 403
    assert changes.seen == []


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://localhost:8420"}, {}])
def test_a_post_of_our_own_page_goes_through(client: TestClient, changes: Changes, headers: dict[str, str]) -> None:
    assert client.post("/runs", headers={**COOKIE, **headers}).status_code == 200
    assert changes.seen == ["POST /runs"]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_only_three_methods_exist(client: TestClient, changes: Changes, method: str) -> None:
    assert client.request(method, "/runs", headers=COOKIE).status_code == 405
    assert changes.seen == []


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
@pytest.mark.parametrize(("mode", "destination"), [("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe")])
def test_another_site_cannot_load_or_frame_a_page(client: TestClient, site: str, mode: str, destination: str) -> None:
    headers = {**COOKIE, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": destination}

    assert client.get("/runs/1/events", headers=headers).status_code == 403


def test_a_link_on_another_site_may_lead_here(client: TestClient) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}

    assert client.get("/runs", headers={**COOKIE, **headers}).status_code == 200


def test_no_websocket_is_opened(client: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/", headers=COOKIE):
        pass


@pytest.mark.parametrize("address", ["/", "/?token=wrong", "/nowhere"])
@pytest.mark.parametrize("headers", [COOKIE, {}, {**COOKIE, "Host": "evil.com"}], ids=["in", "out", "evil host"])
def test_every_answer_carries_the_headers(client: TestClient, address: str, headers: dict[str, str]) -> None:
    answer = client.get(address, headers=headers)

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "'unsafe-inline'" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_each_answer_has_its_own_nonce(client: TestClient) -> None:
    policies = {client.get("/", headers=COOKIE).headers["content-security-policy"] for _ in range(3)}

    assert len(policies) == 3


def test_a_body_over_the_limit_is_refused_before_it_is_read(client: TestClient, changes: Changes) -> None:
    answer = client.post("/evalsets", headers={**COOKIE, "Content-Length": str(MAX_BODY + 1)}, content=b"")

    assert answer.status_code == 413
    assert changes.seen == []


def test_a_body_of_the_limit_is_taken(client: TestClient, changes: Changes) -> None:
    client.post("/evalsets", headers={**COOKIE, "Content-Length": str(MAX_BODY)}, content=b"")

    assert len(changes.seen) == 1


def test_a_body_without_a_length_is_counted_while_it_streams(client: TestClient, changes: Changes) -> None:
    def chunks() -> object:
        for _ in range(11):
            yield b"x" * 1024 * 1024

    answer = client.post("/evalsets", headers=COOKIE, content=chunks())  # type: ignore[arg-type]

    assert answer.status_code == 413
    assert changes.seen == []


@pytest.mark.parametrize(
    ("method", "path", "kind", "status"),
    [
        ("POST", "/imports", "multipart/form-data; boundary=x", 200),
        ("POST", "/imports", "application/x-www-form-urlencoded", 413),
        ("POST", "/imports", "", 413),
        ("POST", "/imports/x", "multipart/form-data; boundary=x", 413),
        ("POST", "//imports", "multipart/form-data; boundary=x", 413),
        ("GET", "/imports", "multipart/form-data; boundary=x", 413),
    ],
)
def test_only_the_page_of_imports_takes_more_and_only_as_files(
    client: TestClient, method: str, path: str, kind: str, status: int
) -> None:
    headers = {**COOKIE, "Content-Length": str(MAX_BODY + 1), "Content-Type": kind}

    assert client.request(method, path, headers=headers, content=b"").status_code == status


def test_a_very_long_address_is_refused(client: TestClient) -> None:
    assert client.get("/" + "a" * 9000, headers=COOKIE).status_code == 414


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "1e9", "0x10", "+5", " ", "1,1"])
def test_a_length_that_is_no_number_is_refused(client: TestClient, changes: Changes, length: str) -> None:
    answer = client.post("/evalsets", headers={**COOKIE, "Content-Length": length}, content=b"")

    assert answer.status_code == 413
    assert changes.seen == []


def test_who_is_refused_may_not_go_on_sending(client: TestClient) -> None:
    assert client.post("/", content=b"x").headers["connection"] == "close"


PUBLIC = public_url("https://evals.example", "--public-url")


@pytest.fixture
def behind_proxy(changes: Changes) -> TestClient:
    """A client of a desk that a proxy serves as https://evals.example."""
    routes = [Route("/{path:path}", changes.endpoint, methods=["GET", "POST"])]
    settings = guard_settings(TOKEN, 8420, public=PUBLIC)
    return TestClient(Guard(Starlette(routes=routes), settings), base_url=f"http://{GOOD_HOST}", follow_redirects=False)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("evals.example", "https://evals.example", 200),
        ("Evals.Example:443", "https://evals.example", 200),
        ("evals.example", "http://evals.example", 403),
        ("evals.example", "https://evals.example:8443", 403),
        ("evals.example", "https://other.example", 403),
        ("evals.example:8420", "https://evals.example", 400),
        ("sub.evals.example", "https://evals.example", 400),
        (GOOD_HOST, f"http://{GOOD_HOST}", 200),
        (GOOD_HOST, f"https://{GOOD_HOST}", 403),
    ],
)
def test_a_public_address_gives_host_and_origin(behind_proxy: TestClient, host: str, origin: str, status: int) -> None:
    answer = behind_proxy.post("/runs", headers={**COOKIE, "Host": host, "Origin": origin})

    assert answer.status_code == status


@pytest.mark.parametrize(("host", "is_secure"), [("evals.example", True), (GOOD_HOST, False)])
def test_the_cookie_is_secure_at_an_encrypted_public_address(
    behind_proxy: TestClient, host: str, is_secure: bool
) -> None:
    answer = behind_proxy.get(f"/runs?token={TOKEN}", headers={"Host": host, "X-Forwarded-Proto": "https"})

    assert answer.headers["location"] == "/runs"
    assert ("; Secure" in answer.headers["set-cookie"]) is is_secure


@pytest.mark.parametrize(
    ("host", "status"), [("desk.example", 200), ("desk.example:8420", 200), ("other.example", 400)]
)
def test_an_allowed_name_is_served_with_and_without_the_port(changes: Changes, host: str, status: int) -> None:
    routes = [Route("/{path:path}", changes.endpoint, methods=["GET", "POST"])]
    settings = guard_settings(TOKEN, 8420, (*LOOPBACK_NAMES, "desk.example"))
    client = TestClient(Guard(Starlette(routes=routes), settings), base_url=f"http://{GOOD_HOST}")

    answer = client.post("/runs", headers={**COOKIE, "Host": host, "Origin": f"http://{host}"})

    assert answer.status_code == status
