"""A simulated user that talks to an agent in a new chat session."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from evaldesk.web.forms import read_form, text_of
from evaldesk.web.render import desk_of


async def simulate(request: Request) -> Response:
    """POST …/cases/{key}/simulation: play the scenario in a new chat session, and go there."""
    desk = desk_of(request)
    form = await read_form(request)
    file = await run_in_threadpool(desk.evalsets.file, request.path_params["set_id"])
    found = await run_in_threadpool(desk.evalsets.cases.find, file.id, request.path_params["key"])
    session = await desk.simulation.start(text_of(form, "agent"), found.case)
    return RedirectResponse(f"/sessions/{session.id}", status_code=303)


routes = [Route("/evalsets/{set_id}/cases/{key}/simulation", simulate, methods=["POST"])]
