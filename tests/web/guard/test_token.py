"""The gate opens to who holds the token, in a cookie of its own or as a bearer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from evaldesk.web.guard import MAX_FAILURES_PER_S, Guard, guard_settings, mcp_key

if TYPE_CHECKING:
    from tests.web.guard.conftest import Changes

TOKEN = "a-token-of-enough-letters"
GOOD_HOST = "127.0.0.1:8420"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cookie": "evaldesk-8420="},
        {"Cookie": f"evaldesk-8420={TOKEN.upper()}"},
        {"Cookie": f"evaldesk-8420={TOKEN[:-1]}"},
        {"Cookie": f"evaldesk-9999={TOKEN}"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN},
    ],
    ids=["none", "empty", "wrong case", "prefix", "other port", "wrong bearer", "no scheme"],
)
def test_without_the_token_nothing_is_served(client: TestClient, changes: Changes, headers: dict[str, str]) -> None:
    answer = client.get("/", headers=headers)

    assert answer.status_code == 401
    assert "evaldesk ui" in answer.text
    assert changes.seen == []


def test_the_token_as_bearer_is_for_programs(client: TestClient) -> None:
    assert client.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_first_visit_trades_the_token_for_a_cookie(client: TestClient) -> None:
    answer = client.get(f"/?token={TOKEN}&tab=runs")

    assert answer.status_code == 303
    assert answer.headers["location"] == "/?tab=runs"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("evaldesk-8420=")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_desks_on_two_ports_share_a_browser() -> None:
    """Cookies do not tell ports apart: the browser sends both cookies to both desks."""
    desks = {port: _desk(port) for port in (8420, 8421)}
    visits = [desk.get(f"/?token={TOKEN}-{port}") for port, desk in desks.items()]
    jar = "; ".join(visit.headers["set-cookie"].partition(";")[0] for visit in visits)

    answers = [desk.get("/", headers={"Cookie": jar}).status_code for desk in desks.values()]

    assert answers == [200, 200]


def _desk(port: int) -> TestClient:
    app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("inside"))])
    guard = Guard(app, guard_settings(f"{TOKEN}-{port}", port))
    return TestClient(guard, base_url=f"http://127.0.0.1:{port}", follow_redirects=False)


def test_a_first_visit_from_another_page_is_refreshed_by_our_own(client: TestClient) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}

    answer = client.get(f"/?token={TOKEN}", headers=headers)

    assert answer.status_code == 200
    assert 'content="0;url=/"' in answer.text


@pytest.mark.parametrize("query", ["token=wrong", "token=", f"token={TOKEN}&token={TOKEN}", f"token={TOKEN.upper()}"])
def test_a_wrong_token_gives_no_cookie(client: TestClient, query: str) -> None:
    answer = client.get(f"/?{query}")

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["//evil.com", "/\\evil.com", "///evil.com"])
def test_the_clean_address_stays_here(client: TestClient, path: str) -> None:
    answer = client.get(f"http://{GOOD_HOST}{path}?token={TOKEN}")

    assert answer.headers["location"] == "/evil.com"


@pytest.mark.parametrize(
    "value", ["stale", "x" * len(TOKEN), "0" * 64], ids=["stale", "as long as the token", "digest"]
)
def test_wrong_cookies_of_our_name_lock_nobody_out(client: TestClient, value: str) -> None:
    ours = client.get(f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    wrong = "; ".join([f"evaldesk-8420={value}"] * 200)

    answers = [client.get("/", headers={"Cookie": f"{wrong}; {ours}; {wrong}"}) for _ in range(20)]

    assert {answer.status_code for answer in answers} == {200}
    assert client.get(f"/?token={TOKEN}").status_code == 303


def test_stale_cookies_of_an_earlier_desk_are_no_guesses(client: TestClient) -> None:
    for _ in range(20):
        client.get("/", headers={"Cookie": f"evaldesk-8420={'0' * 64}"})

    assert client.get(f"/?token={TOKEN}").status_code == 303


def test_the_cookie_does_not_hold_the_token(client: TestClient) -> None:
    cookie = client.get(f"/?token={TOKEN}").headers["set-cookie"]

    assert TOKEN not in cookie
    assert client.get("/", headers={"Cookie": cookie.partition(";")[0]}).status_code == 200
    assert client.get("/", headers={"Cookie": cookie.partition(";")[0].upper()}).status_code == 401


def test_guessing_is_throttled_in_cookies_as_well() -> None:
    guard = Guard(Starlette(), guard_settings(TOKEN, 8420), clock=lambda: 0.0)
    client = TestClient(guard, base_url=f"http://{GOOD_HOST}", follow_redirects=False)
    guesses = "; ".join(f"evaldesk-8420={number:0{len(TOKEN)}}" for number in range(50))

    for _ in range(10):
        client.get("/", headers={"Cookie": guesses})

    assert client.get("/", headers={"Cookie": f"evaldesk-8420={TOKEN}"}).status_code == 401


def test_guessing_is_throttled() -> None:
    guard = Guard(Starlette(), guard_settings(TOKEN, 8420), clock=lambda: 0.0)
    client = TestClient(guard, base_url=f"http://{GOOD_HOST}", follow_redirects=False)

    for _ in range(10):
        client.get("/?token=wrong")

    assert client.get(f"/?token={TOKEN}").status_code == 401


@pytest.mark.parametrize(
    "cookies",
    [
        f'theme={{"dark": true, "a": [1]}}; evaldesk-8420={TOKEN}',
        f"a b c; ; =; evaldesk-8420={TOKEN}; bad@name=1",
        f"evaldesk-8420=stale; evaldesk-8420={TOKEN}",
        f'x="unclosed; evaldesk-8420={TOKEN}',
    ],
    ids=["JSON", "malformed", "twice", "quote"],
)
def test_cookies_of_other_programs_on_this_machine_do_not_hide_ours(client: TestClient, cookies: str) -> None:
    assert client.get("/", headers={"Cookie": cookies}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/runs/1", "/proposals/3/accept", "/mcp/", "/mcpx", "//mcp", "/MCP", "/mcp/../runs"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_key_of_coding_agents_opens_no_page(client: TestClient, changes: Changes, method: str, path: str) -> None:
    answer = client.request(method, path, headers={"Authorization": f"Bearer {mcp_key(TOKEN)}"})

    assert answer.status_code == 401
    assert changes.seen == []


@pytest.mark.parametrize("query", [f"token={mcp_key(TOKEN)}", f"token={TOKEN}&token={mcp_key(TOKEN)}"])
def test_the_key_of_coding_agents_gives_no_cookie(client: TestClient, query: str) -> None:
    answer = client.get(f"/?{query}")

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_the_key_of_coding_agents_is_no_cookie(client: TestClient) -> None:
    answer = client.get("/", headers={"Cookie": f"evaldesk-8420={mcp_key(TOKEN)}"})

    assert answer.status_code == 401


def test_guesses_of_the_key_are_throttled_with_those_of_the_token() -> None:
    guard = Guard(Starlette(), guard_settings(TOKEN, 8420), clock=lambda: 0.0)
    client = TestClient(guard, base_url=f"http://{GOOD_HOST}")
    for number in range(MAX_FAILURES_PER_S):
        client.post("/mcp", headers={"Authorization": f"Bearer guess-{number}"})

    assert client.post("/mcp", headers={"Authorization": f"Bearer {mcp_key(TOKEN)}"}).status_code == 401
    assert client.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 401
