"""The table of 2 to 20 runs, and its named views."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.errors import UsageError
from evaldesk.model.case_table import MAX_RUNS
from evaldesk.pages.run_table import TablePage, read_table_page
from evaldesk.pages.runs.table import PAGE_SIZE
from evaldesk.pages.runs.table_export import csv_table, json_table
from evaldesk.pages.runs.table_query import TableQuery, run_numbers
from evaldesk.web.forms.fields import attachment, read_form, text_of
from evaldesk.web.live import event_stream
from evaldesk.web.live_table import live_messages, live_table, row_numbers
from evaldesk.web.render import desk_of, fragment, go, number, packed, page, target_of
from evaldesk.web.report import table_report

MAX_NAME = 60
MAX_ADDRESS = 4_000


async def show(request: Request) -> Response:
    """GET /table?runs=1,2,7: the cases of these runs, the table alone, or its next rows."""
    query = _query(request)
    if query is None:
        return _choice(request)
    view = await asyncio.to_thread(read_table_page, desk_of(request), query)
    return table_response(request, "tables/show.html", view)


async def events(request: Request) -> Response:
    """GET /table/events?runs=1,2,7&rows=0,1: the blocks of these rows that change while the runs play."""
    query, desk = _query(request), desk_of(request)
    if query is None:
        return _choice(request)
    rows = row_numbers(request.query_params.get("rows", ""))
    await asyncio.to_thread(read_table_page, desk, query, PAGE_SIZE, rows)  # a fault is a page, not an empty stream
    table = live_table(request.app, str(request.url))

    async def render(marker: str) -> str:
        view = await asyncio.to_thread(read_table_page, desk, query, PAGE_SIZE, rows)
        return fragment(request, "tables/show.html", "live", **fields_of(view), is_stream=True, cut=marker)

    return event_stream(request, live_messages(desk, query.run_ids, table, render))


def table_response(request: Request, template: str, view: TablePage, **values: Any) -> Response:
    """The page with a table, its table alone, or its next rows."""
    target = target_of(request)
    block = target if target in ("table", "more") else None
    return packed(request, page(request, template, block=block, is_stream=False, cut="", **fields_of(view), **values))


def fields_of(view: TablePage) -> Mapping[str, Any]:
    """The values of a page with a table by the names that its template has."""
    return {name: getattr(view, name) for name in view.__slots__} | {
        "report_href": view.export_href("report"),
        "csv_href": view.export_href("csv"),
        "json_href": view.export_href("json"),
    }


async def as_csv(request: Request) -> Response:
    """GET /table/csv?runs=1,2,7: the rows that the filters show, as CSV, a part at a time."""
    query = _query(request)
    if query is None:
        return _choice(request)
    _, lines = await asyncio.to_thread(csv_table, desk_of(request), query)
    return attachment(lines, "table.csv", "text/csv")


async def as_json(request: Request) -> Response:
    """GET /table/json?runs=1,2,7: the same as JSON."""
    query = _query(request)
    if query is None:
        return _choice(request)
    _, pieces = await asyncio.to_thread(json_table, desk_of(request), query)
    return attachment(pieces, "table.json")


async def report(request: Request) -> Response:
    """GET /table/report?runs=1,2: the table as one HTML file; of two runs with their comparison and trials."""
    desk, query = desk_of(request), _query(request)
    if query is None:
        return _choice(request)
    file = await asyncio.to_thread(table_report, desk, query, desk.settings.environment)
    return attachment(file.data, file.file_name, "text/html")


def _query(request: Request) -> TableQuery | None:
    """The query of the address; None where it names fewer than two runs. Raises UsageError for too many, or for one
    that is named twice.
    """
    query = request.query_params
    run_ids = run_numbers(query.get("runs", ""))
    if len(run_ids) > MAX_RUNS:
        raise UsageError(f"a table has 2 to {MAX_RUNS} runs, as in /table?runs=1,2,7; this address names more")
    if len(run_ids) == 1 and "," in query.get("runs", ""):
        raise UsageError(f"run {run_ids[0]} is the same as itself; name two different runs, as in /table?runs=1,2")
    if len(run_ids) < 2:
        return None
    return TableQuery.of("/table", run_ids, query, names_runs=True)


def _choice(request: Request) -> Response:
    """To the choice of runs, with the one that the address names."""
    run_ids = run_numbers(request.query_params.get("runs", ""))
    return go(f"/compare?b={run_ids[0]}" if run_ids else "/compare")


async def save_view(request: Request) -> Response:
    """POST /views: store the address of a table under a name, and go back to it."""
    form = await read_form(request)
    name, address = " ".join(text_of(form, "name").split()), text_of(form, "address")
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise UsageError(f"a view needs a name of 1 to {MAX_NAME} letters", field="name")
    if len(address) > MAX_ADDRESS:
        raise UsageError(f"the address of a view has at most {MAX_ADDRESS:,} characters", field="address")
    evalset_id = text_of(form, "evalset")[:500]
    await asyncio.to_thread(desk_of(request).views.save, evalset_id, name, address)
    return go(_back(text_of(form, "back")))


async def delete_view(request: Request) -> Response:
    """POST /views/{view_id}/deletion: delete a named view, and go back to the table."""
    form = await read_form(request)
    await asyncio.to_thread(desk_of(request).views.remove, request.path_params["view_id"])
    return go(_back(text_of(form, "back")))


def _back(address: str) -> str:
    """The table from which a form was sent; never another site."""
    is_own = (
        address.startswith(("/table?", "/runs/", "/experiments/")) and address.isprintable() and len(address) < 8_000
    )
    return address if is_own else "/runs"


routes = [
    Route("/table", show, methods=["GET"]),
    Route("/table/events", events, methods=["GET"]),
    Route("/table/csv", as_csv, methods=["GET"]),
    Route("/table/json", as_json, methods=["GET"]),
    Route("/table/report", report, methods=["GET"]),
    Route("/views", save_view, methods=["POST"]),
    Route(f"/views/{number('view_id')}/deletion", delete_view, methods=["POST"]),
]
