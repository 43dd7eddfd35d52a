"""The first page: changes since the last visit, and the next steps."""

from __future__ import annotations

import asyncio
import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.pages.home import N_LIVE, home, live_runs
from evaldesk.web.render import desk_of, go, page, target_of
from evaldesk.web.visits import last_visit

_RUN_ID = re.compile(r"[0-9]{1,15}", re.ASCII)


async def index(request: Request) -> Response:
    """GET /: changes for the worse, running runs, open tasks, a small trend of each set, and the newest runs."""
    desk = desk_of(request)
    if desk.is_restricted and not desk.trust.is_look_only:
        return go("/trust")
    if target_of(request) == "live":
        shown_ids = [int(text) for text in request.query_params.getlist("live")[:N_LIVE] if _RUN_ID.fullmatch(text)]
        live = await asyncio.to_thread(live_runs, desk, shown_ids)
        return page(request, "home/live.html", live=live)
    since, is_known = last_visit(request, desk.now())
    # A set that is being read asks for its own part again and again, which needs no news.
    of_page = None if target_of(request) == "evalsets" else since
    view = await asyncio.to_thread(home, desk, desk.agents.list(), of_page, is_visit_known=is_known)
    return page(request, "home/index.html", block="evalsets", home=view, settings=desk.settings)


routes = [Route("/", index)]
