"""The search over the whole workspace: a page, and the options of the palette."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.pages.finding import MAX_EACH, find
from evaldesk.web.render import desk_of, page, target_of

MAX_TEXT = 200
EACH_OF_PAGE = 30


async def show(request: Request) -> Response:
    """The places that fit `q`: as options where the palette asks, else as a page."""
    text = request.query_params.get("q", "")[:MAX_TEXT]
    is_palette = target_of(request) == "found"
    places = await asyncio.to_thread(find, desk_of(request), text, MAX_EACH if is_palette else EACH_OF_PAGE)
    template = "search/options.html" if is_palette else "search/index.html"
    return page(request, template, found=places, typed=text)


routes = [Route("/search", show, methods=["GET"])]
