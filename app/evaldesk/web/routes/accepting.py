"""What trials did becomes what their cases expect: staged, looked at, saved once."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlencode

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from evaldesk.desk.runs.accepting import Keys, Staged, save, stage, verdicts_now
from evaldesk.errors import ConflictError, LossError, UsageError
from evaldesk.pages.accepting import accept_page, keys_of, typed_ways
from evaldesk.web.forms.fields import read_form, text_of
from evaldesk.web.render import desk_of, number, page, run_id_of, target_of


async def show(request: Request) -> Response:
    """GET /runs/{run_id}/acceptance: every change of the failed cases, or of `case` and its `trial` (from 1).

    Of `queue` it is each trial that a reader passed and the metrics failed.
    After a save the cases of `saved` are shown as they are judged now.
    """
    names = request.query_params.getlist("saved")
    if names:
        return await _saved(request, names)
    query = request.query_params
    staged = await _staged(request, query.get("case"), query.get("trial"), query.get("queue", ""))
    return await _page(request, staged, await asyncio.to_thread(staged.best_ways))


async def preview(request: Request) -> Response:
    """POST /runs/{run_id}/acceptance/effect: what the ticked changes would do; nothing is written."""
    form = await read_form(request)
    staged = await _staged_again(request, form)
    return await _page(request, staged, keys_of(typed_ways(form.multi_items())), is_judged=True)


async def create(request: Request) -> Response:
    """POST /runs/{run_id}/acceptance: write the ticked changes, if the file is as it was shown."""
    form = await read_form(request)
    staged = await _staged_again(request, form)
    asked = typed_ways(form.multi_items())
    wanted = keys_of(asked)
    known = {f"{each.key}:{change.key}" for each in staged.cases for change in each.offered}
    left = {name: way for name, way in asked.items() if name in known}
    if str(form.get("version", "")) != staged.version:
        fits = f"{len(left)} of your {len(asked)} changes still fit; look at them and save again."
        return await _page(request, staged, keys_of(left), f"Not saved: {staged.file_name} changed meanwhile. {fits}")
    try:
        await asyncio.to_thread(save, desk_of(request), staged, wanted)
    except (UsageError, ConflictError, LossError) as error:
        return await _page(request, staged, wanted, f"Not saved: {error}")
    changed = [each.case.id for each in staged.cases if wanted.get(each.key)]
    address = f"/runs/{staged.run.id}/acceptance?{urlencode([('saved', name) for name in changed])}"
    return RedirectResponse(address, status_code=303)


async def _saved(request: Request, names: list[str]) -> Response:
    desk = desk_of(request)
    run = await desk.runs.summary(run_id_of(request))
    effects = await asyncio.to_thread(verdicts_now, desk, run, names)
    again = {"agent": run.config.agent.id, "evalset": run.config.evalset_id, "case": list(effects)}
    return page(
        request,
        "runs/accepted.html",
        run=run,
        effects=effects,
        again_href=f"/runs/new?{urlencode(again, doseq=True)}",
    )


async def _staged_again(request: Request, form: FormData) -> Staged:
    case, trial, queue = (text_of(form, name) for name in ("case", "trial", "queue"))
    return await _staged(request, case or None, trial or None, queue)


async def _staged(request: Request, case: str | None, trial: str | None, queue: str = "") -> Staged:
    desk = desk_of(request)
    run = await desk.runs.summary(run_id_of(request))
    is_number = trial is not None and trial.isascii() and trial.isdecimal() and 0 < len(trial) < 8 and int(trial) > 0
    index = int(trial) - 1 if is_number and trial is not None else None
    if re.fullmatch(r"[0-9]{1,15}", queue):
        found = await asyncio.to_thread(desk.queues.too_narrow, int(queue), run.id)
        return await asyncio.to_thread(stage, desk, run, of_cases=found)
    return await asyncio.to_thread(stage, desk, run, case, index)


async def _page(
    request: Request, staged: Staged, wanted: Keys, problem: str = "", *, is_judged: bool = False
) -> Response:
    shown = await asyncio.to_thread(accept_page, desk_of(request), staged, wanted, problem, is_judged=is_judged)
    return page(
        request,
        "runs/accept.html",
        block="effect" if target_of(request) == "effect" else None,
        status=409 if problem else 200,
        accept=shown,
        run=staged.run,
        is_swap=is_judged and target_of(request) == "effect",
        queue=await _queue_of(request),
    )


async def _queue_of(request: Request) -> str:
    """The queue whose trials are staged, which the form names again; empty for others."""
    is_form = request.method == "POST"
    queue = text_of(await read_form(request), "queue") if is_form else request.query_params.get("queue", "")
    return queue if re.fullmatch(r"[0-9]{1,15}", queue) else ""


RUN = "/runs/" + number("run_id")
routes = [
    Route(RUN + "/acceptance", show, methods=["GET"]),
    Route(RUN + "/acceptance", create, methods=["POST"]),
    Route(RUN + "/acceptance/effect", preview, methods=["POST"]),
]
