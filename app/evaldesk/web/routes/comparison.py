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
    named = _numbers(query.get(f"{name}-number") or query.get(name, "") for name in ("a", "b"))
    if len(set(ticked)) == 2:
        return go(f"/compare?a={min(ticked)}&b={max(ticked)}")
    if len(named) < 2:
        problem = TWO.format(n=len(set(ticked))) if len(ticked) > 2 else ""
        choice = await asyncio.to_thread(read_choice, desk, ticked or named, problem)
        return page(request, "comparison/choose.html", status=422 if problem else 200, choice=choice)
    if query.get("a-number") or query.get("b-number"):
        return go(f"/compare?a={named[0]}&b={named[1]}")
    if named[0] == named[1]:
        problem = f"Run {named[0]} is the same as itself: choose two different runs."
        choice = await asyncio.to_thread(read_choice, desk, named, problem)
        return page(request, "comparison/choose.html", status=422, choice=choice)
    start = start_of(request)
    found = await asyncio.to_thread(read_comparison, desk, named[0], named[1], query.get("show", ""), start)
    unread, otherwise = await asyncio.to_thread(failure_changes, desk, *named)
    return page(request, "comparison/show.html", comparison=found, unread=unread, otherwise=otherwise)


async def report(request: Request) -> Response:
    """GET /compare/report?a=1&b=2: the comparison as one HTML file."""
    query, desk = request.query_params, desk_of(request)
    named = _numbers(query.get(name) for name in ("a", "b"))
    if len(named) < 2:
        return go("/compare")
    environment = desk.settings.environment
    found = await asyncio.to_thread(comparison_report, desk.stored_runs, named[0], named[1], environment)
    return attachment(found.data, found.file_name, "text/html")


def _numbers(texts: Iterable[str | None]) -> list[int]:
    return [number for text in texts if (number := number_of(text)) is not None]


routes = [
    Route("/compare", show, methods=["GET"]),
    Route("/compare/report", report, methods=["GET"]),
]
