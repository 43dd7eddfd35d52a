"""The gate in front of an application that counts what got through to it."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from evaldesk.web.guard import Guard, guard_settings

TOKEN = "a-token-of-enough-letters"
GOOD_HOST = "127.0.0.1:8420"


class Changes:
    """An application that counts what got through to it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def endpoint(self, request: Request) -> Response:
        await request.body()
        self.seen.append(f"{request.method} {request.url.path}")
        return PlainTextResponse("inside")


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def client(changes: Changes) -> TestClient:
    routes = [Route("/{path:path}", changes.endpoint, methods=["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])]
    return TestClient(
        Guard(Starlette(routes=routes), guard_settings(TOKEN, 8420)),
        base_url=f"http://{GOOD_HOST}",
        follow_redirects=False,
    )
