"""The question whether this folder may run its code."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.trust import question_words
from evaldesk.web.render import desk_of, go, page


async def show(request: Request) -> Response:
    """The things that would run, and the two answers."""
    desk = desk_of(request)
    question = await asyncio.to_thread(desk.trust.question)
    return page(
        request,
        "trust/show.html",
        question=question,
        rows=question_words(question),
        is_given=not desk.is_restricted,
    )


async def give(request: Request) -> Response:
    """Trust the folders of this desk: their agents are asked, and waiting runs go on."""
    desk = desk_of(request)
    if desk.is_restricted:
        await desk.give_trust()
    return go("/")


async def look_only(request: Request) -> Response:
    """Show the pages; nothing runs."""
    desk_of(request).trust.look_only()
    return go("/")


routes = [
    Route("/trust", show),
    Route("/trust", give, methods=["POST"]),
    Route("/trust/look", look_only, methods=["POST"]),
]
