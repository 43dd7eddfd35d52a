"""One trial of a run, turn by turn."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.cases import case_key
from evaldesk.store.recorded_runs import has_evalset
from evaldesk.web.addresses import number
from evaldesk.web.render import desk_of, page


async def show(request: Request) -> Response:
    """GET /runs/{run_id}/cases/{case_index}/trials/{trial_index}: indexes count from 0, as in the store."""
    run_id, case_index, trial_index = (request.path_params[name] for name in ("run_id", "case_index", "trial_index"))
    trial = await desk_of(request).runs.read_trial(run_id, (case_index, trial_index))
    config = trial.summary.config
    again = {"agent": config.agent.id, "evalset": config.evalset_id, "case": trial.case.id, "n": str(config.n)}
    return page(
        request,
        "trials/trial.html",
        trial=trial,
        run_href=f"/runs/{run_id}",
        edit_href=f"/evalsets/{config.evalset_id}/cases/{case_key(trial.case.id)}" if has_evalset(config) else "",
        again_href=f"/runs/new?{urlencode(again)}",
    )


TRIAL = f"/runs/{number('run_id')}/cases/{number('case_index')}/trials/{number('trial_index')}"
routes = [Route(TRIAL, show, methods=["GET"])]
