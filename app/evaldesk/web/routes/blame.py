"""The search for the decisive turn of a failed trial, and of all failed trials of a run."""

from __future__ import annotations

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.blame.planning import DEFAULT_BUDGET, BlameRequest
from evaldesk.errors import ConflictError, EvaldeskError, NotFoundError, UsageError
from evaldesk.model.stored import TrialKey
from evaldesk.pages.blame import blame_page
from evaldesk.pages.failures.decisive import run_blame_page
from evaldesk.pages.forks import USUAL_N
from evaldesk.pages.runs.view import trial_href
from evaldesk.run_options import BY_NAME
from evaldesk.web.forms.fields import number_of, read_form, text_of
from evaldesk.web.render import desk_of, go, number, page, refused_status, run_id_of
from evaldesk.web.routes.trials import TRIAL, trial_key


async def show(request: Request) -> Response:
    """GET .../blame: the newest search of the trial, and the plan of the next one, with `budget` and `max_cost`."""
    query = request.query_params
    try:
        blame_request = _request(query.get("budget", ""), query.get("max_cost", ""), "")
    except UsageError as error:
        return await _page(request, error=error)
    return await _page(request, blame_request)


async def start(request: Request) -> Response:
    """POST .../blame: play the plan, or `op=stop`, `op=resume` or `op=repair` the newest search.

    `op=verify` plays the trial on by the agent as it is now, `n` times from its decisive turn and from the start.
    """
    (run_id, key), form = trial_key(request), await read_form(request)
    blames = desk_of(request).blames
    newest = next(reversed(await blames.of_trial(run_id, key)), None)
    op = text_of(form, "op")
    blame_request = None
    try:
        if op == "verify":
            await _verify(request, run_id, key, form)
        elif op in ("stop", "resume", "repair"):
            if newest is None:
                raise ConflictError("this trial has no search for its decisive turn yet")
            if op == "repair":
                await blames.repair(newest.id)
            else:
                await (blames.stop(newest.id) if op == "stop" else blames.resume(newest.batch_id))
        else:
            blame_request = _request(text_of(form, "budget"), text_of(form, "max_cost"), _tools(form))
            await blames.start(await blames.plan(run_id, key, blame_request))
    except UsageError as error:
        return await _page(request, blame_request, error)
    except ConflictError as error:
        return await _page(request, blame_request, UsageError(str(error)), status=refused_status(error))
    return go(f"{trial_href(run_id, key)}/blame")


async def show_run(request: Request) -> Response:
    """GET /runs/{run_id}/blame: the searches of a run, and the plan of those of its other failed trials."""
    query = request.query_params
    try:
        blame_request = _request(query.get("budget", ""), query.get("max_cost", ""), "")
    except UsageError as error:
        return await _run_page(request, error=error)
    return await _run_page(request, blame_request)


async def start_run(request: Request) -> Response:
    """POST /runs/{run_id}/blame: search all failed trials within a shared budget, or verify a fix with `op=verify`."""
    run_id, form = run_id_of(request), await read_form(request)
    blames = desk_of(request).blames
    blame_request = None
    try:
        if text_of(form, "op") == "verify":
            await _verify(request, run_id, None, form)
        else:
            blame_request = _request(text_of(form, "budget"), text_of(form, "max_cost"), _tools(form))
            await blames.start(await blames.plan_run(run_id, blame_request))
    except (ConflictError, UsageError) as error:
        return await _run_page(request, blame_request, error)
    return go(f"/runs/{run_id}/blame")


async def _verify(request: Request, run_id: int, key: TrialKey | None, form: FormData) -> None:
    """Begin the test of a fix. Raises UsageError, also for an agent that is not there and beside another test."""
    n = BY_NAME["n"].read(text_of(form, "n")) or USUAL_N
    try:
        await desk_of(request).blames.start_verification(run_id, key, n, text_of(form, "agent"))
    except (ConflictError, NotFoundError) as error:
        raise UsageError(str(error), field="agent") from error


async def _run_page(
    request: Request, blame_request: BlameRequest | None = None, error: EvaldeskError | None = None
) -> Response:
    view = await run_blame_page(desk_of(request), run_id_of(request), blame_request, error)
    return page(request, "failures/decisive.html", block="live", status=refused_status(error), view=view)


async def _page(
    request: Request,
    blame_request: BlameRequest | None = None,
    error: UsageError | None = None,
    status: int = 0,
) -> Response:
    run_id, key = trial_key(request)
    view = await blame_page(desk_of(request), run_id, key, blame_request, error)
    return page(request, "trials/blame.html", block="live", status=status or refused_status(error), view=view)


def _tools(form: FormData) -> str:
    return text_of(form, "runs_tools")


def _request(budget: str, max_cost: str, runs_tools: str) -> BlameRequest:
    """The request of a form. Raises UsageError naming the field."""
    n = number_of(budget.strip()) if budget.strip() else DEFAULT_BUDGET
    if n is None:
        raise UsageError(f"the budget is a number of forks, not {budget[:20]!r}", field="budget")
    try:
        cost = float(max_cost) if max_cost.strip() else None
    except ValueError:
        raise UsageError(f"the most to spend is a number of dollars, not {max_cost[:20]!r}", field="max_cost") from None
    request = BlameRequest(n, cost, {"yes": True, "no": False}.get(runs_tools))
    request.check()
    return request


routes = [
    Route(f"{TRIAL}/blame", show, methods=["GET"]),
    Route(f"{TRIAL}/blame", start, methods=["POST"]),
    Route(f"/runs/{number('run_id')}/blame", show_run, methods=["GET"]),
    Route(f"/runs/{number('run_id')}/blame", start_run, methods=["POST"]),
]
