"""The forks of a trial: its branches, and the form of the next one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.errors import ConflictError, EvaldeskError, UsageError
from evaldesk.pages.forks import ForkRequest, fork_of, fork_page, read_turns
from evaldesk.pages.runs.view import trial_href
from evaldesk.web.forms.fields import number_of, read_form, text_of
from evaldesk.web.render import desk_of, go, page, refused_status
from evaldesk.web.routes.trials import TRIAL, trial_key


async def show(request: Request) -> Response:
    """GET .../fork: the branches of the trial, and the form of a fork before `turn`, from 1."""
    return await _page(request, ForkRequest(number_of(request.query_params.get("turn")) or 1))


async def start(request: Request) -> Response:
    """POST .../fork: play the fork of the form."""
    (run_id, key), form = trial_key(request), await read_form(request)
    answer = text_of(form, "answer") if "answer" in form else None
    runs_tools = {"yes": True, "no": False}.get(text_of(form, "runs_tools"))
    turn = number_of(text_of(form, "turn")) or 1
    asked = ForkRequest(turn, text_of(form, "n"), text_of(form, "message"), answer, text_of(form, "state"), runs_tools)
    desk = desk_of(request)
    try:
        await desk.forks.start(fork_of(await read_turns(desk, run_id, key), run_id, key, asked))
    except (UsageError, ConflictError) as error:
        return await _page(request, asked, error)
    return go(f"{trial_href(run_id, key)}/fork?turn={turn}")


async def _page(request: Request, asked: ForkRequest, error: EvaldeskError | None = None) -> Response:
    run_id, key = trial_key(request)
    view = await fork_page(desk_of(request), run_id, key, asked, error)
    return page(request, "trials/fork.html", block="live", status=refused_status(error), view=view)


routes = [
    Route(f"{TRIAL}/fork", show, methods=["GET"]),
    Route(f"{TRIAL}/fork", start, methods=["POST"]),
]
