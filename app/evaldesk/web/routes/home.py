"""The first page: changes since the last visit, and the next steps."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.pages.home import home, live_runs
from evaldesk.web.render import desk_of, go, page, target_of
from evaldesk.web.visits import last_visit


async def index(request: Request) -> Response:
    """GET /: what got worse, what goes on, what waits, a small trend of each set, and the newest runs."""
    desk = desk_of(request)
    if desk.is_restricted and not desk.trust.is_look_only:
        return go("/trust")
    if target_of(request) == "live":
        runs = await asyncio.to_thread(live_runs, desk)
        return page(request, "home/live.html", live=runs)
    since, is_known = last_visit(request, desk.now())
    # A set that is being read asks for its own part again and again, which needs no news.
    of_page = None if target_of(request) == "evalsets" else since
    view = await asyncio.to_thread(home, desk, desk.agents.list(), of_page, is_visit_known=is_known)
    return page(request, "home/index.html", block="evalsets", home=view, settings=desk.settings)


routes = [Route("/", index)]
