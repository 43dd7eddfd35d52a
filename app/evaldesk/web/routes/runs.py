"""Runs: the list, one run during and after its play, the actions on it, and the gates of the last ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from itertools import islice
from typing import get_args
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.runs.set_changes import changes_on_page
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model import RunStatus
from evaldesk.model.conclusion import StopRule
from evaldesk.pages.gates import read_gates
from evaldesk.pages.repeating import read_run_repeats
from evaldesk.pages.runs.agents import read_agents
from evaldesk.pages.runs.divergences import read_divergences
from evaldesk.pages.runs.facts import away_sentence, config_json
from evaldesk.pages.runs.listing import read_listing
from evaldesk.pages.runs.page import RunPage, run_page
from evaldesk.pages.runs.spread import read_spread
from evaldesk.pages.runs.table import read_table
from evaldesk.pages.runs.table_query import TableQuery
from evaldesk.pages.runs.view import PAGE_SIZE, RunQuery
from evaldesk.run_options import BY_NAME
from evaldesk.web.forms.fields import number_of, read_form, text_of
from evaldesk.web.live import LiveBlocks, Message, event_stream
from evaldesk.web.render import desk_of, fragment, go, number, page, refused_status, run_id_of, target_of
from evaldesk.web.routes.new_run import create, delete_preset, preview, save_preset, show_new_run

MAX_TICKED = 200
"""More runs than a page of the list has, and an address names them."""


async def index(request: Request) -> Response:
    """GET /runs: the list, filtered, a page at a time; in a shared database it is asked for again and again.

    A list in which runs are ticked stays as it is.
    """
    query = request.query_params
    is_shared = desk_of(request).settings.is_shared
    if is_shared and query.getlist("run") and request.headers.get("HX-Request"):
        return Response(status_code=204)
    status: RunStatus | None = next((each for each in get_args(RunStatus) if each == query.get("status")), None)
    listing = await asyncio.to_thread(
        read_listing,
        desk_of(request),
        status=status,
        agent=query.get("agent") or None,
        evalset=query.get("evalset") or None,
        model=query.get("model") or None,
        text=query.get("q", "").strip()[:200],
        before=number_of(query.get("before")),
    )
    run_ids = _numbers(query.getlist("deleted"))
    deleted_runs = await asyncio.to_thread(desk_of(request).runs.run_store.in_trash, run_ids) if run_ids else ()
    filter_query = urlencode([each for each in query.multi_items() if each[0] not in ("run", "deleted")])
    here = f"/runs?{filter_query}" if is_shared else ""
    return page(request, "runs/index.html", listing=listing, deleted=deleted_runs, here=here)


async def show(request: Request) -> Response:
    """GET /runs/{run_id}: the whole page, or the block that an htmx request targets."""
    return await _page_of(request, await _read(request))


async def events(request: Request) -> Response:
    """GET /runs/{run_id}/events: the changing parts of the page, at most four times a second, and `done` at the end."""
    await _read(request)  # a run that is not there is a 404, not an empty stream
    return event_stream(request, _messages(request))


async def _messages(request: Request) -> AsyncIterator[Message]:
    """Watchers of one run with the same cases share the rendered page, and each gets the changes."""
    query, tab_tick = table_query(request), None

    async def render(marker: str) -> str:
        return fragment(request, "runs/run.html", "live", run=await _read(request), is_stream=True, cut=marker)

    async for tick in desk_of(request).runs.watch(run_id_of(request)):
        blocks = tick.cache.setdefault(query, LiveBlocks())
        tab_tick, changes = await blocks.since(tab_tick, tick.number, render)
        if changes:
            yield changes
    async for block in _when_over(request):
        yield None, block
    yield "done", "done"


async def _when_over(request: Request) -> AsyncIterator[str]:
    """The block that the page of a run fetches once it is over: the first divergences of failed trials."""
    summary = await desk_of(request).runs.summary(run_id_of(request))
    if summary.counts.failed:
        view = await asyncio.to_thread(read_divergences, desk_of(request), run_id_of(request))
        block = fragment(request, "runs/divergences.html", "broke", found=view)
        yield f'<div hx-swap-oob="outerHTML:#broke">{block}</div>'
    view_of_agents = await asyncio.to_thread(read_agents, desk_of(request), run_id_of(request))
    if view_of_agents.agents:
        block = fragment(request, "runs/agents.html", "agents", found=view_of_agents)
        yield f'<div hx-swap-oob="outerHTML:#agents">{block}</div>'


async def spread(request: Request) -> Response:
    """GET /runs/{run_id}/spread: distributions, noise and the flakiest cases; the run page fetches the block."""
    view = await asyncio.to_thread(read_spread, desk_of(request), run_id_of(request))
    return page(request, "runs/spread.html", block="spread" if target_of(request) == "spread" else None, spread=view)


async def divergences(request: Request) -> Response:
    """GET /runs/{run_id}/divergences: the first divergences, most frequent first; the run page fetches the block."""
    view = await asyncio.to_thread(read_divergences, desk_of(request), run_id_of(request))
    return page(request, "runs/divergences.html", block="broke", found=view)


async def agents(request: Request) -> Response:
    """GET /runs/{run_id}/agents: failures, cost and time of each agent; the run page fetches the block."""
    view = await asyncio.to_thread(read_agents, desk_of(request), run_id_of(request))
    return page(request, "runs/agents.html", block="agents" if target_of(request) == "agents" else None, found=view)


async def configuration(request: Request) -> Response:
    """GET /runs/{run_id}/configuration: the frozen configuration as JSON."""
    summary = await desk_of(request).runs.summary(run_id_of(request))
    return Response(config_json(summary.config), media_type="application/json")


RULES: dict[str, StopRule | None] = {"decided": "exact", "whole": None}


async def cancel(request: Request) -> Response:
    """POST /runs/{run_id}/cancellation: finish the trials in flight, cancel them (`how=now`), or wait.

    With `how=decided` the run ends once the trials that are left cannot change the answers of its gates; with
    `how=whole` it plays every trial after all.
    """
    how = text_of(await read_form(request), "how")
    if how in RULES:
        await desk_of(request).runs.stop_when_decided(run_id_of(request), RULES[how])
    else:
        await desk_of(request).runs.stop(run_id_of(request), cancel=how == "now")
    return go(f"/runs/{run_id_of(request)}")


async def resume(request: Request) -> Response:
    """POST /runs/{run_id}/resumption: play the missing trials."""
    await desk_of(request).runs.resume(run_id_of(request))
    return go(f"/runs/{run_id_of(request)}")


async def consent(request: Request) -> Response:
    """POST /runs/{run_id}/consent: play a run of somebody else as it was shown, which the field `digest` tells."""
    runs, run_id = desk_of(request).runs, run_id_of(request)
    await runs.accept(run_id, text_of(await read_form(request), "digest"))
    if (await runs.summary(run_id)).n_todo:
        await runs.resume(run_id)
    return go(f"/runs/{run_id}")


async def retry(request: Request) -> Response:
    """POST /runs/{run_id}/retries: play the errored trials again."""
    await desk_of(request).runs.retry(run_id_of(request))
    return go(f"/runs/{run_id_of(request)}")


async def note(request: Request) -> Response:
    """POST /runs/{run_id}: change the note; a too long one comes back with the typed text."""
    form = await read_form(request)
    text, note_before = text_of(form, "note").strip(), text_of(form, "seen") if "seen" in form else None
    try:
        BY_NAME["note"].check(text, "The note")
        await desk_of(request).runs.set_note(run_id_of(request), text, note_before)
    except NotFoundError:
        raise
    except (UsageError, ConflictError) as error:
        problem = f"{str(error).rstrip('.')}."
        return await _page_of(request, await _read(request), status=refused_status(error), note=text, problem=problem)
    return go(f"/runs/{run_id_of(request)}")


async def delete(request: Request) -> Response:
    """POST /runs/{run_id}/deletion: the run and all its trials go to the trash, and the list offers to undo it."""
    await desk_of(request).runs.delete(run_id_of(request))
    return go(f"/runs?deleted={run_id_of(request)}")


async def delete_many(request: Request) -> Response:
    """POST /runs/deletion: the ticked runs, all or none."""
    run_ids = await _ticked_runs(request)
    await desk_of(request).runs.delete(*run_ids)
    return go(f"/runs?{urlencode([('deleted', run_id) for run_id in run_ids])}")


async def restore_many(request: Request) -> Response:
    """POST /runs/restoration: undo it, all or none."""
    await desk_of(request).runs.restore(*await _ticked_runs(request))
    return go("/runs")


async def restore(request: Request) -> Response:
    """POST /runs/{run_id}/restoration: undo it."""
    await desk_of(request).runs.restore(run_id_of(request))
    return go(f"/runs/{run_id_of(request)}")


def table_query(request: Request) -> TableQuery:
    """Filters, order and columns of the cases; unknown words fall back to the page's own choice."""
    run_id = run_id_of(request)
    return TableQuery.of(f"/runs/{run_id}", [run_id], request.query_params)


async def _read(request: Request) -> RunPage:
    desk = desk_of(request)
    run_id, query = run_id_of(request), table_query(request)
    run = await run_page(desk.runs, run_id, RunQuery(None, query.only.verdict), most=0)
    flying = desk.runs.in_flight(run_id) if run.is_live else frozenset()
    table = await asyncio.to_thread(read_table, desk, query, in_flight=flying, most=PAGE_SIZE)
    here = query.href(after=query.after)
    run = replace(run, table=table, here=here, events_href=here.replace(f"/runs/{run_id}", f"/runs/{run_id}/events", 1))
    if run.is_live:
        return run
    config, may_accept = run.summary.config, run.summary.counts.failed > 0
    changes = await asyncio.to_thread(changes_on_page, desk.evalsets, desk.stored_runs, run.summary)
    run = replace(run, set_sentence=changes.sentence if changes else "")
    if await asyncio.to_thread(desk.evalsets.id_of_run, config):
        return replace(run, accept_href=f"/runs/{run.summary.id}/acceptance" if may_accept else "")
    return replace(run, again_href="", away=away_sentence(config) if run.again_href else "")


async def _page_of(
    request: Request, run: RunPage, *, status: int = 200, note: str | None = None, problem: str = ""
) -> Response:
    request.state.has_chart = run.may_draw
    target = target_of(request)
    added = await asyncio.to_thread(read_run_repeats, desk_of(request), run.summary)
    return page(
        request,
        "runs/run.html",
        added=added,
        block=target if target in ("live", "more", "table", "rest") else None,
        is_rest=target == "rest",  # the search of the cases works as it is typed once the run has ended
        status=status,
        run=run,
        is_stream=False,
        cut="",
        note=run.summary.note if note is None else note,
        problem=problem,
    )


async def _ticked_runs(request: Request) -> list[int]:
    """The runs of a posted form. Raises UsageError when there are none."""
    run_ids = _numbers((await read_form(request)).getlist("run"))
    if not run_ids:
        raise UsageError("select the runs to delete first")
    return run_ids


def _numbers(texts: Iterable[object]) -> list[int]:
    """The first MAX_TICKED different run ids of the request."""
    numbers = (number for text in texts if (number := number_of(text)) is not None)
    return list(islice(dict.fromkeys(numbers), MAX_TICKED))


async def gates(request: Request) -> Response:
    """GET /gates: the answers of each gate over the last runs; `show` is a common flag."""
    show = request.query_params.get("show", "")
    view = await asyncio.to_thread(read_gates, desk_of(request).runs.run_store, show)
    return page(request, "gates/index.html", found=view)


RUN = "/runs/" + number("run_id")
routes = [
    Route("/runs", index, methods=["GET"]),
    Route("/runs", create, methods=["POST"]),
    Route("/runs/deletion", delete_many, methods=["POST"]),
    Route("/runs/restoration", restore_many, methods=["POST"]),
    Route("/runs/new", show_new_run, methods=["GET"]),
    Route("/runs/new", preview, methods=["POST"]),
    Route("/gates", gates, methods=["GET"]),
    Route("/runs/presets", save_preset, methods=["POST"]),
    Route(f"/runs/presets/{number('preset_id')}/deletion", delete_preset, methods=["POST"]),
    Route(RUN, show, methods=["GET"]),
    Route(RUN, note, methods=["POST"]),
    Route(RUN + "/events", events, methods=["GET"]),
    Route(RUN + "/spread", spread, methods=["GET"]),
    Route(RUN + "/divergences", divergences, methods=["GET"]),
    Route(RUN + "/agents", agents, methods=["GET"]),
    Route(RUN + "/configuration", configuration, methods=["GET"]),
    Route(RUN + "/cancellation", cancel, methods=["POST"]),
    Route(RUN + "/resumption", resume, methods=["POST"]),
    Route(RUN + "/consent", consent, methods=["POST"]),
    Route(RUN + "/retries", retry, methods=["POST"]),
    Route(RUN + "/deletion", delete, methods=["POST"]),
    Route(RUN + "/restoration", restore, methods=["POST"]),
]
