"""Acceptance of trials' behaviour as expectations: staged, looked at, saved once."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.runs.accepting import Keys, Staged, save, stage, verdicts_now
from evaldesk.errors import ConflictError, LossError, UsageError
from evaldesk.pages.accepting import accept_page, keys_of, typed_ways
from evaldesk.web.forms.fields import number_of, read_form, text_of
from evaldesk.web.render import desk_of, go, number, page, run_id_of, target_of


async def show(request: Request) -> Response:
    """GET /runs/{run_id}/acceptance: every change of the failed cases, or of `case` and its `trial` (from 1).

    Of `queue` it is each trial that a reader passed and the metrics failed.
    After a save the cases of `saved` are shown as they are judged now.
    """
    names = request.query_params.getlist("saved")
    if names:
        return await _saved_page(request, names)
    query = request.query_params
    queue = query.get("queue", "")
    staged = await _staged_acceptance(request, query.get("case"), query.get("trial"), queue)
    return await _page(request, staged, {}, queue)


async def preview(request: Request) -> Response:
    """POST /runs/{run_id}/acceptance/effect: the effect of the ticked changes; nothing is written."""
    form = await read_form(request)
    staged, queue = await _staged_again(request, form)
    return await _page(request, staged, keys_of(typed_ways(form.multi_items())), queue, is_judged=True)


async def create(request: Request) -> Response:
    """POST /runs/{run_id}/acceptance: write the ticked changes, if the file is as it was shown."""
    form = await read_form(request)
    staged, queue = await _staged_again(request, form)
    ways = typed_ways(form.multi_items())
    change_keys = keys_of(ways)
    offered_keys = {f"{each.key}:{change.key}" for each in staged.cases for change in each.offered}
    remaining_ways = {name: way for name, way in ways.items() if name in offered_keys}
    if str(form.get("version", "")) != staged.version:
        fits = f"{len(remaining_ways)} of your {len(ways)} changes still fit; look at them and save again."
        problem = f"Not saved: {staged.file_name} changed meanwhile. {fits}"
        return await _page(request, staged, keys_of(remaining_ways), queue, problem)
    try:
        token = await asyncio.to_thread(save, desk_of(request), staged, change_keys)
    except (UsageError, ConflictError, LossError) as error:
        return await _page(request, staged, change_keys, queue, f"Not saved: {error}")
    case_ids = [each.case.id for each in staged.cases if change_keys.get(each.key)]
    query = urlencode([*(("saved", name) for name in case_ids), ("undo", token)])
    return go(f"/runs/{staged.run.id}/acceptance?{query}")


async def _saved_page(request: Request, names: list[str]) -> Response:
    desk = desk_of(request)
    run = await desk.runs.summary(run_id_of(request))
    effects = await asyncio.to_thread(verdicts_now, desk, run, names)
    token = request.query_params.get("undo", "")
    can_undo = await asyncio.to_thread(lambda: token in desk.evalsets.cases.edits)
    again = {"agent": run.config.agent.id, "evalset": run.config.evalset_id, "case": list(effects)}
    return page(
        request,
        "runs/accepted.html",
        run=run,
        effects=effects,
        undo=token if can_undo else "",
        again_href=f"/runs/new?{urlencode(again, doseq=True)}",
    )


async def _staged_again(request: Request, form: FormData) -> tuple[Staged, str]:
    """The subject of the form, and its queue."""
    case, trial, queue = (text_of(form, name) for name in ("case", "trial", "queue"))
    return await _staged_acceptance(request, case or None, trial or None, queue), queue


async def _staged_acceptance(request: Request, case: str | None, trial: str | None, queue: str) -> Staged:
    desk = desk_of(request)
    run = await desk.runs.summary(run_id_of(request))
    if (queue_id := number_of(queue)) is not None:
        case_keys = await asyncio.to_thread(desk.queues.too_narrow, queue_id, run.id)
        return await asyncio.to_thread(stage, desk, run, of_cases=case_keys)
    number = number_of(trial)
    return await asyncio.to_thread(stage, desk, run, case, number - 1 if number else None)


async def _page(
    request: Request, staged: Staged, change_keys: Keys, queue: str, problem: str = "", *, is_judged: bool = False
) -> Response:
    """The staged changes; the form names again the `queue` whose trials they are of."""
    view = await asyncio.to_thread(accept_page, desk_of(request), staged, change_keys, problem, is_judged=is_judged)
    return page(
        request,
        "runs/accept.html",
        block="effect" if target_of(request) == "effect" else None,
        status=409 if problem else 200,
        accept=view,
        run=staged.run,
        is_swap=is_judged and target_of(request) == "effect",
        queue=queue if number_of(queue) is not None else "",
    )


RUN = "/runs/" + number("run_id")
routes = [
    Route(RUN + "/acceptance", show, methods=["GET"]),
    Route(RUN + "/acceptance", create, methods=["POST"]),
    Route(RUN + "/acceptance/effect", preview, methods=["POST"]),
]
