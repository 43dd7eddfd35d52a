"""Two runs side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.pages.comparison import read_choice, read_comparison
from evaldesk.pages.failures.over_runs import failure_changes
from evaldesk.web.forms.fields import attachment, number_of, start_of
from evaldesk.web.render import desk_of, go, page
from evaldesk.web.report import comparison_report

TWO = "Tick two runs, not {n}: a comparison is of one run against another."


async def show(request: Request) -> Response:
    """GET /compare: run `b` against run `a`; without both, or with other than two `run`, the form to choose them."""
    query, desk = request.query_params, desk_of(request)
    ticked = _numbers(query.getlist("run"))
    run_ids = _numbers(query.get(f"{name}-number") or query.get(name, "") for name in ("a", "b"))
    if len(set(ticked)) == 2:
        return go(f"/compare?a={min(ticked)}&b={max(ticked)}")
    if len(run_ids) < 2:
        problem = TWO.format(n=len(set(ticked))) if len(ticked) > 2 else ""
        choice = await asyncio.to_thread(read_choice, desk, ticked or run_ids, problem)
        return page(request, "comparison/choose.html", status=422 if problem else 200, choice=choice)
    if query.get("a-number") or query.get("b-number"):
        return go(f"/compare?a={run_ids[0]}&b={run_ids[1]}")
    if run_ids[0] == run_ids[1]:
        problem = f"Run {run_ids[0]} is the same as itself: choose two different runs."
        choice = await asyncio.to_thread(read_choice, desk, run_ids, problem)
        return page(request, "comparison/choose.html", status=422, choice=choice)
    start = start_of(request)
    comparison = await asyncio.to_thread(read_comparison, desk, run_ids[0], run_ids[1], query.get("show", ""), start)
    unread, otherwise = await asyncio.to_thread(failure_changes, desk, *run_ids)
    return page(request, "comparison/show.html", comparison=comparison, unread=unread, otherwise=otherwise)


async def report(request: Request) -> Response:
    """GET /compare/report?a=1&b=2: the comparison as one HTML file."""
    query, desk = request.query_params, desk_of(request)
    run_ids = _numbers(query.get(name) for name in ("a", "b"))
    if len(run_ids) < 2:
        return go("/compare")
    environment = desk.settings.environment
    file = await asyncio.to_thread(comparison_report, desk.stored_runs, run_ids[0], run_ids[1], environment)
    return attachment(file.data, file.file_name, "text/html")


def _numbers(texts: Iterable[str | None]) -> list[int]:
    return [number for text in texts if (number := number_of(text)) is not None]


routes = [
    Route("/compare", show, methods=["GET"]),
    Route("/compare/report", report, methods=["GET"]),
]
