"""Steps over the selected cases of an eval set: tags, copies, moves, wordings, criteria, deletion, and their undo.

A selection is the ticked cases, also those of other pages, or all cases that match a search (`which=all`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.evalsets.case_steps import MOST_REWORDED, first_message
from evaldesk.desk.evalsets.cases import places_of
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.model import Case
from evaldesk.pages.case_list import matching_ids
from evaldesk.web.cases.drafts import shown_criteria
from evaldesk.web.forms.fields import read_form, text_of, texts_of
from evaldesk.web.render import desk_of, go, page, refused_status

MOST_TARGETS = 500


async def show(request: Request) -> Response:
    """POST /evalsets/{set_id}/selection: the selected cases, with the sets to copy them to and a text for each.

    With `op=propose` the texts are those that `model` proposes.
    """
    form = await read_form(request)
    if text_of(form, "op") != "propose":
        return await _show(request, form)
    evalset = await run_in_threadpool(desk_of(request).evalsets.evalset, _set_id(request))
    places = await run_in_threadpool(places_of, evalset.cases, await _selected_ids(request, form))
    try:
        if len(places) > MOST_REWORDED:
            raise UsageError(f"at most {MOST_REWORDED} cases are reworded at once")
        messages = [first_message(evalset.cases[place]) for place in places]
        proposed_texts = await desk_of(request).wordings.propose(messages, text_of(form, "model"))
    except EvaldeskError as error:
        return await _show(request, form, error)
    return await _show(request, form, proposed_texts=proposed_texts)


async def change_tags(request: Request) -> Response:
    """POST /evalsets/{set_id}/tags: add tags to the selected cases, or take them away."""
    form, sets, set_id = await read_form(request), desk_of(request).evalsets, _set_id(request)
    ids = await _selected_ids(request, form)
    typed_tags = [tag.strip() for tag in text_of(form, "tags").split(",") if tag.strip()]
    step = text_of(form, "step")
    if step in ("add", "remove") and not typed_tags:
        raise UsageError("name the tags, with commas between them", field="tags")
    added_tags = [*texts_of(form, "add"), *(typed_tags if step == "add" else ())]
    removed_tags = [*texts_of(form, "remove"), *(typed_tags if step == "remove" else ())]
    token = await run_in_threadpool(sets.cases.change_tags, set_id, set(ids), added_tags, removed_tags)
    return go(f"/evalsets/{set_id}?changed={token}")


async def transfer(request: Request) -> Response:
    """POST /evalsets/{set_id}/selection/copies: the selected cases, to the set `target`; `step=move` moves them."""
    form, steps, set_id = await read_form(request), desk_of(request).evalsets.steps, _set_id(request)
    ids = await _selected_ids(request, form)
    step = steps.move if text_of(form, "step") == "move" else steps.copy
    try:
        token = await run_in_threadpool(step, set_id, ids, text_of(form, "target"))
    except EvaldeskError as error:
        return await _show(request, form, error)
    return go(f"/evalsets/{set_id}?changed={token}")


async def reword(request: Request) -> Response:
    """POST /evalsets/{set_id}/selection/wordings: a copy of each ticked case, with the text that stands beside it."""
    form, steps, set_id = await read_form(request), desk_of(request).evalsets.steps, _set_id(request)
    numbers = range(len(texts_of(form, "case")))
    wordings = [
        (text_of(form, f"case-{number}"), text_of(form, f"text-{number}"))
        for number in numbers
        if f"take-{number}" in form
    ]
    try:
        token = await run_in_threadpool(steps.reword, set_id, wordings)
    except EvaldeskError as error:
        return await _show(request, form, error)
    return go(f"/evalsets/{set_id}?changed={token}")


async def narrow(request: Request) -> Response:
    """POST /evalsets/{set_id}/selection/criteria: the criteria of the selected cases; `step=clear` takes them."""
    form, steps, set_id = await read_form(request), desk_of(request).evalsets.steps, _set_id(request)
    ids, text = await _selected_ids(request, form), text_of(form, "criteria")
    try:
        if text_of(form, "step") == "clear":
            text = ""
        elif not text.strip():
            raise UsageError("name at least one metric", field="criteria")
        token = await run_in_threadpool(steps.narrow, set_id, ids, text)
    except EvaldeskError as error:
        return await _show(request, form, error)
    return go(f"/evalsets/{set_id}?changed={token}")


async def trash(request: Request) -> Response:
    """POST /evalsets/{set_id}/trash/cases: delete the selected cases."""
    form, cases, set_id = await read_form(request), desk_of(request).evalsets.cases, _set_id(request)
    ids = await _selected_ids(request, form)
    token = await run_in_threadpool(cases.delete_ids, set_id, ids)
    return go(f"/evalsets/{set_id}?case_trashed={token}")


async def undo(request: Request) -> Response:
    """POST /evalsets/{set_id}/steps/{token}/restoration: take a step back."""
    steps = desk_of(request).evalsets.steps
    await run_in_threadpool(steps.undo, _set_id(request), request.path_params["token"])
    return go(f"/evalsets/{_set_id(request)}?note=step_undone")


async def _show(
    request: Request,
    form: FormData,
    error: EvaldeskError | None = None,
    proposed_texts: Mapping[int, str] | None = None,
) -> Response:
    sets, set_id = desk_of(request).evalsets, _set_id(request)
    file = await run_in_threadpool(sets.file, set_id)
    evalset = await run_in_threadpool(sets.evalset, set_id)
    ids = await _selected_ids(request, form)
    places = await run_in_threadpool(places_of, evalset.cases, ids)
    files = await run_in_threadpool(sets.list)
    rows = []
    for number, place in enumerate(places[:MOST_REWORDED] if len(places) <= MOST_REWORDED else ()):
        case = evalset.cases[place]
        text = first_message(case)
        name = f"text-{number}"
        typed_text = text_of(form, name) if name in form else text
        rows.append((case.id, text, (proposed_texts or {}).get(number, typed_text), f"take-{number}" in form))
    return page(
        request,
        "evalsets/selection.html",
        status=refused_status(error),
        file=file,
        ids=ids,
        targets=[each for each in files if each.id != set_id and not (each.error or each.is_reading)][:MOST_TARGETS],
        target=text_of(form, "target"),
        rows=rows,
        most_reworded=MOST_REWORDED,
        models=desk_of(request).wordings.models,
        model=text_of(form, "model"),
        criteria=text_of(form, "criteria")
        if "criteria" in form
        else _common_criteria([evalset.cases[place] for place in places]),
        n_proposed=None if proposed_texts is None else len(proposed_texts),
        problem=str(error or ""),
    )


def _common_criteria(cases: Sequence[Case]) -> str:
    """The criteria that all of these cases name; empty where they name none, or others."""
    texts = {shown_criteria(case) or "" for case in cases}
    return texts.pop() if len(texts) == 1 else ""


async def _selected_ids(request: Request, form: FormData) -> list[str]:
    """The ids of the selected cases, each once. Raises UsageError without any."""
    ids = texts_of(form, "case")
    if text_of(form, "which") == "all":
        evalset = await run_in_threadpool(desk_of(request).evalsets.evalset, _set_id(request))
        query = {"text": text_of(form, "q"), "tag": text_of(form, "with_tag"), "only": text_of(form, "with_only")}
        ids = await run_in_threadpool(partial(matching_ids, evalset.cases, **query))
    if not ids:
        raise UsageError("select the cases first", field="case")
    return list(dict.fromkeys(ids))


def _set_id(request: Request) -> str:
    return str(request.path_params["set_id"])


SET = "/evalsets/{set_id}"
routes = [
    Route(SET + "/selection", show, methods=["POST"]),
    Route(SET + "/selection/copies", transfer, methods=["POST"]),
    Route(SET + "/selection/criteria", narrow, methods=["POST"]),
    Route(SET + "/selection/wordings", reword, methods=["POST"]),
    Route(SET + "/tags", change_tags, methods=["POST"]),
    Route(SET + "/trash/cases", trash, methods=["POST"]),
    Route(SET + "/steps/{token}/restoration", undo, methods=["POST"]),
]
