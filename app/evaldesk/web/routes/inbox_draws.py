"""Draws of conversations to read: the form, and a draw with its conversations."""

from __future__ import annotations

import asyncio

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.pages.inbox_draws import N_ROWS, USUAL_STRATA, DrawForm, draw_form_page, draw_page
from evaldesk.web.forms.fields import number_of, read_form, text_of, texts_of
from evaldesk.web.render import desk_of, go, number, page


async def show_form(request: Request) -> Response:
    """GET /inbox/draw: the form of a draw among the conversations of the filter `q`, with the sizes of its strata."""
    query = request.query_params
    names, numbers = query.getlist("stratum")[:N_ROWS], query.getlist("number")[:N_ROWS]
    strata = tuple(zip(names, numbers, strict=False)) or USUAL_STRATA
    is_one_per_group = bool(query.get("twins")) or not names
    form = DrawForm(query.get("q", ""), _filled(strata) or USUAL_STRATA, query.get("seed", ""), is_one_per_group)
    return await _form(request, form)


async def create(request: Request) -> Response:
    """POST /inbox/draws: draw conversations, and show them."""
    fields, desk = await read_form(request), desk_of(request)
    form = _typed(fields)
    try:
        seed = number_of(form.seed) if form.seed else None
        if form.seed and seed is None:
            raise UsageError(f"a seed is a number, got {form.seed[:40]!r}", field="seed")
        draw = await asyncio.to_thread(
            desk.draws.draw,
            form.texts,
            line=form.line,
            seed=seed,
            is_one_per_twin_group=form.is_one_per_twin_group,
        )
    except UsageError as error:
        return await _form(request, form, str(error))
    return go(f"/inbox/draws/{draw.id}")


async def show(request: Request) -> Response:
    """GET /inbox/draws/{draw_id}: the conversations of a draw, and the share of failures by their labels."""
    draw_id: int = request.path_params["draw_id"]
    if draw_id >= 2**31:
        raise NotFoundError(f"there is no draw {draw_id}")
    view = await asyncio.to_thread(draw_page, desk_of(request), draw_id)
    return page(request, "inbox/drawn.html", view=view)


async def _form(request: Request, form: DrawForm, problem: str = "") -> Response:
    view = await asyncio.to_thread(draw_form_page, desk_of(request), form, problem)
    return page(request, "inbox/draw.html", status=422 if view.problem else 200, view=view)


def _typed(fields: FormData) -> DrawForm:
    names, numbers = texts_of(fields, "stratum")[:N_ROWS], texts_of(fields, "number")[:N_ROWS]
    return DrawForm(
        text_of(fields, "q")[:1000],
        _filled(tuple(zip(names, numbers, strict=False))),
        text_of(fields, "seed").strip(),
        bool(text_of(fields, "twins")),
    )


def _filled(strata: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((line[:1000], number[:20]) for line, number in strata if line.strip())


routes = (
    Route("/inbox/draw", show_form, methods=["GET"]),
    Route("/inbox/draws", create, methods=["POST"]),
    Route(f"/inbox/draws/{number('draw_id')}", show),
)
