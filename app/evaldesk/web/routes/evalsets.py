"""Eval sets: the list, one set with its cases, and the actions on a whole set."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.criteria.criteria import text_of_criteria
from evaldesk.desk.evalsets.cases import case_with_key
from evaldesk.desk.evalsets.evalsets import DescriptionChangedError, NameChangedError, SetNameTakenError
from evaldesk.desk.evalsets.exporting import export_forms, media_type
from evaldesk.errors import ConflictError, FormatError, NotFoundError, UsageError
from evaldesk.model.evalset import CRITERIA, QUARANTINE
from evaldesk.pages.case_list import case_list
from evaldesk.pages.proposals import waiting
from evaldesk.pages.quarantine import quarantine_lines
from evaldesk.pages.repeating import read_case_repeats
from evaldesk.pages.typed import Problems
from evaldesk.web.cases.editor import run_address
from evaldesk.web.forms.fields import attachment, number_of, read_form, text_of
from evaldesk.web.render import desk_of, go, page, refused_status

NOTES = {
    "created": "Created. Add a session to it from a chat, or write its first case here.",
    "imported": "Imported.",
    "changed": "Saved.",
    "duplicated": "This is the copy.",
    "restored": "Back from the trash.",
    "cases_restored": "Brought back.",
    "step_undone": "The step was undone.",
    "expectations_restored": "The cases expect again what they did before.",
}


async def index(request: Request) -> Response:
    """GET /evalsets: every eval set of the workspace; unreadable ones with the reason."""
    desk = desk_of(request)
    files = await run_in_threadpool(desk.evalsets.list)
    last_runs = await run_in_threadpool(desk.stored_runs.newest_of_evalsets)
    token = _token(request.query_params.get("trashed", ""))
    trashed = await run_in_threadpool(desk.evalsets.find_trash_name, token) if token else ""
    values: dict[str, Any] = {
        "files": files,
        "is_reading": any(file.is_reading for file in files),
        "last_runs": last_runs,
        "token": token,
        "trashed": trashed,
    }
    return page(request, "evalsets/index.html", block="evalsets", **values)


async def show_new_set(request: Request) -> Response:
    """GET /evalsets/new: the form."""
    return page(request, "evalsets/new.html", name="", description="", problems=Problems())


async def create(request: Request) -> Response:
    """POST /evalsets: an eval set without cases."""
    form = await read_form(request)
    name, description = text_of(form, "name").strip(), text_of(form, "description").strip()
    problems = Problems()
    try:
        evalset_id = await run_in_threadpool(desk_of(request).evalsets.create, name, description)
    except (UsageError, ConflictError) as error:
        problems.add("name", "Name", _about_name(error))
        values: dict[str, Any] = {"name": name, "description": description, "problems": problems}
        return page(request, "evalsets/new.html", status=refused_status(error), **values)
    return go(f"/evalsets/{evalset_id}?note=created")


async def show(request: Request) -> Response:
    """GET /evalsets/{set_id}: the set and a page of its cases; `q`, `tag`, `only` and `start` choose which."""
    desk = desk_of(request)
    set_id = request.path_params["set_id"]
    file = await run_in_threadpool(desk.evalsets.file, set_id)
    if file.error:
        return page(request, "evalsets/broken.html", status=422, file=file)
    if file.is_reading:
        return page(request, "evalsets/reading.html", file=file)
    evalset, version, _ = await run_in_threadpool(desk.evalsets.read, set_id)
    query = {name: request.query_params.get(name, "")[:500] for name in ("q", "tag", "only", "start")}
    cases = await run_in_threadpool(
        case_list,
        evalset.cases,
        partial(desk.stored_runs.last_verdicts, set_id),
        run_id=await run_in_threadpool(desk.stored_runs.last_run, set_id),
        text=query["q"],
        tag=query["tag"],
        only=query["only"],
        start=number_of(query["start"]) or 0,
    )
    quarantine_ids = [line.case.id for line in cases.lines if QUARANTINE in line.case.tags]
    added_key = request.query_params.get("added", "")
    added_case = await run_in_threadpool(case_with_key, evalset, added_key) if added_key else None
    agent = {"agent": request.query_params["agent"]} if "agent" in request.query_params else {}
    token = _token(request.query_params.get("case_trashed", ""))
    changed_token = _token(request.query_params.get("changed", ""))
    await run_in_threadpool(desk.adk_sessions.look_once)
    return page(
        request,
        "evalsets/show.html",
        block="rows",
        file=file,
        evalset=evalset,
        version=version,
        set_version=await run_in_threadpool(desk.evalsets.versions.version_of, evalset),
        n_versions=await run_in_threadpool(desk.evalsets.versions.count, set_id),
        cases=cases,
        quarantine=await run_in_threadpool(quarantine_lines, desk, set_id, quarantine_ids),
        query=query,
        has_adk_sessions=desk.adk_sessions.is_any,
        note=NOTES.get(request.query_params.get("note", ""), ""),
        proposed=await run_in_threadpool(waiting.of_evalset, desk, set_id),
        added=added_case,
        added_key=added_key,
        repeats=await run_in_threadpool(read_case_repeats, desk, set_id, added_key, added_case) if added_case else None,
        run_address=run_address(set_id, added_case.id, **agent) if added_case else "",
        token=token,
        changed_token=changed_token,
        step_words=await run_in_threadpool(desk.evalsets.steps.words, set_id, changed_token),
        deleted=await run_in_threadpool(desk.evalsets.cases.list_deleted_ids, set_id, token) if token else [],
    )


async def settings(request: Request) -> Response:
    """GET /evalsets/{set_id}/settings: its name, description and criteria."""
    desk = desk_of(request)
    set_id = request.path_params["set_id"]
    file = await run_in_threadpool(desk.evalsets.file, set_id)
    evalset, _, _ = await run_in_threadpool(desk.evalsets.read, set_id)
    description = evalset.description or ""
    criteria = text_of_criteria(evalset.extra.get(CRITERIA))
    values: dict[str, Any] = {
        "name": file.name,
        "called": file.name,
        "description": description,
        "seen": description,
        "criteria": criteria,
        "criteria_seen": criteria,
    }
    return page(request, "evalsets/settings.html", file=file, problems=Problems(), **values)


async def change_settings(request: Request) -> Response:
    """POST /evalsets/{set_id}/settings: rename, describe, set criteria."""
    desk = desk_of(request)
    set_id = request.path_params["set_id"]
    file = await run_in_threadpool(desk.evalsets.file, set_id)
    form = await read_form(request)
    name, description = text_of(form, "name").strip(), text_of(form, "description").strip()
    description_before = text_of(form, "seen").replace("\r\n", "\n") if "seen" in form else None
    name_before = text_of(form, "called") if "called" in form else None
    change = partial(
        desk.evalsets.change, set_id, name, description.replace("\r\n", "\n"), description_before, name_before
    )
    problems = Problems()
    criteria, criteria_seen = (
        text_of(form, key).replace("\r\n", "\n").strip() for key in ("criteria", "criteria-seen")
    )
    status = 200
    try:
        if "criteria" in form and criteria != criteria_seen:
            await run_in_threadpool(desk.evalsets.steps.set_criteria, set_id, criteria, criteria_seen)
            criteria_seen = criteria
    except (UsageError, NotFoundError, ConflictError, FormatError) as error:
        problems.add("criteria", "Criteria", f"{error}")
        status = 409 if isinstance(error, ConflictError) else 422
    new_id = set_id
    try:
        new_id = set_id if problems else await run_in_threadpool(change)
    except NotFoundError:
        raise
    except (UsageError, ConflictError) as error:
        if isinstance(error, DescriptionChangedError):
            description_before = error.stored_description
            problems.add("description", "Description", str(error))
        else:
            name_before = error.stored_name if isinstance(error, NameChangedError) else name_before
            problems.add("name", "Name", _about_name(error))
        status = refused_status(error)
    if problems:
        values: dict[str, Any] = {
            "name": name,
            "called": name_before,
            "description": description,
            "seen": description_before,
            "criteria": criteria,
            "criteria_seen": criteria_seen,
        }
        return page(request, "evalsets/settings.html", status=status, file=file, problems=problems, **values)
    return go(f"/evalsets/{new_id}?note=changed")


async def duplicate(request: Request) -> Response:
    """POST /evalsets/{set_id}/copies."""
    new_id = await run_in_threadpool(desk_of(request).evalsets.duplicate, request.path_params["set_id"])
    return go(f"/evalsets/{new_id}?note=duplicated")


async def trash(request: Request) -> Response:
    """POST /evalsets/{set_id}/trash: the file is moved away, and the list offers to undo it."""
    token = await run_in_threadpool(desk_of(request).evalsets.trash, request.path_params["set_id"])
    return go(f"/evalsets?trashed={token}")


async def restore(request: Request) -> Response:
    """POST /evalsets/trash/{token}/restoration: undo it."""
    evalset_id = await run_in_threadpool(desk_of(request).evalsets.restore, request.path_params["token"])
    return go(f"/evalsets/{evalset_id}?note=restored")


async def exports(request: Request) -> Response:
    """GET /evalsets/{set_id}/exports: the formats for its export, and the losses of each."""
    desk = desk_of(request)
    set_id = request.path_params["set_id"]
    file = await run_in_threadpool(desk.evalsets.file, set_id)
    evalset, _, _ = await run_in_threadpool(desk.evalsets.read, set_id)
    if desk.evalsets.is_indexed(file):
        return page(request, "evalsets/export_large.html", file=file)
    forms = await run_in_threadpool(export_forms, evalset, file.format)
    masked_words = (await run_in_threadpool(desk.evalsets.export, set_id, "adk")).masking_note
    return page(request, "evalsets/export.html", file=file, evalset=evalset, forms=forms, masked=masked_words)


async def download(request: Request) -> Response:
    """GET /evalsets/{set_id}/file?format=adk: the set as a file."""
    set_id, name = request.path_params["set_id"], request.query_params.get("format", "adk")
    desk = desk_of(request)
    stream = await run_in_threadpool(desk.evalsets.stream_large_set, set_id) if name == "adk" else None
    if stream:
        return attachment(stream[1], plain_name(stream[0]), media_type(stream[0]))
    export = await run_in_threadpool(desk.evalsets.export, set_id, name)
    return attachment(export.data, export.file_name, media_type(export.file_name))


def plain_name(name: str) -> str:
    """A file name that a header can hold."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100]


def _about_name(error: Exception) -> str:
    if isinstance(error, SetNameTakenError):
        return f"There is an eval set named {error.name} already. {error.free} is free."
    return str(error)


def _token(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", text) else ""


routes = [
    Route("/evalsets", index),
    Route("/evalsets", create, methods=["POST"]),
    Route("/evalsets/new", show_new_set),
    Route("/evalsets/trash/{token}/restoration", restore, methods=["POST"]),
    Route("/evalsets/{set_id}", show),
    Route("/evalsets/{set_id}/cases", show),
    Route("/evalsets/{set_id}/settings", settings),
    Route("/evalsets/{set_id}/settings", change_settings, methods=["POST"]),
    Route("/evalsets/{set_id}/copies", duplicate, methods=["POST"]),
    Route("/evalsets/{set_id}/trash", trash, methods=["POST"]),
    Route("/evalsets/{set_id}/exports", exports),
    Route("/evalsets/{set_id}/file", download),
]
