"""Every address of the application, asked in every way it should not be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.routing import Route
from starlette.types import Message

from evaldesk.web.guard import MCP_PATH, mcp_key

FOREIGN: tuple[dict[str, str], ...] = (
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "null"},
)
HOSTILE_IDS = (
    "../x",
    "..%2f..%2fcanary.json",
    "%2e%2e%2fcanary.json",
    "..%252fcanary.json",
    "..;/canary.json",
    "....//canary.json",
    "a/../../canary.json",
    "%5c..%5ccanary.json",
    "%2fetc%2fpasswd",
    "C:%5cx",
    "C:x",
    "%2f%2fhost%2fshare",
    "file:%2f%2f%2fetc%2fpasswd",
    "~",
    "$HOME",
    "x::$DATA",
    "x.",
    "x%20",
    "PROGRA~1",
    "%00",
    "a%00.json",
    "%0a",
    "%0d%0aSet-Cookie:%20a=b",
    "%1b%5b31m",
    "%e2%80%ae",
    "%e2%80%8b",
    "e%cc%81",
    "%c3%a9",
    "%ff%fe",
    "%ed%a0%80",
    "a" * 300,
    "9" * 5000,
    "-1",
    "%2b1",
    "%d9%a3",
    "1e3",
    ".",
    "%20",
    "CON",
    "nul.json",
    "aux.evalset.json",
    "-x",
    ".hidden",
    "__proto__",
    "'%20OR%201=1--",
    "%25",
    "__class__",
)


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


def raw(fort: Any, *asked: tuple[str, str]) -> list[Answer]:
    """What is answered to methods and targets that no client has tidied: they reach the application as uvicorn's do."""

    async def answers() -> list[Answer]:
        return [await _answer(fort, method, target) for method, target in asked]

    return list(fort.client.within(answers))


async def _answer(fort: Any, method: str, target: str) -> Answer:
    path, _, query = target.partition("?")
    given = {"host": "127.0.0.1:8420", "cookie": f"evaldesk-8420={fort.token}"}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "server": ("127.0.0.1", 8420),
        "client": ("127.0.0.1", 1),
        "app": None,
    }
    sent: list[Message] = []
    incoming: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        return incoming.pop() if incoming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    with suppress(Exception):  # what escapes has been answered with 500 before
        await fort.client.app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return Answer(sent[0]["status"], dict(sent[0]["headers"]), body) if sent else Answer(500, {}, b"")


def methods(route: Route) -> set[str]:
    return set(route.methods or ())


def test_every_page_is_read_without_leaving_a_trace(open_fort: Callable[..., Any]) -> None:
    fort = open_fort()
    reads = [route for route in fort.routes() if "GET" in methods(route)]
    assert len(reads) > 15
    before = fort.fingerprint()

    for route in [*reads, *reads]:
        answer = fort.get(fort.address(route))
        assert answer.status_code in {200, 303}, (route.path, answer.status_code, answer.text[:500])
        assert fort.fingerprint() == before, route.path


def test_no_route_takes_both_reading_and_writing(fort: Any) -> None:
    for route in fort.routes():
        assert methods(route) in ({"GET", "HEAD"}, {"POST"}), route.path


@pytest.mark.parametrize("headers", FOREIGN, ids=lambda headers: " ".join(headers.values()))
def test_nothing_is_written_for_another_site(fort: Any, headers: dict[str, str]) -> None:
    before = fort.fingerprint()

    for route in fort.routes():
        if "POST" in methods(route):
            answer = fort.client.post(fort.address(route), data={"n": "1"}, headers=headers)
            assert answer.status_code == 403, route.path

    assert fort.fingerprint() == before


def test_nothing_is_read_by_another_site(fort: Any) -> None:
    headers = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}

    for route in fort.routes():
        if "GET" in methods(route):
            assert fort.get(fort.address(route), **headers).status_code == 403, route.path


def test_nothing_is_served_without_the_token(fort: Any) -> None:
    before = fort.fingerprint()

    for route in fort.routes():
        fort.client.cookies.clear()
        method = "POST" if "POST" in methods(route) else "GET"
        answer = fort.client.request(method, fort.address(route), headers={"Cookie": "none=1"})
        assert answer.status_code == 401, route.path

    assert fort.fingerprint() == before


def test_the_key_of_coding_agents_opens_their_door_alone(fort: Any) -> None:
    before = fort.fingerprint()
    fort.client.cookies.clear()

    for route in fort.routes():
        method = "POST" if "POST" in methods(route) else "GET"
        headers = {"Cookie": "none=1", "Authorization": f"Bearer {mcp_key(fort.token)}"}
        answer = fort.client.request(method, fort.address(route), headers=headers)
        assert (answer.status_code == 401) == (route.path != MCP_PATH), route.path

    assert fort.fingerprint() == before


def test_an_address_takes_its_own_methods_only(fort: Any) -> None:
    before = fort.fingerprint()

    for route in fort.routes():
        taken = {method for other in fort.routes() if other.path == route.path for method in methods(other)}
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} - taken:
            answer = fort.client.request(method, fort.address(route))
            # The address of a thing may also be that of a word below it: `/evalsets/new` is read, and is no set.
            outside = {401} if route.path == MCP_PATH else set()
            assert answer.status_code in {404, 405} | outside, (method, route.path)
            assert not [name for name in answer.headers if name.startswith("access-control")]

    assert fort.fingerprint() == before


def test_head_says_what_get_says_without_a_body(fort: Any) -> None:
    for route in fort.routes():
        if "GET" in methods(route) and "/events" not in route.path:
            answer = fort.client.head(fort.address(route))
            assert answer.status_code in {200, 303}, route.path
            assert "content-security-policy" in answer.headers


def test_every_answer_of_every_route_carries_the_policy(fort: Any) -> None:
    for route in fort.routes():
        answer = fort.client.request("GET" if "GET" in methods(route) else "POST", fort.address(route))
        assert "default-src 'none'" in answer.headers["content-security-policy"], route.path
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], route.path
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store", route.path
        assert "server" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_an_unknown_id_is_not_found(fort: Any) -> None:
    for route in fort.routes():
        for name in route.param_convertors:
            address = fort.address(route, **{name: "999999"})
            answer = fort.client.request("GET" if "GET" in methods(route) else "POST", address)
            # 409: a case that is gone while it is edited loses nothing that was typed.
            assert answer.status_code in {404, 409, 422}, (address, answer.status_code)


@pytest.fixture
def opened_paths() -> Iterator[list[str]]:
    """Every path that is opened for reading or writing while the test runs."""
    paths: list[str] = []
    is_on = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if is_on[0] and event in {"open", "os.listdir", "os.scandir"} and isinstance(arguments[0], str | Path):
            paths.append(str(arguments[0]))

    sys.addaudithook(hook)
    yield paths
    is_on[0] = False


@pytest.mark.long
def test_a_hostile_id_opens_nothing_and_is_not_found(fort: Any, opened_paths: list[str]) -> None:
    canary = fort.folder.parent / "canary.json"
    canary.write_text('{"eval_set_id": "canary", "eval_cases": []}')
    before = fort.fingerprint()
    opened_paths.clear()
    answered_wrongly = []

    for route in fort.routes():
        for name in route.param_convertors:
            method = "GET" if "GET" in methods(route) else "POST"
            answers = raw(fort, *((method, fort.address(route, **{name: hostile})) for hostile in HOSTILE_IDS))
            for hostile, answer in zip(HOSTILE_IDS, answers, strict=True):
                is_right = answer.status in {404, 405, 409, 422} and b"Traceback" not in answer.body
                if not is_right or b"set-cookie" in answer.headers:
                    answered_wrongly.append((answer.status, route.path, name, hostile[:80]))

    assert answered_wrongly == []
    allowed = (str(fort.folder), sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    assert [path for path in opened_paths if "canary" in path] == []
    assert [path for path in opened_paths if Path(path).is_absolute() and not path.startswith(allowed)] == []
    assert fort.fingerprint() == before


@pytest.mark.parametrize(
    "path",
    [
        "../app/evaldesk/web/guard.py",
        "%2e%2e/app/evaldesk/web/guard.py",
        "..%2fpyproject.toml",
        "%2fetc%2fpasswd",
        "vendor/..%2f..%2fpyproject.toml",
        "app.css%00.js",
        "vendor",
        "",
        ".",
        "a" * 4000,
    ],
)
def test_static_files_come_from_their_folder_only(fort: Any, path: str) -> None:
    [answer] = raw(fort, ("GET", f"/static/{path}"))

    assert answer.status == 404
    assert b"root:" not in answer.body
    assert b"requires-python" not in answer.body
