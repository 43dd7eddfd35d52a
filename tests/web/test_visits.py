"""The last visit of a browser: a cookie that only pages write, and that nothing else can spoil."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from starlette.requests import HTTPConnection
from tests.web.conftest import ChatDesk

from evaldesk.web.visits import GAP_S, UNKNOWN, Visit, last_visit, visit_at, visit_of_part

NOW = 1_800_000_000
PAGE = {"Accept": "text/html"}


@pytest.mark.parametrize(
    ("cookie", "visit"),
    [
        ("", Visit(0, NOW)),
        (f"{NOW - 9000}-{NOW - 10}", Visit(NOW - 9000, NOW)),
        (f"{NOW - 9000}-{NOW - GAP_S}", Visit(NOW - GAP_S, NOW)),
        (f"0-{NOW - 10}", Visit(0, NOW)),
        (f"{NOW}-{NOW + 5}", Visit(0, NOW)),
        (f"{NOW - 5}-{NOW - 10}", Visit(0, NOW)),
        ("1-2-3", Visit(0, NOW)),
        ("-1-5", Visit(0, NOW)),
        ("٣-٤", Visit(0, NOW)),
        ("9" * 400 + "-1", Visit(0, NOW)),
    ],
    ids=["none", "same visit", "new visit", "first visit", "future", "backwards", "words", "sign", "digits", "long"],
)
def test_a_visit_ends_with_half_an_hour_without_a_page(cookie: str, visit: Visit) -> None:
    assert visit_at(cookie, NOW) == visit


@pytest.mark.parametrize(
    ("cookie", "visit"),
    [
        ("", Visit(0, NOW)),
        (f"{NOW - 9000}-{NOW - 10}", Visit(NOW - 9000, NOW - 10)),
        (f"{NOW - 90_000}-{NOW - 10 * GAP_S}", Visit(NOW - 90_000, NOW - 10 * GAP_S)),
        (f"{NOW - 5}-{NOW + 5}", Visit(0, NOW)),
        (f"{NOW - 5}-{NOW - 10}", Visit(0, NOW)),
        ("9" * 400 + "-1", Visit(0, NOW)),
    ],
    ids=["none", "same visit", "tab left open", "future", "backwards", "long"],
)
def test_a_part_belongs_to_the_visit_of_its_page(cookie: str, visit: Visit) -> None:
    assert visit_of_part(cookie, NOW) == visit


def test_without_a_known_visit_a_day_is_shown() -> None:
    now = datetime.fromtimestamp(NOW, UTC)
    scopes = [{"type": "http", "evaldesk.visit": visit} for visit in (None, Visit(0, NOW), Visit(NOW - 7200, NOW))]

    visits = [last_visit(HTTPConnection(scope), now) for scope in scopes]

    assert visits == [(now - UNKNOWN, False), (now - UNKNOWN, False), (now - timedelta(hours=2), True)]


def test_pages_write_the_cookie_and_parts_streams_and_refusals_do_not(chat: ChatDesk) -> None:
    page = chat.client.get("/agents", headers=PAGE)
    part = chat.client.get("/agents", headers={**PAGE, "HX-Request": "true"})
    other = chat.client.get("/agents", headers={"Accept": "*/*"})
    lost = chat.client.get("/nowhere", headers=PAGE)
    style = chat.client.get("/static/app.css", headers=PAGE)

    cookie = page.headers["set-cookie"]
    assert cookie.startswith(f"evaldesk-visit-{chat.desk.mark}=0-")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert all("set-cookie" not in answer.headers for answer in (part, other, lost, style))


def test_a_page_within_a_minute_writes_no_cookie_again(chat: ChatDesk) -> None:
    cookie = chat.client.get("/agents", headers=PAGE).headers["set-cookie"].partition(";")[0]
    jar = {"Cookie": f"{chat.client.headers['Cookie']}; {cookie}"}

    again = chat.client.get("/agents", headers={**PAGE, **jar})

    assert "set-cookie" not in again.headers
