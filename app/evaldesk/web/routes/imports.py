"""Files of other tools: chosen, looked at, taken in; and runs given out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.evalsets.evalsets import SetNameTakenError
from evaldesk.desk.evalsets.exporting import export_run, media_type, run_formats, stream_run
from evaldesk.desk.imports.importing import N_AT_ONCE, AlreadyImportedError, TakenIn, file_titles
from evaldesk.desk.imports.staging import MAPPED_ROLES, Staged
from evaldesk.desk.imports.uploads import MAX_WAITING, Upload
from evaldesk.errors import ConflictError, DiskError, EvaldeskError, FormatError, NotFoundError, UsageError
from evaldesk.pages.import_view import RecordView, reading_view, record_view
from evaldesk.pages.typed import Problems
from evaldesk.web.forms.fields import arrived_files, attachment, leave, read_form, text_of
from evaldesk.web.render import desk_of, go, number, page, target_of
from evaldesk.web.report import run_report

MAX_SHOWN = 20
MAX_SEARCHED = 5_000
"""Trials of a run that are searched for secrets before its files are offered."""


async def show_new_import(request: Request) -> Response:
    """GET /imports: the form that takes a file, the imports under way, and the uploads that wait."""
    return await _form(request, Problems())


async def create(request: Request) -> Response:
    """POST /imports: the file waits for a yes; a file of no known format comes back with the reason.

    A large file goes to the disk as it comes, and its page shows the progress of reading.
    """
    imports, problems = desk_of(request).imports, Problems()
    try:
        await run_in_threadpool(imports.staging.check_upload, int(request.headers.get("content-length", "0")))
        async with arrived_files(request, imports.staging.arriving) as files:
            if files:
                return go(f"/imports/{await run_in_threadpool(imports.staging.stage_arrived, files)}")
        problems.add("file", "File", "Choose a file first.")
    except ClientDisconnect:
        return Response(status_code=400)  # nobody reads it: the upload was cancelled
    except (FormatError, UsageError) as error:
        problems.add("file", "File", str(error))
    except DiskError as error:
        problems.add("file", "File", str(error))
        return await _form(request, problems, status=507)
    return await _form(request, problems, status=422)


async def show(request: Request) -> Response:
    """GET /imports/{import_id}: the understood, the kept and the refused parts of the file, once it is read."""
    imports, token = desk_of(request).imports, request.path_params["import_id"]
    reading = await run_in_threadpool(imports.staging.reading, token)
    if reading is not None:
        return _progress(request, reading_view(reading), f"/imports/{token}", READING)
    if target_of(request) == "progress":
        return leave(request, f"/imports/{token}", "progress")
    upload = await run_in_threadpool(imports.staging.mapping, token)
    if upload is not None and not upload.is_mapped:
        return go(f"/imports/{token}/mapping")
    staged = await _staged_import(request)
    return _preview(request, staged, staged.name, Problems())


async def show_mapping(request: Request) -> Response:
    """GET /imports/{import_id}/mapping: the columns of a data set that no format knows, with proposed roles."""
    return await _mapping(request, {}, "")


async def map_columns(request: Request) -> Response:
    """POST /imports/{import_id}/mapping: read the rows by the columns that were chosen, and show the preview."""
    form, staging = await read_form(request), desk_of(request).imports.staging
    columns = {role: text_of(form, f"column-{role}") for role in MAPPED_ROLES}
    try:
        await run_in_threadpool(staging.map, request.path_params["import_id"], columns)
    except ConflictError:
        pass
    except (UsageError, FormatError) as error:
        return await _mapping(request, columns, str(error))
    return go(f"/imports/{request.path_params['import_id']}")


async def _mapping(request: Request, columns: Mapping[str, str], problem: str) -> Response:
    token = request.path_params["import_id"]
    upload = await run_in_threadpool(desk_of(request).imports.staging.mapping, token)
    if upload is None:  # its format gives its columns a meaning
        return go(f"/imports/{token}")
    values: dict[str, Any] = {"upload": upload, "chosen": columns or upload.chosen, "problem": problem}
    return page(request, "imports/mapping.html", status=422 if problem else 200, roles=MAPPED_ROLES, **values)


async def choose(request: Request) -> Response:
    """POST /imports/{import_id}/outcome: look again, with another key that decides the verdict; nothing is stored."""
    staged = await _staged_import(request)
    outcome = text_of(await read_form(request), "outcome")
    try:
        await run_in_threadpool(desk_of(request).imports.staging.stage_by, staged.token, outcome)
    except FormatError as error:
        problems = Problems()
        problems.add("outcome", "Outcome", str(error))
        return _preview(request, staged, staged.name, problems, status=422)
    return go(f"/imports/{staged.token}")


async def confirm(request: Request) -> Response:
    """POST /imports/{import_id}: store it; a taken name is answered with a choice."""
    staged = await _staged_import(request)
    form = await read_form(request)
    imports, sets = desk_of(request).imports, desk_of(request).evalsets
    name, choice = text_of(form, "name").strip() or staged.name, text_of(form, "choice")
    problems = Problems()
    try:
        outcome = text_of(form, "outcome", staged.contents.outcome)
        restaged = await run_in_threadpool(imports.staging.stage_by, staged.token, outcome)
        if restaged is None:
            return go(f"/imports/{staged.token}")
        staged = restaged
        if choice == "both":
            name = await run_in_threadpool(sets.free_name, name)
        new_import = await run_in_threadpool(
            imports.begin,
            staged.contents,
            source=staged.source,
            name=name,
            replaces=choice == "replace",
            renames=text_of(form, "renames") == "on",
            again=text_of(form, "again") == "on" or choice in ("both", "replace"),
            digests=staged.digests,
        )
        if new_import.id is not None and new_import.n_total > N_AT_ONCE:
            imports.start(new_import, staged.token)
            return go(f"/imports/records/{new_import.id}")
        result = await run_in_threadpool(imports.finish, new_import)
    except SetNameTakenError as error:
        problems.add("name", "Name", f"There is an eval set named {error.name} already. {error.free} is free.")
        return _preview(request, staged, name, problems, status=409, name_error=error)
    except AlreadyImportedError as error:
        problems.add("again", "Import", f"{error.words[:1].upper()}{error.words[1:]}.")
        return _preview(request, staged, name, problems, status=409, is_known=True)
    except (UsageError, ConflictError, FormatError) as error:
        problems.add("name" if staged.contents.evalset else "import", "Import", str(error))
        return _preview(request, staged, name, problems, status=422)
    with suppress(NotFoundError, DiskError):  # discarded meanwhile, or discarded by a person later
        await run_in_threadpool(imports.staging.drop, staged.token)
    return go(_address(result))


async def discard(request: Request) -> Response:
    """POST /imports/{import_id}/deletion: forget the file."""
    await run_in_threadpool(desk_of(request).imports.staging.drop, request.path_params["import_id"])
    return go("/imports")


async def run_exports(request: Request) -> Response:
    """GET /runs/{run_id}/exports: the formats for the export of a run, and the secrets that every file leaves out."""
    desk, run_id = desk_of(request), request.path_params["run_id"]
    summary = await run_in_threadpool(desk.stored_runs.summary, run_id)
    formats = run_formats()
    first, _ = formats[0]
    is_searched, masked_words = summary.n_done <= MAX_SEARCHED, ""
    if is_searched:
        export = await run_in_threadpool(export_run, desk.stored_runs, run_id, first, desk.settings.environment)
        masked_words = export.masking_note
    return page(
        request, "runs/export.html", summary=summary, formats=formats, masked=masked_words, is_searched=is_searched
    )


async def download_run(request: Request) -> Response:
    """GET /runs/{run_id}/file?format=csv: the finished trials of a run as a file."""
    name = request.query_params.get("format", "adk-results")
    desk, run_id = desk_of(request), request.path_params["run_id"]
    export = await run_in_threadpool(stream_run, desk.stored_runs, run_id, name, desk.settings.environment)
    first = await run_in_threadpool(next, export.parts)  # an error in it is a page, not half a file
    return attachment(chain((first,), export.parts), export.file_name, media_type(export.file_name))


async def download_report(request: Request) -> Response:
    """GET /runs/{run_id}/report: the run as one HTML file."""
    desk, run_id = desk_of(request), request.path_params["run_id"]
    report = await run_in_threadpool(run_report, desk.stored_runs, run_id, desk.settings.environment)
    return attachment(report.data, report.file_name, "text/html")


async def record(request: Request) -> Response:
    """GET /imports/records/{record_id}: how far an import is, or its result."""
    imports, record_id = desk_of(request).imports, request.path_params["record_id"]
    view = await run_in_threadpool(lambda: record_view(imports.summary(record_id), imports.n_before(record_id)))
    return _progress(request, view, request.url.path, STORING if view.is_live else None)


READING = ("deletion", "Discard", "Upload discarded.")
STORING = ("cancellation", "Cancel import", "Import cancelled.")
"""The address below that of the page which ends the work, the words of its button, and those once it is done."""


def _progress(request: Request, view: RecordView, address: str, end: tuple[str, str, str] | None) -> Response:
    return page(request, "imports/record.html", block="progress", address=address, view=view, end=end)


async def cancel(request: Request) -> Response:
    """POST /imports/records/{record_id}/cancellation: nothing of the import is stored."""
    record_id = request.path_params["record_id"]
    await run_in_threadpool(desk_of(request).imports.cancel, record_id)
    return go(f"/imports/records/{record_id}")


async def _staged_import(request: Request) -> Staged:
    return await run_in_threadpool(desk_of(request).imports.staging.get_staged, request.path_params["import_id"])


async def _form(request: Request, problems: Problems, *, status: int = 200) -> Response:
    imports = desk_of(request).imports

    def read_waiting() -> tuple[Sequence[RecordView], Sequence[Upload]]:
        records = [record_view(each, imports.n_before(each.id)) for each in imports.list(MAX_SHOWN)]
        return records, imports.staging.uploads()

    records, uploads = await run_in_threadpool(read_waiting)
    values: dict[str, Any] = {"imports": records, "uploads": uploads, "max_waiting": MAX_WAITING}
    return page(request, "imports/new.html", status=status, problems=problems, titles=file_titles(), **values)


def _preview(
    request: Request,
    staged: Staged,
    name: str,
    problems: Problems,
    *,
    status: int = 200,
    name_error: EvaldeskError | None = None,
    is_known: bool = False,
) -> Response:
    values: dict[str, Any] = {"staged": staged, "name": name, "problems": problems, "taken": name_error}
    values["is_known"] = is_known
    return page(request, "imports/show.html", status=status, address=f"/imports/{staged.token}", **values)


def _address(result: TakenIn) -> str:
    """Where a person goes on: to the run, the one thing that is not there as a file, else to the eval set."""
    if len(result.run_ids) == 1:
        return f"/runs/{result.run_ids[0]}"
    return "/runs" if result.run_ids else f"/evalsets/{result.evalset_id}?note=imported"


routes = [
    Route("/imports", show_new_import, methods=["GET"]),
    Route("/imports", create, methods=["POST"]),
    Route("/imports/records/" + number("record_id"), record, methods=["GET"]),
    Route("/imports/records/" + number("record_id") + "/cancellation", cancel, methods=["POST"]),
    Route("/imports/{import_id}", show, methods=["GET"]),
    Route("/imports/{import_id}", confirm, methods=["POST"]),
    Route("/imports/{import_id}/outcome", choose, methods=["POST"]),
    Route("/imports/{import_id}/mapping", show_mapping, methods=["GET"]),
    Route("/imports/{import_id}/mapping", map_columns, methods=["POST"]),
    Route("/imports/{import_id}/deletion", discard, methods=["POST"]),
    Route("/runs/" + number("run_id") + "/exports", run_exports, methods=["GET"]),
    Route("/runs/" + number("run_id") + "/report", download_report, methods=["GET"]),
    Route("/runs/" + number("run_id") + "/file", download_run, methods=["GET"]),
]
