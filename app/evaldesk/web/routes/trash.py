"""The trash: deleted eval sets, cases, chats and runs, and accepted changes, restored, or removed for good."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk import trash
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.web.forms.fields import number_of, read_form, text_of
from evaldesk.web.render import desk_of, go, page, refused_status
from evaldesk.wording.words import space_words

PAGE_SIZE = 100


async def show(request: Request) -> Response:
    """GET /trash: the deleted things, the newest first; `start` is the number of those before the page."""
    return await _page(request)


async def restore(request: Request) -> Response:
    """POST /trash/{item_id}/restoration: back to where it was; a name that is taken is told beside the list."""
    try:
        item, restored_id = await run_in_threadpool(
            trash.restore_item, desk_of(request), request.path_params["item_id"]
        )
    except NotFoundError:  # a page of its own
        raise
    except (ConflictError, UsageError) as error:
        return await _page(request, status=refused_status(error), problem=str(error))
    addresses = {
        trash.EVALSET: f"/evalsets/{restored_id}?note=restored",
        trash.CASES: f"/evalsets/{restored_id}?note=cases_restored",
        trash.EDITS: f"/evalsets/{restored_id}?note=expectations_restored",
        trash.SESSION: f"/sessions/{restored_id}",
        trash.RUN: f"/runs/{restored_id}",
    }
    return go(addresses[item.kind])


async def empty(request: Request) -> Response:
    """POST /trash/removal: remove for good all items deleted up to `until`, so only items that the page counted.

    The answer is the page: an address with the number could be opened without a removal.
    """
    text = text_of(await read_form(request), "until")
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        until = None
    if until is None or until.tzinfo is None:
        return await _page(request, status=422, problem="Nothing was removed. Press “Empty the trash” once more.")
    n_removed, space = await run_in_threadpool(trash.empty, desk_of(request), until)
    return await _page(request, n_removed=n_removed, freed=space_words(space.n_given_back, space.n_kept))


async def _page(
    request: Request, *, status: int = 200, problem: str = "", n_removed: int | None = None, freed: str = ""
) -> Response:
    items = await run_in_threadpool(trash.trash_items, desk_of(request))
    start = number_of(request.query_params.get("start")) or 0
    values: dict[str, Any] = {
        "problem": problem,
        "n_removed": n_removed,
        "freed": freed,
        "start": start,
        "n_all": len(items),
    }
    return page(
        request,
        "trash/index.html",
        status=status,
        items=items[start : start + PAGE_SIZE],
        until=items[0].deleted_at.isoformat() if items else "",
        n_bytes=sum(item.n_bytes for item in items),
        page_size=PAGE_SIZE,
        **values,
    )


routes = [
    Route("/trash", show, methods=["GET"]),
    Route("/trash/removal", empty, methods=["POST"]),
    Route("/trash/{item_id}/restoration", restore, methods=["POST"]),
]
