"""The first page: the next steps."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.pages.home import home
from evaldesk.web.render import desk_of, go, page


async def index(request: Request) -> Response:
    """Next steps, the newest runs, eval sets and agents."""
    desk = desk_of(request)
    if desk.is_restricted and not desk.trust.is_look_only:
        return go("/trust")
    view = await asyncio.to_thread(home, desk, desk.agents.list())
    return page(request, "home/index.html", block="evalsets", home=view, settings=desk.settings)


routes = [Route("/", index)]
