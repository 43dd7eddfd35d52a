"""Experiments: the variants of one eval set as one table, with their analysis."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.experiments.confirming import confirm as confirm_leader
from evaldesk.errors import UsageError
from evaldesk.pages.experiment import ExperimentPage, read_experiment_page
from evaldesk.pages.experiments import read_experiments
from evaldesk.pages.runs.table_query import number_text
from evaldesk.web.forms.fields import number_of, read_form, text_of
from evaldesk.web.live import event_stream
from evaldesk.web.live_table import live_messages, live_table, row_numbers
from evaldesk.web.render import desk_of, fragment, go, number, packed, page, target_of


async def index(request: Request) -> Response:
    """GET /experiments?before=: the list, newest first, a page at a time."""
    before = number_of(request.query_params.get("before"))
    return page(
        request, "experiments/index.html", listing=await asyncio.to_thread(read_experiments, desk_of(request), before)
    )


async def show(request: Request) -> Response:
    """GET /experiments/{experiment_id}: the page, its table alone, or the next rows of that."""
    experiment_id: int = request.path_params["experiment_id"]
    view = await asyncio.to_thread(read_experiment_page, desk_of(request), experiment_id, request.query_params)
    target = target_of(request)
    block = target if target in ("table", "more") else None
    response = page(request, "experiments/show.html", block=block, view=view, table=view.table, is_stream=False, cut="")
    return packed(request, response)


async def events(request: Request) -> Response:
    """GET /experiments/{experiment_id}/events?rows=0,1: the blocks that change while its variants play."""
    experiment_id: int = request.path_params["experiment_id"]
    desk, rows = desk_of(request), row_numbers(request.query_params.get("rows", ""))

    def read() -> ExperimentPage:
        return read_experiment_page(desk, experiment_id, request.query_params, rows)

    page_now = await asyncio.to_thread(read)  # a fault is a page, not an empty stream

    async def render(marker: str) -> str:
        view = await asyncio.to_thread(read)
        values = {"view": view, "table": view.table, "is_stream": True, "cut": marker}
        return fragment(request, "experiments/show.html", "live", **values)

    table = live_table(request.app, str(request.url))
    return event_stream(request, live_messages(desk, page_now.table.query.run_ids, table, render))


async def confirm(request: Request) -> Response:
    """POST /experiments: play a leader against its baseline with new seeds, and show that experiment."""
    form = await read_form(request)
    baseline_id, leader_id = (number_text(text_of(form, name)) for name in ("baseline", "leader"))
    if not baseline_id or not leader_id:
        raise UsageError("name the numbers of two runs, baseline and leader", field="leader")
    return go(f"/experiments/{await confirm_leader(desk_of(request), baseline_id, leader_id)}")


routes = [
    Route("/experiments", index, methods=["GET"]),
    Route("/experiments", confirm, methods=["POST"]),
    Route(f"/experiments/{number('experiment_id')}", show, methods=["GET"]),
    Route(f"/experiments/{number('experiment_id')}/events", events, methods=["GET"]),
]
