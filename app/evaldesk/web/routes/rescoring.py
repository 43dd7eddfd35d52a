"""A finished run scored again by other criteria."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.criteria.criteria import allowed_criteria
from evaldesk.desk.failures import checked_id
from evaldesk.desk.runs.set_changes import changes_on_page
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.errors import UsageError
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.pages.criteria.form import Typed, read_criteria, text_typed
from evaldesk.pages.criteria.labels import check_labels, with_another
from evaldesk.pages.criteria.metric_form import Offer, metric_form, own_functions
from evaldesk.web.forms.run import like_run, read_form_values
from evaldesk.web.render import desk_of, go, number, page, run_id_of, target_of

EXPECTATIONS = "expectations"


async def show_new_scoring(request: Request) -> Response:
    """GET /runs/{run_id}/scorings/new: the criteria of the run, to be changed; with a judge of the failure `mode`."""
    desk, mode = desk_of(request), request.query_params.get("mode", "")
    run = await _run(request)
    if mode:
        mode_id = checked_id(mode, "mode")
        criteria = await asyncio.to_thread(desk.failures.judged_by, mode_id, run.config.criteria)
        run = replace(run, config=replace(run.config, criteria=criteria))
    return await _form(request, like_run(run))


async def preview(request: Request) -> Response:
    """POST /runs/{run_id}/scorings/new: the same form with the ticked values; `another` adds a metric once more."""
    return await _form(request, with_another(await read_form_values(request)))


async def create(request: Request) -> Response:
    """POST /runs/{run_id}/scorings: score the stored trials; an impossible value comes back beside its field."""
    form_values = await read_form_values(request)
    desk = desk_of(request)
    played_run = await _run(request)
    try:
        check_labels(form_values)
        criteria = allowed_criteria(read_criteria(form_values) or (), desk.settings, played_run.config.criteria)
        of_set = desk.evalsets if text_typed(form_values, EXPECTATIONS, "") == "set" else None
        run_id = await desk.runs.rescore(played_run.id, criteria, of_set)
    except UsageError as error:
        return await _form(request, form_values, error)
    return go(f"/runs/{run_id}")


async def _form(request: Request, form_values: Typed, error: UsageError | None = None) -> Response:
    desk = desk_of(request)
    run = await _run(request)
    cases = await asyncio.to_thread(desk.stored_runs.snapshots, run.id)
    same = ""
    with suppress(UsageError):  # it is beside its field once the form is sent
        criteria = allowed_criteria(read_criteria(form_values) or (), desk.settings, run.config.criteria)
        same = await desk.runs.same_criteria(run.id, criteria)
    changes = await asyncio.to_thread(changes_on_page, desk.evalsets, desk.stored_runs, run)
    expectations = text_typed(form_values, EXPECTATIONS, request.query_params.get(EXPECTATIONS, ""))
    functions = {*desk.settings.functions, *own_functions(run.config.criteria)}
    problems = defaultdict(str, {(error.field or "") if error else "": str(error or "")})
    offer = Offer(desk.settings.allowed_judges, functions)
    metrics = await asyncio.to_thread(metric_form, form_values, cases, offer)
    target = target_of(request)
    return page(
        request,
        "runs/rescore.html",
        block=target if target in ("plan", "same") else None,
        status=422 if error else 200,
        run=run,
        title=run_title(run),
        is_live=run.status in LIVE,
        metrics=metrics,
        problems=problems,
        problem=str(error or ""),
        same="" if changes and expectations == "set" else same,
        changes=changes,
        is_of_set=expectations == "set",
    )


async def _run(request: Request) -> RunSummary:
    """The run, with the functions and judges alone that this workspace may take over from it."""
    runs = desk_of(request).runs
    run = await runs.summary(run_id_of(request))
    return replace(run, config=await asyncio.to_thread(runs.own_part, run))


SCORINGS = f"/runs/{number('run_id')}/scorings"
routes = [
    Route(SCORINGS + "/new", show_new_scoring, methods=["GET"]),
    Route(SCORINGS + "/new", preview, methods=["POST"]),
    Route(SCORINGS, create, methods=["POST"]),
]
