"""The door for coding agents on an open desk: POST /mcp, off unless evaldesk.toml says `[mcp] serve = true`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from evaldesk.desk.desk import Desk
from evaldesk.errors import UsageError
from evaldesk.model.client_budget import Budget
from evaldesk.pages.door.tools import Caller
from evaldesk.web.guard import MCP_PATH

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server

    from evaldesk.web.mcp_server import ClientNames


class _Door:
    """The server of a desk, made by the first request that it may answer."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @cached_property
    def names(self) -> ClientNames:
        from evaldesk.web.mcp_server import ClientNames

        return ClientNames()

    @cached_property
    def server(self) -> Server[Any]:
        from evaldesk.web.mcp_server import build_server, check_installed

        check_installed()
        settings = self._desk.settings.mcp
        budget = Budget.read(settings.budget) if settings.budget else None

        async def opened() -> Desk:
            return self._desk

        return build_server(opened, Caller(allowed=frozenset(settings.allow), budget=budget))


class _Endpoint:
    """An ASGI application: the package writes the whole answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["app"].state
        if not state.desk.settings.mcp.serve or state.desk.is_restricted:  # the file may be of a folder from elsewhere
            raise HTTPException(404)
        if not hasattr(state, "door"):
            state.door = _Door(state.desk)
        try:
            server = state.door.server
        except UsageError as error:
            raise HTTPException(501, str(error)) from error
        from evaldesk.web.mcp_server import serve_request

        await serve_request(server, state.door.names, scope, receive, send)


routes = [Route(MCP_PATH, _Endpoint(), methods=["POST"])]
