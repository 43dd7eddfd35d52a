"""The health of an eval set: its page, which waits for the rules in the background."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.pages.set_health.finding import ci_command
from evaldesk.pages.set_health.room import find_agent, health_room
from evaldesk.web.render import desk_of, page


async def show(request: Request) -> Response:
    """GET /evalsets/{set_id}/health: the findings; `agent` is that of the newest run unless it is named."""
    desk, set_id = desk_of(request), request.path_params["set_id"]
    file = await run_in_threadpool(desk.evalsets.file, set_id)
    if file.error:
        return page(request, "evalsets/broken.html", status=422, file=file)
    if file.is_reading:
        return page(request, "evalsets/reading.html", file=file)
    name = request.query_params.get("agent", "")[:500]
    agent, agent_id = await run_in_threadpool(find_agent, desk, set_id, name)
    state = await run_in_threadpool(health_room(desk).ask, desk, file, agent, agent_id)
    values: dict[str, Any] = {
        "agent_id": agent_id,
        "health": state.health,
        "ci_command": ci_command(file.name, agent_id),
    }
    return page(request, "evalsets/health.html", block="health", file=file, state=state, **values)


routes = [Route("/evalsets/{set_id}/health", show)]
