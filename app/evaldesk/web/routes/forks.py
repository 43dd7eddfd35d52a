"""The forks of a trial: its branches, and the form of the next one."""

from __future__ import annotations

import asyncio

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.forks.keeping import add_case
from evaldesk.errors import ConflictError, EvaldeskError, LossError, UsageError
from evaldesk.pages.forks import (
    CaseRequest,
    ForkRequest,
    branch_pair,
    case_of_request,
    fork_of,
    fork_page,
    read_case_form,
    read_turns,
)
from evaldesk.pages.runs.view import trial_href
from evaldesk.web.forms.fields import number_of, read_form, text_of
from evaldesk.web.render import desk_of, go, page, refused_status
from evaldesk.web.routes.trials import TRIAL, trial_key


async def show(request: Request) -> Response:
    """GET .../fork: the branches of the trial, and the form of a fork before `turn`, from 1, and `call` of it.

    With `keep`, the run of a branch or 0 for the point, also the form of a case.
    """
    turn, call, fork_id = (number_of(request.query_params.get(name)) for name in ("turn", "call", "keep"))
    case_request = CaseRequest(fork_id or None) if fork_id is not None else None
    return await _page(request, ForkRequest(turn or 1, call=call or None), case_request=case_request)


async def start(request: Request) -> Response:
    """POST .../fork: play the fork of the form."""
    (run_id, key), form = trial_key(request), await read_form(request)
    fork_request = _request_of(form)
    desk = desk_of(request)
    try:
        await desk.forks.start(fork_of(await read_turns(desk, run_id, key), run_id, key, fork_request))
    except (UsageError, ConflictError) as error:
        return await _page(request, fork_request, error)
    return go(f"{trial_href(run_id, key)}/fork?turn={fork_request.turn}")


def _request_of(form: FormData) -> ForkRequest:
    """The form as it was typed; fields that it does not have leave the values of the trial."""
    return ForkRequest(
        turn=number_of(text_of(form, "turn")) or 1,
        n=text_of(form, "n"),
        message=text_of(form, "message") if "message" in form else None,
        answer=text_of(form, "answer") if "answer" in form else None,
        state=text_of(form, "state"),
        runs_tools={"yes": True, "no": False}.get(text_of(form, "runs_tools")),
        call=number_of(text_of(form, "call")) or None,
        tool_call=number_of(text_of(form, "tool_call")),
        result=text_of(form, "result"),
        is_error=text_of(form, "is_error") == "yes",
        instruction=text_of(form, "instruction"),
        model=text_of(form, "model"),
        agent=text_of(form, "agent"),
        insert=text_of(form, "insert"),
        then="message" if text_of(form, "then") == "message" else "script",
        free_message=text_of(form, "free_message"),
    )


async def show_pair(request: Request) -> Response:
    """GET .../fork/pair?run=A&run=B: two branches side by side, a failed trial of one beside a passed one of the other.

    Without any it is the page of the branches. Raises NotFoundError for a trial that is not there.
    """
    (run_id, key), desk = trial_key(request), desk_of(request)
    run_ids = [number_of(text) or 0 for text in request.query_params.getlist("run")]
    await read_turns(desk, run_id, key)
    if not run_ids:
        return go(f"{trial_href(run_id, key)}/fork")
    try:
        address = await asyncio.to_thread(branch_pair, desk, run_id, key, run_ids)
    except UsageError as error:
        return await _page(request, ForkRequest(1), pair_error=error)
    return go(address)


async def keep(request: Request) -> Response:
    """POST .../fork/case: add a branch, or the point itself, to a set as a case with pinned turns."""
    (run_id, key), form, desk = trial_key(request), await read_form(request), desk_of(request)
    call, fork_id = number_of(text_of(form, "call")) or None, number_of(text_of(form, "fork")) or None
    fork_request = ForkRequest(number_of(text_of(form, "turn")) or 1, call=call)
    case_request = CaseRequest(fork_id, text_of(form, "evalset"), text_of(form, "name"))
    try:
        source = await case_of_request(desk, run_id, key, fork_request, fork_id)
        name = await asyncio.to_thread(desk.evalsets.free_name, "forks")
        arguments = (case_request.evalset_id, name, case_request.case_name)
        added_case = await asyncio.to_thread(add_case, desk, source, *arguments)
    except (UsageError, ConflictError, LossError) as error:
        return await _page(request, fork_request, case_request=case_request, case_error=error)
    return go(f"/evalsets/{added_case.evalset_id}?changed={added_case.token}")


async def _page(
    request: Request,
    fork_request: ForkRequest,
    error: EvaldeskError | None = None,
    case_request: CaseRequest | None = None,
    case_error: EvaldeskError | None = None,
    pair_error: EvaldeskError | None = None,
) -> Response:
    (run_id, key), desk = trial_key(request), desk_of(request)
    case_form = (
        await read_case_form(desk, run_id, key, fork_request, case_request, case_error) if case_request else None
    )
    view = await fork_page(desk, run_id, key, fork_request, error, case_form)
    error = error or case_error or pair_error
    return page(
        request, "trials/fork.html", block="live", status=refused_status(error), view=view, pair_error=pair_error
    )


routes = [
    Route(f"{TRIAL}/fork", show, methods=["GET"]),
    Route(f"{TRIAL}/fork", start, methods=["POST"]),
    Route(f"{TRIAL}/fork/pair", show_pair, methods=["GET"]),
    Route(f"{TRIAL}/fork/case", keep, methods=["POST"]),
]
