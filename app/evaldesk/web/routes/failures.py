"""Failures: the room where trials are read, the page of a kind of failure, and findings on the page of a trial."""

from __future__ import annotations

import asyncio
from functools import partial
from urllib.parse import urlencode

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.evalsets.exporting import media_type
from evaldesk.desk.evalsets.names import slug
from evaldesk.desk.failure_cases import MadeCases, make_cases
from evaldesk.desk.failure_files import export_failures, import_modes
from evaldesk.desk.failures import FailureDesk, TypedFinding, TypedMode, checked_id
from evaldesk.desk.model_proposals import ModelProposals
from evaldesk.errors import ConflictError, EvaldeskError, FormatError, LossError, NotFoundError, UsageError
from evaldesk.model.failures import FORMS, Mode
from evaldesk.pages.failures.kind import TypedChange, read_mode, read_where
from evaldesk.pages.failures.room import read_failures
from evaldesk.pages.proposals import waiting
from evaldesk.pages.runs.view import trial_href
from evaldesk.web.forms.fields import (
    KindOffer,
    attachment,
    number_of,
    offer_of,
    read_form,
    text_of,
    texts_of,
    typed_finding,
    typed_kind,
)
from evaldesk.web.render import desk_of, go, number, page, refused_status, target_of
from evaldesk.web.routes.trials import TRIAL, trial_key, trial_page


async def index(request: Request) -> Response:
    """GET /failures: the failure room of one `run`, beside one `before` it."""
    return await _room(request, number_of(request.query_params.get("run")))


async def _room(
    request: Request,
    run_id: int | None,
    draft: TypedFinding | None = None,
    error: EvaldeskError | None = None,
    *,
    undone: str = "",
    new_kind: TypedMode | None = None,
    proposals: ModelProposals | None = None,
    import_words: str = "",
    offer: KindOffer | None = None,
) -> Response:
    """The room, with refused text as it was typed, or a note on the last undo or import."""
    before, first = (number_of(request.query_params.get(name)) for name in ("before", "from"))
    room = await asyncio.to_thread(read_failures, desk_of(request), run_id, before, draft, error, first or 0)
    return page(
        request,
        "failures/index.html",
        block="room",
        status=refused_status(error),
        room=room,
        proposed=await asyncio.to_thread(waiting.of_failures, desk_of(request), room.run.id) if room else None,
        undone=undone,
        new_kind=new_kind,
        asked=proposals,
        imported=import_words,
        offer=offer,
        forms=FORMS,
    )


async def give_out(request: Request) -> Response:
    """GET /failures/file: all findings, or those of `mode`, in a `format`."""
    desk, mode_id = desk_of(request), number_of(request.query_params.get("mode"))
    mode = await _mode_of(request, mode_id) if mode_id is not None else None
    export = await asyncio.to_thread(export_failures, desk, request.query_params.get("format", "json"), mode)
    return attachment(export.parts, export.file_name, media_type(export.file_name))


async def take_in(request: Request) -> Response:
    """POST /failures/file: add the kinds and findings of a `file` that was given out."""
    form = await read_form(request)
    run_id, upload = number_of(text_of(form, "run")), form.get("file")
    try:
        if not isinstance(upload, UploadFile) or not upload.filename:
            raise UsageError("Choose a file.", field="file")
        data, name = await upload.read(), upload.filename
        await upload.close()
        result = await asyncio.to_thread(import_modes, desk_of(request), data, name, text_of(form, "labeller"))
    except (UsageError, FormatError) as error:
        return await _room(request, run_id, None, error)
    return await _room(request, run_id, import_words=result.words)


async def undo(request: Request) -> Response:
    """POST /failures/undo: take back the last step of a reader, then show the kind `mode`, or the room of `run`.

    A kind that the step had made is gone by that; then the room is shown.
    """
    form = await read_form(request)
    run_id, mode_id = number_of(text_of(form, "run")), number_of(text_of(form, "mode"))
    failures = desk_of(request).failures
    try:
        step = await asyncio.to_thread(failures.undo, text_of(form, "labeller"))
    except (UsageError, ConflictError) as error:
        if mode_id is not None:
            return await _mode(request, mode_id, error=error)
        return await _room(request, run_id, None, error)
    if target_of(request) == "room":
        return await _room(request, run_id, undone=step.words)
    if mode_id is not None and any(
        mode.id == mode_id for mode in await asyncio.to_thread(desk_of(request).failures.modes)
    ):
        return go(f"/failures/{mode_id}{_from(run_id)}")
    return go(f"/failures{_from(run_id)}")


async def propose(request: Request) -> Response:
    """POST /failures/proposals: `op` is propose for the trials of `run`, accept or reject for those in `finding`.

    With `ask` it is the `model` that proposes, one of the settings; with `name` the notes in `finding` get a kind.
    """
    form = await read_form(request)
    run_id, failures = checked_id(text_of(form, "run"), "run"), desk_of(request).failures
    if text_of(form, "op") == "ask":
        try:
            proposals = await desk_of(request).model_proposals.propose(run_id, text_of(form, "model"))
        except NotFoundError:
            raise
        except EvaldeskError as error:
            return await _room(request, run_id, None, error)
        return await _room(request, run_id, proposals=proposals)
    if text_of(form, "op") == "propose":
        await asyncio.to_thread(failures.propose, run_id)
    else:
        name, is_new = typed_kind(form)
        draft = TypedFinding(text_of(form, "labeller"), new_mode=name, is_new=is_new)
        try:
            id_texts = ",".join(texts_of(form, "finding")).split(",")
            ids = [checked_id(each, "finding") for each in id_texts if each]
            if text_of(form, "op") == "name":
                await asyncio.to_thread(failures.name, ids, draft)
            else:
                is_accepted = text_of(form, "op") == "accept"
                await asyncio.to_thread(failures.decide, ids, draft, is_accepted=is_accepted)
        except NotFoundError:
            raise
        except (UsageError, ConflictError) as error:
            return await _room(request, run_id, draft, error, offer=offer_of(request.url.path, form, error))
    return go(f"/failures?run={run_id}")


async def create(request: Request) -> Response:
    """POST /failures: create a kind of failure, and show it."""
    form = await read_form(request)
    draft, run_id = _typed_mode(form), number_of(text_of(form, "run"))
    try:
        mode_id = await asyncio.to_thread(desk_of(request).failures.create, draft, text_of(form, "labeller"))
    except UsageError as error:
        return await _room(request, run_id, None, error, new_kind=draft)
    return go(f"/failures/{mode_id}{_from(run_id)}")


async def show_mode(request: Request) -> Response:
    """GET /failures/{mode_id}: a kind of failure, with findings older than `before` and runs before `runs`.

    A visit from the room of a `run` leads back to it.
    """
    return await _mode(request, request.path_params["mode_id"])


async def _mode(
    request: Request,
    mode_id: int,
    draft: TypedChange | None = None,
    error: EvaldeskError | None = None,
    new_cases: MadeCases | None = None,
) -> Response:
    before, runs, run_id = (number_of(request.query_params.get(name)) for name in ("before", "runs", "run"))
    read_page = partial(read_mode, desk_of(request), mode_id, draft, error, before=before, runs_before=runs)
    view = await asyncio.to_thread(read_page)
    if view is None:
        raise NotFoundError(f"there is no kind of failure {mode_id}")
    desk, sets = desk_of(request), await asyncio.to_thread(desk_of(request).evalsets.list)
    new_set = await asyncio.to_thread(desk.evalsets.free_name, slug(view.mode.name))
    return page(
        request,
        "failures/mode.html",
        status=refused_status(error),
        kind=view,
        forms=FORMS,
        sets=[each for each in sets if not each.error],
        new_set=new_set,
        made=new_cases,
        run_id=run_id,
        from_room=_from(run_id),
    )


async def show_where(request: Request) -> Response:
    """GET /failures/{mode_id}/where: its findings by tool, turn, tag and case, for which trials are read."""
    mode_id: int = request.path_params["mode_id"]
    await _mode_of(request, mode_id)
    view = await asyncio.to_thread(read_where, desk_of(request), mode_id)
    return page(request, "failures/where.html", block="where", where=view, mode_id=mode_id)


async def change_mode(request: Request) -> Response:
    """POST /failures/{mode_id}: `op` is edit, merge, split, retire, fix, or name for the name of the reader alone."""
    form = await read_form(request)
    mode_id: int = request.path_params["mode_id"]
    try:
        shown_id = await asyncio.to_thread(_change_mode, desk_of(request).failures, mode_id, form)
    except NotFoundError:
        raise
    except (UsageError, ConflictError) as error:
        draft = TypedChange(
            text_of(form, "op"), _typed_mode(form), texts_of(form, "finding"), text_of(form, "labeller")
        )
        return await _mode(request, mode_id, draft, error)
    return go(f"/failures/{shown_id}{_from(number_of(request.query_params.get('run', '')))}")


def _change_mode(failures: FailureDesk, mode_id: int, form: FormData) -> int:
    """The mode to show after the change."""
    op, author = text_of(form, "op"), text_of(form, "labeller")
    if op == "edit":
        failures.edit(mode_id, _typed_mode(form), author, text_of(form, "seen"))
    elif op == "merge":
        into = checked_id(text_of(form, "into"), "into")
        failures.merge(mode_id, into, author)
        return into
    elif op == "split":
        ids = [checked_id(each, "finding") for each in texts_of(form, "finding")]
        return failures.split(mode_id, ids, _typed_mode(form), author)
    elif op == "retire":
        failures.retire(mode_id, author)
    elif op == "name":
        failures.sign(author)
    elif op == "fix":
        failures.mark_fixed(mode_id, checked_id(text_of(form, "run"), "run"), author)
    else:
        raise UsageError("Choose what to do with this kind of failure.", field="op")
    return mode_id


async def make(request: Request) -> Response:
    """POST /failures/{mode_id}/cases: cases of the trials with it, in the `evalset` or a new one, `new-set`."""
    form, desk, mode_id = await read_form(request), desk_of(request), request.path_params["mode_id"]
    mode = await _mode_of(request, mode_id)
    try:
        new_cases = await asyncio.to_thread(
            make_cases, desk, mode, text_of(form, "evalset"), text_of(form, "new-set").strip()
        )
    except NotFoundError:
        raise
    except (UsageError, ConflictError, LossError) as error:
        return await _mode(request, mode_id, error=error)
    return await _mode(request, mode_id, new_cases=new_cases)


async def _mode_of(request: Request, mode_id: int) -> Mode:
    modes = await asyncio.to_thread(desk_of(request).failures.modes)
    mode = next((each for each in modes if each.id == mode_id), None)
    if mode is None:
        raise NotFoundError(f"there is no kind of failure {mode_id}")
    return mode


async def put(request: Request) -> Response:
    """POST .../trials/{trial_index}/findings: a finding, `op=clear` for nothing wrong, or `op=remove` of `finding`.

    With `then=next` the room shows the next trial to read, else the page of the trial is shown again.
    """
    run_id, key = trial_key(request)
    form = await read_form(request)
    draft = typed_finding(form, text_of(form, "labeller"))
    desk, is_next = desk_of(request), text_of(form, "then") == "next"
    try:
        if text_of(form, "op") == "clear":
            await asyncio.to_thread(desk.failures.clear, run_id, key, draft.author)
        elif text_of(form, "op") == "remove":
            finding_id = checked_id(text_of(form, "finding"), "finding")
            await asyncio.to_thread(desk.failures.remove, finding_id, draft.author)
        else:
            result = await asyncio.to_thread(desk.runs.run_store.trial, run_id, *key)
            await asyncio.to_thread(desk.failures.add, run_id, key, draft, result.transcript)
    except NotFoundError:
        raise
    except (UsageError, ConflictError) as error:
        offer = offer_of(request.url.path, form, error)
        if is_next:
            return await _room(request, run_id, draft, error, offer=offer)
        return await trial_page(request, finding=draft, finding_error=error, offer=offer)
    if is_next:
        return go(f"/failures?{urlencode({'run': run_id})}")
    return go(f"{trial_href(run_id, key)}#findings")


def _typed_mode(form: FormData) -> TypedMode:
    return TypedMode(*(text_of(form, name) for name in ("name", "definition", "example-yes", "example-no")))


def _from(run_id: int | None) -> str:
    """The room of the visit, as the address names it."""
    return "" if run_id is None else f"?run={run_id}"


MODE = f"/failures/{number('mode_id')}"
routes = [
    Route("/failures", index, methods=["GET"]),
    Route("/failures", create, methods=["POST"]),
    Route("/failures/proposals", propose, methods=["POST"]),
    Route("/failures/undo", undo, methods=["POST"]),
    Route("/failures/file", give_out, methods=["GET"]),
    Route("/failures/file", take_in, methods=["POST"]),
    Route(MODE, show_mode, methods=["GET"]),
    Route(f"{MODE}/where", show_where, methods=["GET"]),
    Route(MODE, change_mode, methods=["POST"]),
    Route(f"{MODE}/cases", make, methods=["POST"]),
    Route(TRIAL + "/findings", put, methods=["POST"]),
]
