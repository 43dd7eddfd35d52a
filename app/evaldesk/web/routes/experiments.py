"""Experiments: the variants of one eval set as one table, with their analysis."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.experiments.confirming import confirm as confirm_leader
from evaldesk.errors import UsageError
from evaldesk.pages.experiment import read_experiment_page
from evaldesk.pages.runs.table_query import number_text
from evaldesk.web.forms.fields import read_form, text_of
from evaldesk.web.render import desk_of, go, number, packed, page, target_of


async def show(request: Request) -> Response:
    """GET /experiments/{experiment_id}: the page, its table alone, or the next rows of that."""
    experiment_id: int = request.path_params["experiment_id"]
    view = await asyncio.to_thread(read_experiment_page, desk_of(request), experiment_id, request.query_params)
    target = target_of(request)
    block = target if target in ("table", "more") else None
    return packed(request, page(request, "experiments/show.html", block=block, view=view, table=view.table))


async def confirm(request: Request) -> Response:
    """POST /experiments: play a leader against its baseline with new seeds, and show that experiment."""
    form = await read_form(request)
    baseline_id, leader_id = (number_text(text_of(form, name)) for name in ("baseline", "leader"))
    if not baseline_id or not leader_id:
        raise UsageError("name the numbers of two runs, baseline and leader", field="leader")
    return go(f"/experiments/{await confirm_leader(desk_of(request), baseline_id, leader_id)}")


routes = [
    Route("/experiments", confirm, methods=["POST"]),
    Route(f"/experiments/{number('experiment_id')}", show, methods=["GET"]),
]
