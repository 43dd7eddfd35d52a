"""The versions of an eval set, two of them side by side, their restoration; and the trend over its runs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.errors import ConflictError, EvaldeskError, LossError, NotFoundError, UsageError
from evaldesk.pages.reports.set_changes import SetChange, markdown_of_sets
from evaldesk.pages.run_changes import changes_of_trend
from evaldesk.pages.set_trend import SORTS, trend_page
from evaldesk.pages.set_versions import versions_page
from evaldesk.pages.skyline import skyline
from evaldesk.web.forms.fields import attachment, read_form, text_of
from evaldesk.web.render import desk_of, go, page, refused_status, target_of

MOST_CHARACTERS = 40


async def show(request: Request) -> Response:
    """GET /evalsets/{set_id}/versions: all versions, and the difference of two; `from` and `to` name them."""
    return await _page(request)


async def restore(request: Request) -> Response:
    """POST /evalsets/{set_id}/versions: bring back a `version`, or one `case` of it, as a new version."""
    form, set_id = await read_form(request), request.path_params["set_id"]
    versions = desk_of(request).evalsets.versions
    name, case_id = text_of(form, "version")[:MOST_CHARACTERS], text_of(form, "case")
    await run_in_threadpool(desk_of(request).evalsets.file, set_id)
    try:
        version = await run_in_threadpool(versions.find, set_id, name)
        verb = partial(versions.restore_case, case_id=case_id) if case_id else versions.restore
        before = await run_in_threadpool(verb, set_id, version)
    except (UsageError, ConflictError, LossError, NotFoundError) as error:
        return await _page(request, error)
    return go(f"/evalsets/{set_id}/versions?undo={before.version}")


async def summary(request: Request) -> Response:
    """GET /evalsets/{set_id}/versions/summary: two versions, or the newest two, as Markdown for a pull request."""
    desk, set_id = desk_of(request), request.path_params["set_id"]
    file = await run_in_threadpool(desk.evalsets.file, set_id)
    versions = desk.evalsets.versions
    names = [request.query_params.get(key, "")[:MOST_CHARACTERS] for key in ("from", "to")]
    pair = await run_in_threadpool(versions_page, desk, set_id, *names)
    both = (pair.before, pair.after)
    sides = [await run_in_threadpool(versions.evalset, set_id, each) if each else None for each in both]
    before, after = (each.short_name if each else "nothing" for each in both)
    change = SetChange(file.name, file.place, sides[0], sides[1])
    text = await run_in_threadpool(markdown_of_sets, [change], f"{before} to {after}")
    return attachment(text.encode(), f"{before}-{after}.md", "text/markdown; charset=utf-8")


async def trend(request: Request) -> Response:
    """GET /evalsets/{set_id}/trend: pass rate over runs, and cases over the last ones; `agent` and `sort` choose.

    The row of the `case` has a link for each run. The page of the set asks for a strip of it.
    """
    desk, set_id = desk_of(request), request.path_params["set_id"]
    file = await run_in_threadpool(desk.evalsets.file, set_id)
    query = request.query_params
    if target_of(request) == "strip":
        strip = await run_in_threadpool(trend_page, desk, set_id, is_strip=True)
        return page(request, "evalsets/trend_strip.html", file=file, trend=strip)
    sort = query.get("sort", "") if query.get("sort", "") in SORTS else "failing"
    found = await run_in_threadpool(trend_page, desk, set_id, query.get("agent", "")[:500], sort)
    values: dict[str, Any] = {
        "file": file,
        "trend": found,
        "edits": await run_in_threadpool(changes_of_trend, desk, found.runs),
        "n_versions": await run_in_threadpool(desk.evalsets.versions.count, set_id),
        "sort": sort,
        "sorts": SORTS,
        "opened": query.get("case", ""),
    }
    return page(request, "evalsets/trend.html", **values)


async def _page(request: Request, error: EvaldeskError | None = None) -> Response:
    desk, set_id = desk_of(request), request.path_params["set_id"]
    file = await run_in_threadpool(desk.evalsets.file, set_id)
    if file.error:
        return page(request, "evalsets/broken.html", status=422, file=file)
    if file.is_reading:
        return page(request, "evalsets/reading.html", file=file)
    names = ["" if error else request.query_params.get(key, "")[:MOST_CHARACTERS] for key in ("from", "to")]
    pair = await run_in_threadpool(versions_page, desk, set_id, *names)
    undo = None
    if undo_name := request.query_params.get("undo", "")[:MOST_CHARACTERS]:
        with suppress(UsageError, NotFoundError):
            undo = await run_in_threadpool(desk.evalsets.versions.find, set_id, undo_name)
    status = refused_status(error) if error else 200
    values: dict[str, Any] = {
        "file": file,
        "found": pair,
        "skyline": skyline(pair.lines),
        "undo": undo,
        "problem": str(error or ""),
    }
    return page(request, "evalsets/versions.html", status=status, **values)


routes = [
    Route("/evalsets/{set_id}/versions", show),
    Route("/evalsets/{set_id}/versions", restore, methods=["POST"]),
    Route("/evalsets/{set_id}/versions/summary", summary),
    Route("/evalsets/{set_id}/trend", trend),
]
