"""The case editor: a form for the whole case, its raw JSON, and the actions on a whole case.

Every button of the form sends the form. `op` changes its shape and gives it back; any other button saves. A hidden
`version` is that of the case as it was opened: a changed case is shown beside the typed text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.evalsets.cases import CaseChangedError, CaseNameTakenError, FoundCase, case_of_typed_json
from evaldesk.desk.evalsets.names import free_name, slug
from evaldesk.errors import FormatError, LossError, NotFoundError, UsageError
from evaldesk.model import Case, Turn
from evaldesk.model.stored import EvalSetFile
from evaldesk.pages.case_list import CaseLine, case_list
from evaldesk.pages.case_text import Line, case_text, difference
from evaldesk.pages.proposals import waiting
from evaldesk.pages.proposals.waiting import WaitingProposals
from evaldesk.pages.repeating import Repeats, read_case_repeats, take_repeats
from evaldesk.pages.source import source_of
from evaldesk.pages.typed import Problems, error_sentence
from evaldesk.web.cases.checks import case_from
from evaldesk.web.cases.drafts import MAX_TURNS, CaseDraft, apply_op, draft_of, fits_form, read_draft
from evaldesk.web.cases.editor import Editor, run_address
from evaldesk.web.forms.fields import SHOW_TOP, attachment, file_text_of, leave, read_form, text_of
from evaldesk.web.render import desk_of, go, page
from evaldesk.web.routes.new_run import run_case

EDITOR = "editor"
MAX_RAW = 1_000_000
"""A case of more characters is edited in a file: a form sends up to three bytes for each."""


async def show(request: Request) -> Response:
    """GET …/cases/{key}: the form; a case that no form can send is shown as raw JSON."""
    file, found_case = await _open(request)
    if len(found_case.case.turns) > MAX_TURNS:
        return go(f"{request.url.path}/json")
    draft = draft_of(found_case.case)
    if not fits_form(draft):
        return go(f"{request.url.path}/json")
    editor = Editor(file, found_case, draft, Problems(), found_case.version, line=await _line(request, found_case))
    repeats = await run_in_threadpool(read_case_repeats, desk_of(request), file.id, found_case.key, found_case.case)
    return await _render(request, editor, repeats=repeats)


async def save(request: Request) -> Response:
    """POST …/cases/{key}: save the case, or change the form's shape."""
    form = await read_form(request)
    draft, version, op = read_draft(form), text_of(form, "version"), text_of(form, "op")
    file = await run_in_threadpool(desk_of(request).evalsets.file, _set_id(request))
    try:
        _, found_case = await _open(request)
    except NotFoundError:
        return await _answer_missing_case(request, form, file, draft)
    editor = Editor(file, found_case, draft, Problems(), version, line=await _line(request, found_case))
    if op:
        return await _render(request, replace(editor, focus=apply_op(draft, op)))
    return await _store(request, form, editor, found_case)


async def show_new_case(request: Request) -> Response:
    """GET …/cases/new: an empty form; `kind=scenario` for a case that a simulated user plays."""
    file = await run_in_threadpool(desk_of(request).evalsets.file, _set_id(request))
    is_scenario = request.query_params.get("kind") == "scenario"
    draft = draft_of(Case(id="", scenario={}) if is_scenario else Case(id="", turns=(Turn(query=""),)))
    return await _render(request, Editor(file, None, draft, Problems(), focus="case"))


async def create(request: Request) -> Response:
    """POST …/cases/new: add the case, or change the form's shape."""
    form = await read_form(request)
    draft = read_draft(form)
    file = await run_in_threadpool(desk_of(request).evalsets.file, _set_id(request))
    editor = Editor(file, None, draft, Problems())
    if text_of(form, "op"):
        return await _render(request, replace(editor, focus=apply_op(draft, text_of(form, "op"))))
    return await _store(request, form, editor)


async def show_json(request: Request) -> Response:
    """GET …/cases/{key}/json: the case as the file has it."""
    file, found_case = await _open(request)
    text = "" if found_case.n_bytes > MAX_RAW else case_text(found_case.case)
    return await _render_json(request, file, found_case, text=text, version=found_case.version)


async def download(request: Request) -> Response:
    """GET …/cases/{key}/file: the case as the file has it, to be edited elsewhere and put back."""
    _, found_case = await _open(request)
    return attachment(case_text(found_case.case), f"{slug(found_case.case.id, default='case')}.json")


async def save_json(request: Request) -> Response:
    """POST …/cases/{key}/json: save the case as it was typed, or as an uploaded file has it."""
    form = await read_form(request)
    file, found_case = await _open(request)
    text, version = text_of(form, "raw"), text_of(form, "version")
    try:
        uploaded = await file_text_of(form, "file")
        text = text if uploaded is None else uploaded
        case = case_of_typed_json(found_case.case, text)
    except (FormatError, UsageError) as error:
        sentence = error_sentence(error) if isinstance(error, FormatError) else f"eval_id: {error}"
        return await _render_json(request, file, found_case, status=422, text=text, version=version, problem=sentence)
    cases = desk_of(request).evalsets.cases
    is_over = text_of(form, "choice") == "overwrite"
    try:
        base = None if is_over else version
        saved_case = await run_in_threadpool(
            cases.save, file.id, found_case.key, case, base, as_new_form=_as_new_form(form)
        )
    except LossError as error:
        return await _render_json(
            request, file, found_case, status=409, text=text, version=version, losses=error.losses
        )
    except CaseChangedError:
        lines_of_change = difference(found_case.case, case)
        return await _render_json(
            request, file, found_case, status=409, text=text, version=version, conflict_lines=lines_of_change
        )
    except CaseNameTakenError as error:
        sentence = f"Another case of this set is named {error.case_id}; {error.free} is free."
        return await _render_json(request, file, found_case, status=409, text=text, version=version, problem=sentence)
    return go(f"/evalsets/{file.id}/cases/{saved_case.key}/json?note=saved")


async def take(request: Request) -> Response:
    """POST …/cases/{key}/repeats: assert the values that changed in the replays by matchers."""
    await run_in_threadpool(take_repeats, desk_of(request), _set_id(request), _key(request))
    return go(f"/evalsets/{_set_id(request)}/cases/{_key(request)}?note=saved")


async def duplicate(request: Request) -> Response:
    """POST …/cases/{key}/copies: a copy below, opened."""
    copy = await run_in_threadpool(desk_of(request).evalsets.cases.duplicate, _set_id(request), _key(request))
    return go(f"/evalsets/{_set_id(request)}/cases/{copy.key}?note=duplicated")


async def move(request: Request) -> Response:
    """POST …/cases/{key}/position: one place up or down in the file."""
    step = {"up": -1, "down": 1}.get(text_of(await read_form(request), "step"))
    if step is None:
        raise UsageError("a case moves up or down")
    await run_in_threadpool(desk_of(request).evalsets.cases.move, _set_id(request), _key(request), step)
    return go(f"/evalsets/{_set_id(request)}/cases/{_key(request)}?note=moved")


async def trash(request: Request) -> Response:
    """POST …/cases/{key}/trash: the case is taken out, and the set's page offers to undo it."""
    token = await run_in_threadpool(desk_of(request).evalsets.cases.delete, _set_id(request), [_key(request)])
    return go(f"/evalsets/{_set_id(request)}?case_trashed={token}")


async def restore(request: Request) -> Response:
    """POST /evalsets/{set_id}/trash/cases/{token}/restoration: undo it."""
    cases = desk_of(request).evalsets.cases
    await run_in_threadpool(cases.restore, _set_id(request), request.path_params["token"])
    return go(f"/evalsets/{_set_id(request)}?note=cases_restored")


async def _open(request: Request) -> tuple[EvalSetFile, FoundCase]:
    sets = desk_of(request).evalsets
    file = await run_in_threadpool(sets.file, _set_id(request))
    return file, await run_in_threadpool(sets.cases.find, file.id, _key(request))


async def _line(request: Request, found_case: FoundCase) -> CaseLine:
    verdicts = partial(desk_of(request).stored_runs.last_verdicts, _set_id(request))
    return (await run_in_threadpool(case_list, [found_case.case], verdicts)).lines[0]


async def _store(request: Request, form: FormData, editor: Editor, found_case: FoundCase | None = None) -> Response:
    """Save the typed case in the place of `found_case`, or as a new one; faults come back in the form."""
    case, problems = case_from(editor.draft, found_case.case if found_case else None)
    if problems:
        return await _render(request, replace(editor, problems=problems), 422)
    sets, set_id, choice = desk_of(request).evalsets, editor.file.id, text_of(form, "choice")
    if choice == "free":
        evalset = found_case.evalset if found_case else (await run_in_threadpool(sets.read, set_id))[0]
        case = replace(case, id=free_name(case.id, {each.id for each in evalset.cases}))
    as_new_form = _as_new_form(form)
    try:
        if found_case:
            base = None if choice == "overwrite" else editor.version
            save = partial(sets.cases.save, set_id, found_case.key, case, base, as_new_form=as_new_form)
        else:
            save = partial(sets.cases.add, set_id, case, as_new_form=as_new_form)
        saved_case = await run_in_threadpool(save)
    except LossError as error:
        return await _render(request, replace(editor, losses=error.losses), 409)
    except CaseChangedError:
        return await _render(
            request, replace(editor, conflict_lines=difference(found_case.case, case) if found_case else None), 409
        )
    except CaseNameTakenError as error:
        problems.add("case", "Case", f"Another case of this set is named {error.case_id}.")
        return await _render(request, replace(editor, problems=problems, name_error=error), 409)
    if text_of(form, "then") == "run":
        return leave(request, await run_case(request, set_id, saved_case.case), EDITOR)
    return leave(request, f"/evalsets/{set_id}/cases/{saved_case.key}?note=saved", EDITOR)


async def _answer_missing_case(request: Request, form: FormData, file: EvalSetFile, draft: CaseDraft) -> Response:
    """The case was renamed or deleted while it was edited: nothing typed is lost, it may be added as a new one."""
    for turn in draft.turns:
        turn.origin = None
        for call in turn.calls:
            call.origin = None
    for action in draft.actions:
        action.origin = None
    editor = Editor(file, None, draft, Problems(), is_gone=True)
    if text_of(form, "op"):
        return await _render(request, replace(editor, focus=apply_op(draft, text_of(form, "op"))))
    if text_of(form, "choice") in {"add", "free"}:
        return await _store(request, form, editor)
    return await _render(request, editor, 409)


def _as_new_form(form: FormData) -> bool:
    return text_of(form, "form") == "adk"


async def _render(request: Request, editor: Editor, status: int = 200, *, repeats: Repeats | None = None) -> Response:
    settings = desk_of(request).settings
    values: dict[str, Any] = {
        "editor": editor,
        "note": request.query_params.get("note", "") if request.method == "GET" else "",
        "repeats": repeats,
        "proposed": await _proposed(request, editor.file.id, editor.found_case),
        "user_models": settings.with_user_models(settings.user).models,
        "agents": desk_of(request).agents.list() if editor.draft.scenario else (),
    }
    headers = SHOW_TOP if status != 200 else {}
    return page(request, "cases/edit.html", block=EDITOR, status=status, headers=headers, **values)


async def _render_json(
    request: Request,
    file: EvalSetFile,
    found_case: FoundCase,
    *,
    text: str,
    version: str,
    status: int = 200,
    problem: str = "",
    conflict_lines: Sequence[Line] | None = None,
    losses: tuple[str, ...] = (),
) -> Response:
    note = request.query_params.get("note", "") if request.method == "GET" else ""
    is_large = max(len(text), found_case.n_bytes) > MAX_RAW or len(case_text(found_case.case)) > MAX_RAW
    values: dict[str, Any] = {
        "text": text,
        "is_large": is_large,
        "version": version,
        "problem": problem,
        "conflict_lines": conflict_lines,
        "losses": losses,
    }
    is_scenario = found_case.case.scenario is not None
    values["agents"] = desk_of(request).agents.list() if is_scenario else ()
    values["scenario"] = source_of(found_case.case, None) if is_scenario else None
    where: dict[str, Any] = {"file": file, "found": found_case, "base": f"/evalsets/{file.id}/cases/{found_case.key}"}
    values["proposed"] = await _proposed(request, file.id, found_case)
    address = run_address(file.id, found_case.case.id)
    return page(request, "cases/json.html", status=status, note=note, run_address=address, **values, **where)


async def _proposed(request: Request, evalset_id: str, found_case: FoundCase | None) -> WaitingProposals:
    if found_case is None:
        return WaitingProposals()
    return await run_in_threadpool(waiting.of_case, desk_of(request), evalset_id, found_case.case.id)


def _set_id(request: Request) -> str:
    return str(request.path_params["set_id"])


def _key(request: Request) -> str:
    return str(request.path_params["key"])


SET = "/evalsets/{set_id}"
CASE = SET + "/cases/{key}"
routes = [
    Route(SET + "/trash/cases/{token}/restoration", restore, methods=["POST"]),
    Route(SET + "/cases/new", show_new_case),
    Route(SET + "/cases/new", create, methods=["POST"]),
    Route(CASE, show),
    Route(CASE, save, methods=["POST"]),
    Route(CASE + "/json", show_json),
    Route(CASE + "/json", save_json, methods=["POST"]),
    Route(CASE + "/file", download),
    Route(CASE + "/copies", duplicate, methods=["POST"]),
    Route(CASE + "/repeats", take, methods=["POST"]),
    Route(CASE + "/position", move, methods=["POST"]),
    Route(CASE + "/trash", trash, methods=["POST"]),
]
