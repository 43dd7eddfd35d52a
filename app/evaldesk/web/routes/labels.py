"""Labels: written on the page of a trial, listed on a page of their own."""

from __future__ import annotations

import asyncio
import re

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from evaldesk.desk.labels import VERDICTS, TypedLabel
from evaldesk.errors import ConflictError, UsageError
from evaldesk.model.stored import LabelFilter
from evaldesk.pages import trial as pages
from evaldesk.pages.labels import cursor_time, read_labels
from evaldesk.web.forms import read_form, text_of
from evaldesk.web.render import desk_of, page, target_of
from evaldesk.web.routes.trials import TRIAL, trial_key, trial_page


async def index(request: Request) -> Response:
    """GET /labels: labels newest first, of one `run`, by one `labeller`, `only` some verdict."""
    query = request.query_params
    run, only = query.get("run", ""), query.get("only", "")
    wanted = LabelFilter(
        run_id=int(run) if re.fullmatch(r"[0-9]{1,15}", run) else None,
        labeller=query.get("labeller") or None,
        verdict=only if only in VERDICTS else None,
        is_disagreement=only == "disagreements",
    )
    before = cursor_time(query.get("before", ""))
    listing = await asyncio.to_thread(read_labels, desk_of(request), wanted, before)
    return page(request, "labels/index.html", listing=listing)


async def put(request: Request) -> Response:
    """POST /runs/{run_id}/cases/{case_index}/trials/{trial_index}/labels: a label, or `op=remove`.

    A script gets the panel of labels, a form without one is sent back to the page.
    """
    run_id, key = trial_key(request)
    form = await read_form(request)
    typed = TypedLabel(*(text_of(form, name) for name in ("labeller", "verdict", "note", "turn", "op", "seen")))
    trial = await pages.trial_page(desk_of(request).runs, run_id, key)
    try:
        await asyncio.to_thread(desk_of(request).labels.put, run_id, key, typed, len(trial.turns))
    except UsageError as error:
        return await trial_page(request, typed, error)
    except ConflictError as error:
        return await trial_page(request, typed, UsageError(str(error), field="note"))
    if target_of(request) == "labels":
        return await trial_page(request)
    return RedirectResponse(f"/runs/{run_id}/cases/{key[0]}/trials/{key[1]}#labels", status_code=303)


routes = [Route("/labels", index, methods=["GET"]), Route(TRIAL + "/labels", put, methods=["POST"])]
