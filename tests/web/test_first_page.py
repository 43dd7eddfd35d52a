"""The first page is there before the others are imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.desk_client import DeskClient

from evaldesk.desk.desk import Desk
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

if TYPE_CHECKING:
    from evaldesk.engine import ChatPlayers

PORT = 8420
TOKEN = "a-token-of-enough-letters"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[DeskClient]:
    """A visitor of a desk that has not started: nothing is imported but what is asked for."""
    settings = Settings(workspace=tmp_path, roots=(tmp_path,), is_demo=True)
    with Store.open(settings.database) as store:
        yield DeskClient(
            create_app(Desk(settings, store, cast("ChatPlayers", None)), guard_settings(TOKEN, PORT)),
            base_url=f"http://127.0.0.1:{PORT}",
            headers={"Cookie": f"evaldesk-{PORT}={TOKEN}"},
        )


@pytest.mark.parametrize("has_found_none", [True, False])
def test_that_no_agent_was_found_is_said_where_one_was_looked_for(tmp_path: Path, *, has_found_none: bool) -> None:
    settings = Settings(workspace=tmp_path, roots=(tmp_path,), is_demo=True, has_found_none=has_found_none)
    with Store.open(settings.database) as store:
        desk = Desk(settings, store, cast("ChatPlayers", None))
        headers = {"Cookie": f"evaldesk-{PORT}={TOKEN}"}
        client = DeskClient(
            create_app(desk, guard_settings(TOKEN, PORT)), base_url=f"http://127.0.0.1:{PORT}", headers=headers
        )
        page = client.get("/").text

    assert "These are the samples" in page
    assert ("No agent was found in this folder." in page) is has_found_none


def served(client: DeskClient) -> set[str]:
    app = cast("Any", client.app).app
    return {route.path for route in app.routes}


def test_the_first_page_and_what_it_loads_need_no_other(client: DeskClient) -> None:
    statuses = [client.get(path).status_code for path in ("/", "/static/app.css")]

    assert statuses == [200, 200]
    assert served(client) == {"/", "/static"}


@pytest.mark.parametrize(("path", "status"), [("/runs", 200), ("/runs/7", 404), ("/nowhere", 404)])
def test_whoever_asks_for_another_page_first_gets_it(client: DeskClient, path: str, status: int) -> None:
    assert client.get(path).status_code == status
    assert "/runs" in served(client)


def test_the_pages_are_added_once(client: DeskClient) -> None:
    client.get("/runs")
    once = list(cast("Any", client.app).app.routes)

    client.get("/evalsets")

    assert cast("Any", client.app).app.routes == once
