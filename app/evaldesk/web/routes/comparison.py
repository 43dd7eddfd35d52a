"""The choice of runs to compare; the table of runs shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.model.case_table import MAX_RUNS
from evaldesk.pages.comparison import read_choice
from evaldesk.pages.runs.table_query import TableQuery
from evaldesk.web.forms.fields import number_of
from evaldesk.web.render import desk_of, go, page

MOST = f"Tick 2 to {MAX_RUNS} runs, not {{n}}."


async def show(request: Request) -> Response:
    """GET /compare: to the table of run `b` against run `a`, or of all `run`; with fewer the form to choose them."""
    query, desk = request.query_params, desk_of(request)
    ticked = _numbers(query.getlist("run"))
    run_ids = _numbers(query.get(f"{name}-number") or query.get(name, "") for name in ("a", "b"))
    if 2 <= len(set(ticked)) <= MAX_RUNS:
        return go(TableQuery.of("/table", sorted(set(ticked)), {}, names_runs=True).href())
    if len(run_ids) < 2:
        problem = MOST.format(n=len(set(ticked))) if len(ticked) > 2 else ""
        choice = await asyncio.to_thread(read_choice, desk, ticked or run_ids, problem)
        return page(request, "comparison/choose.html", status=422 if problem else 200, choice=choice)
    if query.get("a-number") or query.get("b-number"):
        return go(f"/compare?a={run_ids[0]}&b={run_ids[1]}")
    if run_ids[0] == run_ids[1]:
        problem = f"Run {run_ids[0]} is the same as itself: choose two different runs."
        choice = await asyncio.to_thread(read_choice, desk, run_ids, problem)
        return page(request, "comparison/choose.html", status=422, choice=choice)
    for run_id in run_ids:
        await desk.runs.summary(run_id)
    return go(TableQuery.of("/table", run_ids, query, names_runs=True).href())


async def report(request: Request) -> Response:
    """GET /compare/report?a=1&b=2: to the report of the table of both."""
    query = request.query_params
    run_ids = _numbers(query.get(name) for name in ("a", "b"))
    if len(run_ids) < 2:
        return go("/compare")
    return go(TableQuery.of("/table/report", run_ids, {}, names_runs=True).href())


def _numbers(texts: Iterable[str | None]) -> list[int]:
    return [number for text in texts if (number := number_of(text)) is not None]


routes = [
    Route("/compare", show, methods=["GET"]),
    Route("/compare/report", report, methods=["GET"]),
]
