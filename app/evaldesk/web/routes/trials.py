"""One trial of a run, turn by turn, and the labels that people give to trials."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.failures import TypedFinding
from evaldesk.desk.labels import VERDICTS, TypedLabel
from evaldesk.errors import ConflictError, EvaldeskError, UsageError
from evaldesk.model.evalset import case_key
from evaldesk.model.stored import LabelFilter, TrialKey
from evaldesk.pages import trial as pages
from evaldesk.pages.accepting import accept_href
from evaldesk.pages.failures.kind import read_findings
from evaldesk.pages.fork_rail import read_rail
from evaldesk.pages.labels import cursor_time, read_labels
from evaldesk.pages.large_state import ValuePart
from evaldesk.pages.pair import read_pair
from evaldesk.pages.proposals import waiting
from evaldesk.pages.runs.facts import away_sentence
from evaldesk.pages.runs.view import trial_href
from evaldesk.pages.timeline import raw_call, read_timeline
from evaldesk.pages.trial import read_other_scorings
from evaldesk.web.forms.fields import KindOffer, number_of, read_form, start_of, text_of
from evaldesk.web.render import desk_of, go, number, page, refused_status, target_of


async def show(request: Request) -> Response:
    """GET /runs/{run_id}/cases/{case_index}/trials/{trial_index}: indexes count from 0, as in the store.

    The page of a trial that waits asks again now and then, and is loaded anew once there is something to show.
    """
    if target_of(request) == "waiting":
        trial = await pages.trial_page(desk_of(request).runs, *trial_key(request))
        return Response(status_code=204, headers={"HX-Refresh": "true"} if trial.result else None)
    return await trial_page(request)


async def trial_page(
    request: Request,
    draft: TypedLabel | None = None,
    error: UsageError | None = None,
    finding: TypedFinding | None = None,
    finding_error: EvaldeskError | None = None,
    offer: KindOffer | None = None,
) -> Response:
    """The page of a trial; with a label or a finding that could not be kept, as it was typed."""
    run_id, key = trial_key(request)
    is_whole = bool(request.query_params.get("all"))
    more = request.query_params.get("steps", "")
    turn, first, event = (number_of(request.query_params.get(name)) or 0 for name in ("turn", "pieces", "events"))
    runs = desk_of(request).runs
    trial = await pages.trial_page(runs, run_id, key, is_whole=is_whole, more=more, turn=turn, start=(first, event))
    labels = await asyncio.to_thread(desk_of(request).labels.panel, run_id, key, draft, error)
    findings = await asyncio.to_thread(read_findings, desk_of(request), run_id, key, finding, finding_error)
    other_scorings = await asyncio.to_thread(read_other_scorings, desk_of(request), run_id, key)
    config = trial.summary.config
    evalset = await asyncio.to_thread(desk_of(request).evalsets.id_of_run, config)
    again = {"agent": config.agent.id, "evalset": evalset, "case": trial.case.id, "n": str(config.n)}
    return page(
        request,
        "trials/trial.html",
        block="labels",
        status=refused_status(error or finding_error),
        trial=trial,
        labels=labels,
        findings=findings,
        proposed=await asyncio.to_thread(waiting.of_trial, desk_of(request), run_id, key),
        is_swap=target_of(request) == "labels",
        offer=offer,
        other_scorings=other_scorings,
        rail=await asyncio.to_thread(read_rail, desk_of(request), trial.summary, key),
        is_prefix_open=0 < turn <= trial.n_pinned,
        edit_href=f"/evalsets/{evalset}/cases/{case_key(trial.case.id)}" if evalset else "",
        away="" if evalset else away_sentence(config),
        again_href=f"/runs/new?{urlencode(again)}",
        accept_href=await asyncio.to_thread(
            accept_href, desk_of(request), trial.summary, trial.trial_turns, trial.divergence
        ),
    )


async def show_turn(request: Request, kind: str = "turn") -> Response:
    """GET .../turns/{turn} for a page that left it out; /pieces and /events are more of it, from `from` on.

    Without htmx the address leads to the trial as one page.
    """
    (run_id, key), turn = trial_key(request), request.path_params["turn"]
    address = trial_href(run_id, key)
    played_trial, panel = await asyncio.to_thread(
        pages.read_turn,
        desk_of(request).runs.run_store,
        run_id,
        key,
        turn,
        start_of(request),
        has_events=kind == "events",
    )
    if not request.headers.get("HX-Request"):
        query = panel.rest_query(kind, start_of(request))
        return go(f"{address}?{query}#turn-{turn + 1}")
    error = played_trial.result.error if played_trial.result else None
    return page(request, "trials/turn.html", kind=kind, turn=panel, error=error, address=address)


MOST_TURNS = 2**31
"""Beyond the last turn of any trial."""


async def show_piece(request: Request) -> Response:
    """GET .../turns?from=51&to=100: turns that the page of a long trial left out, and the rest of their gap.

    Without numbers they begin with the first turn.
    Without htmx the address leads to the page that begins with these turns.
    """
    (run_id, key), query = trial_key(request), request.query_params
    first, last = number_of(query.get("from", "1")) or 0, number_of(query.get("to", str(MOST_TURNS))) or 0
    stored_runs, address = desk_of(request).runs.run_store, trial_href(run_id, key)
    pieces = await asyncio.to_thread(pages.read_piece, stored_runs, run_id, key, first, last)
    if not request.headers.get("HX-Request"):
        return go(f"{address}?turn={first}#turn-{first}")
    return page(request, "trials/turn.html", kind="piece", pieces=pieces, error=None, address=address)


async def show_event(request: Request) -> Response:
    """GET .../turns/{turn}/events/{event}: the whole text of one event, from the character `from` on; all from 0."""
    turn, at = request.path_params["turn"], request.path_params["event"]
    place = f"/turns/{turn}/events/{at}"
    return await _long_text(request, pages.event_part, (turn, at), "Event", place, f"#turn-{turn + 1}")


async def show_answer(request: Request) -> Response:
    """GET .../turns/{turn}/answer: how an answer differs from its reference, by lines, from the character `from` on."""
    turn = request.path_params["turn"]
    return await _long_text(request, pages.answer_part, turn, "Answer", f"/turns/{turn}/answer", f"#turn-{turn + 1}")


async def show_source(request: Request) -> Response:
    """GET .../source/{at}: the whole of a long text that the source of the trial gave, from the character `from` on."""
    at = request.path_params["at"]
    return await _long_text(request, pages.source_part, at, "Source", f"/source/{at}", f"#source-{at}")


async def show_timeline(request: Request) -> Response:
    """GET .../timeline?span=TURN.EVENT&part=tools: the spans of the trial, and one of them beside them.

    With `judge` and `turn` that is the first call of a criterion's judges.
    """
    (run_id, key), query = trial_key(request), request.query_params
    stored_runs = desk_of(request).runs.run_store
    span, part, judge, turn = (query.get(name, "") for name in ("span", "part", "judge", "turn"))
    line = await asyncio.to_thread(read_timeline, stored_runs, run_id, key, span, part, (judge, turn))
    return page(request, "trials/timeline.html", line=line)


async def show_call(request: Request) -> Response:
    """GET .../calls/{at}: a model call as it was sent and answered, as JSON, from the character `from` on."""
    at = request.path_params["at"]
    return await _long_text(request, raw_call, at, "Model call", f"/calls/{at}", "/timeline")


async def show_pair(request: Request) -> Response:
    """GET .../pair?with=RUN.CASE.TRIAL: the trial beside another one; without a name, beside the next that differs.

    With `turn` those of many turns are compared from that number on.
    """
    (run_id, key), query = trial_key(request), request.query_params
    stored_runs, is_all = desk_of(request).runs.run_store, query.get("show") == "all"
    turn = number_of(query.get("turn")) or 1
    other = query.get("with", "")
    pair = await asyncio.to_thread(read_pair, stored_runs, run_id, key, other, is_all=is_all, turn=turn)
    return page(request, "trials/pair.html", pair=pair)


async def _long_text(
    request: Request, read_part: Callable[..., ValuePart], which: object, name: str, place: str, anchor: str
) -> Response:
    """A part of the text that `read_part` gives; `place` is its address below the trial, `anchor` the way back."""
    run_id, key = trial_key(request)
    part = await asyncio.to_thread(read_part, desk_of(request).runs.run_store, run_id, key, which, start_of(request))
    address = trial_href(run_id, key)
    trail = (("Runs", "/runs"), (f"Run {run_id}", f"/runs/{run_id}"), (f"Trial {key[1] + 1}", address), (name, ""))
    return page(
        request,
        "value.html",
        part=part,
        crumbs=trail,
        from_href=f"{address}{place}?from=",
        back_href=f"{address}{anchor}",
        back="Back to the trial",
    )


def trial_key(request: Request) -> tuple[int, TrialKey]:
    """The run and the trial that the address names."""
    run_id, case_index, trial_index = (request.path_params[name] for name in ("run_id", "case_index", "trial_index"))
    return run_id, (case_index, trial_index)


async def show_labels(request: Request) -> Response:
    """GET /labels: labels newest first, of one `run`, by one `labeller`, `only` some verdict."""
    query = request.query_params
    only = query.get("only", "")
    label_filter = LabelFilter(
        run_id=number_of(query.get("run")),
        labeller=query.get("labeller") or None,
        verdict=only if only in VERDICTS else None,
        is_disagreement=only == "disagreements",
    )
    before = cursor_time(query.get("before", ""))
    listing = await asyncio.to_thread(read_labels, desk_of(request), label_filter, before)
    return page(request, "labels/index.html", listing=listing)


async def put_label(request: Request) -> Response:
    """POST /runs/{run_id}/cases/{case_index}/trials/{trial_index}/labels: a label, or `op=remove`.

    A script gets the panel of labels, a form without one is sent back to the page.
    """
    run_id, key = trial_key(request)
    form = await read_form(request)
    draft = TypedLabel(*(text_of(form, name) for name in ("labeller", "verdict", "note", "turn", "op", "seen")))
    trial = await pages.trial_page(desk_of(request).runs, run_id, key)
    try:
        await asyncio.to_thread(desk_of(request).labels.put, run_id, key, draft, trial.n_turns)
    except UsageError as error:
        return await trial_page(request, draft, error)
    except ConflictError as error:
        return await trial_page(request, draft, UsageError(str(error), field="note"))
    if target_of(request) == "labels":
        return await trial_page(request)
    return go(f"{trial.href}#labels")


TRIAL = f"/runs/{number('run_id')}/cases/{number('case_index')}/trials/{number('trial_index')}"
TURN = f"{TRIAL}/turns/{number('turn')}"
routes = [
    Route(TRIAL, show, methods=["GET"]),
    Route(f"{TRIAL}/turns", show_piece, methods=["GET"]),
    Route(TURN, show_turn, methods=["GET"]),
    *(Route(f"{TURN}/{kind}", partial(show_turn, kind=kind), methods=["GET"]) for kind in ("pieces", "events")),
    Route(f"{TURN}/events/{number('event')}", show_event, methods=["GET"]),
    Route(f"{TURN}/answer", show_answer, methods=["GET"]),
    Route(f"{TRIAL}/timeline", show_timeline, methods=["GET"]),
    Route(f"{TRIAL}/calls/{number('at')}", show_call, methods=["GET"]),
    Route(f"{TRIAL}/pair", show_pair, methods=["GET"]),
    Route(f"{TRIAL}/source/{number('at')}", show_source, methods=["GET"]),
    Route(f"{TRIAL}/labels", put_label, methods=["POST"]),
    Route("/labels", show_labels, methods=["GET"]),
]
