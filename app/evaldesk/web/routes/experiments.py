"""Experiments: the variants of one eval set as one table, with their analysis."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.evalsets.masking import mask_file
from evaldesk.desk.experiments.confirming import confirm as confirm_leader
from evaldesk.errors import ConflictError, EvaldeskError, UsageError
from evaldesk.pages.experiment import ExperimentPage, chosen_results, read_experiment_page
from evaldesk.pages.experiment_files import experiment_csv, experiment_object
from evaldesk.pages.experiments import read_experiments
from evaldesk.pages.runs.table_query import number_text
from evaldesk.run_options import BY_NAME
from evaldesk.web.forms.fields import attachment, number_of, read_form, text_of
from evaldesk.web.live import event_stream
from evaldesk.web.live_table import live_messages, live_table, row_numbers
from evaldesk.web.render import desk_of, fragment, go, number, packed, page, refused_status, target_of
from evaldesk.web.report import experiment_report

BUDGET = BY_NAME["budget"]


async def index(request: Request) -> Response:
    """GET /experiments?before=: the list, newest first, a page at a time."""
    before = number_of(request.query_params.get("before"))
    return page(
        request, "experiments/index.html", listing=await asyncio.to_thread(read_experiments, desk_of(request), before)
    )


async def show(request: Request) -> Response:
    """GET /experiments/{experiment_id}: the page, its table alone, or the next rows of that."""
    return await _page(request, request.path_params["experiment_id"])


async def _page(
    request: Request, experiment_id: int, error: EvaldeskError | None = None, budget: str | None = None
) -> Response:
    view = await asyncio.to_thread(read_experiment_page, desk_of(request), experiment_id, request.query_params)
    target = target_of(request)
    block = target if target in ("table", "more") else None
    values: dict[str, Any] = {"view": view, "table": view.table, "is_stream": False, "cut": ""}
    values["budget"] = view.progress.budget if budget is None else budget
    values["problem"] = f"{str(error).rstrip('.')}." if error else ""
    response = page(request, "experiments/show.html", block=block, status=refused_status(error), **values)
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
        values = {"view": view, "table": view.table, "is_stream": True, "cut": marker, "budget": view.progress.budget}
        return fragment(request, "experiments/show.html", "live", **values)

    table = live_table(request.app, str(request.url))
    return event_stream(request, live_messages(desk, page_now.table.query.run_ids, table, render))


async def report(request: Request) -> Response:
    """GET /experiments/{experiment_id}/report: the page with its answer, its doubts and its cases as one HTML file."""
    desk, experiment_id = desk_of(request), request.path_params["experiment_id"]
    environment = desk.settings.environment
    file = await asyncio.to_thread(experiment_report, desk, experiment_id, request.query_params, environment)
    return attachment(file.data, file.file_name, "text/html")


async def as_csv(request: Request) -> Response:
    """GET /experiments/{experiment_id}/csv: a line for each variant, as `evaldesk experiment show --csv`."""
    desk, experiment_id = desk_of(request), request.path_params["experiment_id"]
    results = await asyncio.to_thread(chosen_results, desk, experiment_id, request.query_params)
    file = mask_file("".join(experiment_csv(results)).encode(), desk.settings.environment)
    return attachment(file.data, f"experiment_{experiment_id}.csv", "text/csv")


async def as_json(request: Request) -> Response:
    """GET /experiments/{experiment_id}/json: the experiment as `evaldesk experiment show --json` has it."""
    desk, experiment_id = desk_of(request), request.path_params["experiment_id"]
    results = await asyncio.to_thread(chosen_results, desk, experiment_id, request.query_params)
    file = mask_file(json.dumps(experiment_object(results), indent=2).encode(), desk.settings.environment)
    return attachment(file.data, f"experiment_{experiment_id}.json")


async def confirm(request: Request) -> Response:
    """POST /experiments: play a leader against its baseline with new seeds, and show that experiment."""
    form = await read_form(request)
    baseline_id, leader_id = (number_text(text_of(form, name)) for name in ("baseline", "leader"))
    if not baseline_id or not leader_id:
        raise UsageError("name the numbers of two runs, baseline and leader", field="leader")
    return go(f"/experiments/{await confirm_leader(desk_of(request), baseline_id, leader_id)}")


async def cancel(request: Request) -> Response:
    """POST /experiments/{experiment_id}/cancellation: begin no trial; those in flight finish, or end by `how=now`."""
    experiment_id: int = request.path_params["experiment_id"]
    how = text_of(await read_form(request), "how")
    await desk_of(request).experiments.stop(experiment_id, cancel=how == "now")
    return _back(request, experiment_id)


async def resume(request: Request) -> Response:
    """POST /experiments/{experiment_id}/resumption: play the trials that are left, under a `budget` of all."""
    experiment_id: int = request.path_params["experiment_id"]
    experiments = desk_of(request).experiments
    typed = text_of(await read_form(request), "budget").strip()
    try:
        budget = str(BUDGET.read(typed, BUDGET.title)) if typed else None
        await experiments.resume(experiment_id, budget=budget)
    except UsageError as error:
        return await _page(request, experiment_id, error, typed)
    except ConflictError as error:
        if budget is None or (await experiments.get(experiment_id)).plan.budget != budget:
            return await _page(request, experiment_id, error, typed)  # else another click was quicker
    return _back(request, experiment_id)


def _back(request: Request, experiment_id: int) -> Response:
    """The page of the experiment as it was shown."""
    query = f"?{request.url.query}" if request.url.query else ""
    return go(f"/experiments/{experiment_id}{query}")


routes = [
    Route("/experiments", index, methods=["GET"]),
    Route("/experiments", confirm, methods=["POST"]),
    Route(f"/experiments/{number('experiment_id')}", show, methods=["GET"]),
    Route(f"/experiments/{number('experiment_id')}/cancellation", cancel, methods=["POST"]),
    Route(f"/experiments/{number('experiment_id')}/resumption", resume, methods=["POST"]),
    Route(f"/experiments/{number('experiment_id')}/events", events, methods=["GET"]),
    Route(f"/experiments/{number('experiment_id')}/report", report, methods=["GET"]),
    Route(f"/experiments/{number('experiment_id')}/csv", as_csv, methods=["GET"]),
    Route(f"/experiments/{number('experiment_id')}/json", as_json, methods=["GET"]),
]
