"""Experiments: the variants of one eval set as one table, with their analysis."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.pages.experiment import read_experiment_page
from evaldesk.web.render import desk_of, number, packed, page, target_of


async def show(request: Request) -> Response:
    """GET /experiments/{experiment_id}: the page, its table alone, or the next rows of that."""
    experiment_id: int = request.path_params["experiment_id"]
    view = await asyncio.to_thread(read_experiment_page, desk_of(request), experiment_id, request.query_params)
    target = target_of(request)
    block = target if target in ("table", "more") else None
    return packed(request, page(request, "experiments/show.html", block=block, view=view, table=view.table))


routes = [Route(f"/experiments/{number('experiment_id')}", show, methods=["GET"])]
