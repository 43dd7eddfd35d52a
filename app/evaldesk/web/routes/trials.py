"""One trial of a run, turn by turn."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.cases import case_key
from evaldesk.desk.labels import TypedLabel, read_panel
from evaldesk.desk.scores_beside import scores_beside
from evaldesk.errors import UsageError
from evaldesk.store import TrialKey
from evaldesk.store.recorded_runs import has_evalset
from evaldesk.web.addresses import number
from evaldesk.web.render import desk_of, page, target_of


async def show(request: Request) -> Response:
    """GET /runs/{run_id}/cases/{case_index}/trials/{trial_index}: indexes count from 0, as in the store.

    The page of a trial that waits asks again now and then, and is loaded anew once there is something to show.
    """
    if target_of(request) == "waiting":
        trial = await desk_of(request).runs.read_trial(*trial_key(request))
        return Response(status_code=204, headers={"HX-Refresh": "true"} if trial.result else None)
    return await trial_page(request)


async def trial_page(request: Request, typed: TypedLabel | None = None, error: UsageError | None = None) -> Response:
    """The page of a trial; with a label that could not be kept, as it was typed."""
    run_id, key = trial_key(request)
    trial = await desk_of(request).runs.read_trial(run_id, key)
    labels = await asyncio.to_thread(read_panel, desk_of(request).store, run_id, key, typed, error)
    beside = await asyncio.to_thread(scores_beside, desk_of(request).store.runs, run_id, key)
    config = trial.summary.config
    again = {"agent": config.agent.id, "evalset": config.evalset_id, "case": trial.case.id, "n": str(config.n)}
    return page(
        request,
        "trials/trial.html",
        status=422 if error else 200,
        trial=trial,
        labels=labels,
        beside=beside,
        run_href=f"/runs/{run_id}",
        edit_href=f"/evalsets/{config.evalset_id}/cases/{case_key(trial.case.id)}" if has_evalset(config) else "",
        again_href=f"/runs/new?{urlencode(again)}",
    )


def trial_key(request: Request) -> tuple[int, TrialKey]:
    """The run and the trial that the address names."""
    run_id, case_index, trial_index = (request.path_params[name] for name in ("run_id", "case_index", "trial_index"))
    return run_id, (case_index, trial_index)


TRIAL = f"/runs/{number('run_id')}/cases/{number('case_index')}/trials/{number('trial_index')}"
routes = [Route(TRIAL, show, methods=["GET"])]
