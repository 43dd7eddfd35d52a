"""The prompt bench beside the chat: a draft of an agent's instructions, talked with, run, and kept as a file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import FormData, ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.criteria.criteria import find_criteria_file
from evaldesk.desk.experiments.bench import ORIGINAL, Instruction, check_changed, instructions_of, read_draft
from evaldesk.desk.experiments.prompts import PromptNameTakenError, SavedDraft
from evaldesk.desk.runs.plan import RunOptions, RunPlan
from evaldesk.errors import ConflictError, EvaldeskError, FormatError, NotFoundError, UsageError, WorkspaceError
from evaldesk.model.draft import INSTRUCTION
from evaldesk.model.stored import Draft, StoredSession
from evaldesk.pages.criteria.form import Typed
from evaldesk.pages.prompt_bench import BenchDraft, read_bench
from evaldesk.web.forms.fields import number_of, read_form, text_of
from evaldesk.web.forms.run import as_beside, read_options
from evaldesk.web.render import desk_of, go, page, target_of
from evaldesk.web.routes.sessions import agent_of, session_view
from evaldesk.wording.json_layout import laid_out

ADDRESS = "/bench"
TEMPLATE = "bench/show.html"


async def show(request: Request) -> Response:
    """GET /bench: the draft of `agent`, or of the chat `session`.

    Its texts are those of a save `saved`, of a draft that was run as `experiment`, of a kept `prompt`, of the chat, or
    the agent's own.
    """
    query = request.query_params
    agent, session = await _subject(request, query.get("agent", ""), query.get("session", ""))
    loaded, saved = await asyncio.to_thread(_loaded_draft, request, session)
    return await _page(request, agent, session, loaded, saved=saved, began=number_of(query.get("began")) or 0)


async def preview(request: Request) -> Response:
    """POST /bench: the page of the typed draft, or the part of it that follows the typing; nothing is stored."""
    form = await read_form(request)
    agent, session = await _subject_of(request, form)
    return await _page(request, agent, session, _typed(form))


async def chat(request: Request) -> Response:
    """POST /bench/chats: talk with the draft in a new session; with `again` it begins with the message of that chat."""
    form = await read_form(request)
    agent, session = await _subject_of(request, form)
    desk = desk_of(request)
    try:
        message = text_of(form, "message")
        if text_of(form, "again") and session is not None:
            turns = await asyncio.to_thread(desk.sessions.turns, session.id, 0, 1)
            message = turns[0].query if turns else message
        draft = _draft(agent, form)
        own_state = agent.description.initial_state if agent.description else {}
        state = laid_out(session.initial_state if session else own_state, width=0)
        new_session = await desk.sessions.begin(agent.id, state, "", message, draft)
    except (UsageError, ConflictError, FormatError) as error:
        return await _page(request, agent, session, _typed(form), error)
    return go(f"{ADDRESS}?{urlencode({'session': new_session.id})}#conversation")


async def run(request: Request) -> Response:
    """POST /bench/runs: play the draft against the original; with `experiment` the draft of that one, afresh."""
    form = await read_form(request)
    agent, session = await _subject_of(request, form)
    desk = desk_of(request)
    typed = _typed(form)
    try:
        name, draft = typed.name, None
        if (experiment_id := number_of(text_of(form, "experiment"))) is not None:
            name, draft = await asyncio.to_thread(desk.bench.draft_of, experiment_id)
        else:
            draft = _draft(agent, form)
        check_changed(draft)
        view = await asyncio.to_thread(read_bench, desk, agent, session, typed, with_tried=False)
        if not view.plan or view.plan.problem:
            raise UsageError(view.plan.problem if view.plan else "Add an eval set first.", field="evalset")
        evalset_id = view.typed.evalset
        options = await asyncio.to_thread(_options, request, evalset_id, view.plan.n)

        async def plan_run(own_options: RunOptions) -> RunPlan:
            return await desk.plan_run(agent.id, evalset_id, own_options)

        started = await desk.bench.start(name, draft, options, plan_run)
    except (UsageError, ConflictError, FormatError, NotFoundError) as error:
        return await _page(request, agent, session, typed, error)
    place = _place(agent, session) | {"experiment": started, "began": started}
    return go(f"{ADDRESS}?{urlencode(place)}#tried")


async def save(request: Request) -> Response:
    """POST /bench/prompts: keep an instruction as `prompts/NAME.md`, `replaces` being the digest of a file there."""
    form = await read_form(request)
    agent, session = await _subject_of(request, form)
    typed = _typed(form)
    if other_name := text_of(form, "rename"):
        typed = replace(typed, name=other_name)
    try:
        draft = _draft(agent, form)
        texts = {each.option: each.text for each in _instructions(agent)} | {**draft}
        if typed.of not in texts:
            raise UsageError("Choose the instruction to save.", field="of")
        prompts = desk_of(request).prompts
        digest = text_of(form, "replaces") if not other_name else ""
        saved = await asyncio.to_thread(prompts.save, typed.name.strip(), texts[typed.of], draft, digest)
    except PromptNameTakenError as error:
        return await _page(request, agent, session, typed, error, conflict=error)
    except (UsageError, ConflictError, WorkspaceError) as error:
        return await _page(request, agent, session, typed, error)
    return go(f"{ADDRESS}?{urlencode(_place(agent, session) | {'saved': saved.token})}")


async def undo(request: Request) -> Response:
    """POST /bench/prompts/undo: take a save back; the draft stays in the editor."""
    form = await read_form(request)
    agent, session = await _subject_of(request, form)
    prompts = desk_of(request).prompts
    token = text_of(form, "token")
    saved = await asyncio.to_thread(prompts.saved, token)
    typed = BenchDraft(saved.draft, saved.name) if saved else BenchDraft({})
    try:
        name = await asyncio.to_thread(prompts.undo, token)
    except (ConflictError, WorkspaceError) as error:
        return await _page(request, agent, session, typed, error)
    return await _page(request, agent, session, typed, undone=name)


async def _page(
    request: Request,
    agent: FoundAgent,
    session: StoredSession | None,
    typed: BenchDraft,
    error: EvaldeskError | None = None,
    *,
    saved: SavedDraft | None = None,
    conflict: PromptNameTakenError | None = None,
    began: int = 0,
    undone: str = "",
) -> Response:
    target = target_of(request)
    block = target if target in ("draft", "results") else None
    view = await asyncio.to_thread(read_bench, desk_of(request), agent, session, typed, with_tried=block != "draft")
    view = replace(view, saved=saved, problem=str(error) if error else view.problem)
    status = 200 if error is None else 409 if isinstance(error, ConflictError) else 422
    values: dict[str, Any] = {"bench": view, "conflict": conflict, "began": began, "undone": undone, "agent": agent}
    values["is_swap"] = block == "draft"
    if session is not None and block is None:
        values = {**session_view(request, session), "has_adk_sessions": False, **values}
    else:
        values |= {"session": session, "live": None, "is_simulated": False}
    return page(request, TEMPLATE, block=block, status=status, **values)


async def _subject(request: Request, agent_id: str, session_id: str) -> tuple[FoundAgent, StoredSession | None]:
    """The agent, and the chat with it. Raises NotFoundError."""
    desk = desk_of(request)
    await desk.agents.look_again()
    session = await asyncio.to_thread(desk.sessions.recent, session_id) if session_id else None
    if session is not None:
        session_agent = agent_of(request, session)
        if session_agent.state == "failed":
            return session_agent, session
        agent_id = session_agent.id
    if not agent_id:
        agents = desk.agents.list()
        agent_id = agents[0].id if agents else ""
    return await desk.agents.get_described_agent(agent_id), session


async def _subject_of(request: Request, form: FormData) -> tuple[FoundAgent, StoredSession | None]:
    return await _subject(request, text_of(form, "agent"), text_of(form, "session"))


def _loaded_draft(request: Request, session: StoredSession | None) -> tuple[BenchDraft, SavedDraft | None]:
    """The draft that the address names, and the save that can be undone. Raises NotFoundError."""
    desk, query = desk_of(request), request.query_params
    choices = {"evalset": query.get("evalset", ""), "n": query.get("n", "")}
    if (saved := desk.prompts.saved(query.get("saved", ""))) is not None:
        return BenchDraft(saved.draft, saved.name, **choices), saved
    if (experiment_id := number_of(query.get("experiment"))) is not None:
        name, draft = desk.bench.draft_of(experiment_id)
        return BenchDraft(draft, name, **choices), None
    if prompt_name := query.get("prompt", ""):
        prompt = desk.prompts.get(prompt_name)
        option = query.get("of", INSTRUCTION)
        return BenchDraft({option: prompt.text}, prompt.name, of=option, **choices), None
    is_original = query.get("of") == ORIGINAL
    return BenchDraft(session.draft if session and not is_original else {}, **choices), None


def _typed(form: FormData) -> BenchDraft:
    names = [name for name in form if name.partition("@")[0] == INSTRUCTION]
    texts = {name: text_of(form, name) for name in names}
    fields = {name: text_of(form, name) for name in ("name", "evalset", "n")}
    return BenchDraft(texts, of=text_of(form, "of") or INSTRUCTION, **fields)


def _draft(agent: FoundAgent, form: FormData) -> Draft:
    """The instructions that differ from the agent's own. Raises UsageError."""
    return read_draft(_instructions(agent), _typed(form).texts)


def _instructions(agent: FoundAgent) -> Sequence[Instruction]:
    return instructions_of(agent.description) if agent.description else ()


def _options(request: Request, evalset_id: str, n: int) -> RunOptions:
    """The options of a run with the criteria beside its eval set. Raises UsageError, FormatError."""
    file = desk_of(request).evalsets.file(evalset_id)
    form_values: Typed = ImmutableMultiDict({"n": str(n), "cases": "all"})
    evalset = desk_of(request).evalsets.read(evalset_id)[0]
    return read_options(as_beside(form_values, find_criteria_file(file.path), evalset))


def _place(agent: FoundAgent, session: StoredSession | None) -> dict[str, Any]:
    return {"session": session.id} if session else {"agent": agent.id}


routes = [
    Route(ADDRESS, show),
    Route(ADDRESS, preview, methods=["POST"]),
    Route(f"{ADDRESS}/chats", chat, methods=["POST"]),
    Route(f"{ADDRESS}/runs", run, methods=["POST"]),
    Route(f"{ADDRESS}/prompts", save, methods=["POST"]),
    Route(f"{ADDRESS}/prompts/undo", undo, methods=["POST"]),
]
