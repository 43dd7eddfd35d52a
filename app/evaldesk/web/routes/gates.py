"""The page of gates."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.pages.gates import read_gates
from evaldesk.web.render import desk_of, page


async def index(request: Request) -> Response:
    """GET /gates: the answers of each gate over the last runs; `show` is what they have in common."""
    show = request.query_params.get("show", "")
    found = await asyncio.to_thread(read_gates, desk_of(request).runs.stored, show)
    return page(request, "gates/index.html", found=found)


routes = [Route("/gates", index, methods=["GET"])]
