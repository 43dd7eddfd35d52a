"""The agents: the description of each, and whether it loads."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.pages.agents import errored_words, kind_words, reach_words, signature
from evaldesk.pages.trend_sparks import set_sparks
from evaldesk.web.render import desk_of, go, page


async def index(request: Request) -> Response:
    """Every agent that was found; the page asks again while one is loading."""
    desk = desk_of(request)
    await desk.agents.look_again()
    agents = desk.agents.list()
    recent = await asyncio.to_thread(lambda: {each.id: errored_words(desk.stored_runs, each.id) for each in agents})
    is_loading = any(agent.state in {"unknown", "loading"} for agent in agents)
    # The page asks again and again while an agent is loading; the trends come with its last answer.
    sparks = [] if is_loading else await asyncio.to_thread(lambda: set_sparks(desk))
    return page(
        request,
        "agents/index.html",
        block="agents",
        agents=agents,
        is_loading=is_loading,
        sparks={each.id: [spark for spark in sparks if spark.agent_id == each.id] for each in agents},
        is_sample=desk.agents.is_sample,
        recent=recent,
        signature=signature,
        kind_words=kind_words,
        reach={each.id: reach_words(each.ref, desk.settings) for each in agents},
    )


async def look_again(request: Request) -> Response:
    """Look for new and removed agents, and load failed ones again."""
    await desk_of(request).agents.look_again(ask_failed=True)
    return go("/agents")


routes = [
    Route("/agents", index),
    Route("/agents/discovery", look_again, methods=["POST"]),
]
