"""The form of a new run; its addresses stand in the table of `runs`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.desk import Desk
from evaldesk.desk.run_estimate import estimate
from evaldesk.desk.run_plan import RunOptions, RunPlan
from evaldesk.errors import EvaldeskError, FormatError, NotFoundError, UsageError
from evaldesk.model import Case, EvalSet
from evaldesk.store import RunSummary
from evaldesk.web.case_editor import run_address
from evaldesk.web.criteria_form import Typed
from evaldesk.web.forms import read_form
from evaldesk.web.metric_form import MetricGroup, Offer, metric_groups
from evaldesk.web.metric_labels import labelled, with_another
from evaldesk.web.render import desk_of, page, target_of
from evaldesk.web.run_form import (
    MAX_LISTED,
    RunForm,
    chosen_of,
    like_run,
    read_options,
    typed_values,
    unscored_lines,
)
from evaldesk.web.words import plural

GONE = "The one asked for is not here: deleted, renamed, or in a folder that is not served. Choose another."


async def new(request: Request) -> Response:
    """GET /runs/new: the form; `agent`, `evalset`, `case` and `like` (a run) fill it."""
    typed: Typed = ImmutableMultiDict(request.query_params.multi_items())
    like = typed.get("like")
    if isinstance(like, str) and like.isdecimal() and len(like) < 16:
        earlier = await desk_of(request).runs.summary(int(like))
        typed = like_run(earlier, await asyncio.to_thread(_selected_by, desk_of(request), earlier))
    return await _form(request, typed)


async def preview(request: Request) -> Response:
    """POST /runs/new: the same form with what was typed; nothing is started.

    `another` adds a metric once more, `check` says what is wrong.
    """
    typed = with_another(await _typed(request))
    if not typed.get("check"):
        return await _form(request, typed)
    try:
        await _plan(request, typed)
    except (UsageError, FormatError) as error:
        return await _form(request, typed, error)
    return await _form(request, typed, is_checked=True)


async def create(request: Request) -> Response:
    """POST /runs: start the run; what cannot be comes back beside its field."""
    typed = await _typed(request)
    try:
        plan = await _plan(request, typed)
    except (UsageError, FormatError) as error:
        return await _form(request, typed, error)
    return RedirectResponse(f"/runs/{await desk_of(request).runs.start(plan)}", status_code=303)


async def run_case(request: Request, evalset_id: str, case: Case, agent_id: str = "") -> str:
    """Start five trials of a case and say where; without an `agent_id`, by the agent that the case names.

    Where there is something to decide, nothing is started and the address is that of the form: no agent is meant, it
    does not load, a metric cannot judge the case, or the run would be refused.
    """
    desk = desk_of(request)
    agent_id = agent_id or _agent_meant(desk.agents.list(), [case])
    named = {"agent": agent_id} if agent_id else {}
    form = run_address(evalset_id, case.id, **named)
    typed: Typed = ImmutableMultiDict({**named, "evalset": evalset_id, "case": case.id, "cases": "selected", "n": "5"})
    try:
        unscored = await asyncio.to_thread(unscored_lines, typed, [case])
        if unscored or desk.agents.get(agent_id).error:
            return form
        return f"/runs/{await desk.runs.start(await _plan(request, typed))}"
    except (UsageError, FormatError, NotFoundError):
        return form


async def _plan(request: Request, typed: Typed) -> RunPlan:
    options = read_options(typed)
    if typed.get("try"):
        options = await _only_one(request, typed, options)
    return await desk_of(request).runs.plan(_chosen(typed, "agent"), _chosen(typed, "evalset"), options)


def _selected_by(desk: Desk, run: RunSummary) -> Collection[str]:
    """The cases of a run that left out some of its eval set; none when it ran them all."""
    files = {file.id: file for file in desk.evalsets.list()}
    file = files.get(run.config.evalset_id)
    return desk.store.runs.case_ids(run.id).values() if file and run.n_cases < file.n_cases else ()


async def _typed(request: Request) -> Typed:
    return labelled(ImmutableMultiDict((await read_form(request)).multi_items()))


async def _only_one(request: Request, typed: Typed, options: RunOptions) -> RunOptions:
    """One trial of the first chosen case."""
    evalset, _, _ = await asyncio.to_thread(desk_of(request).evalsets.read, _chosen(typed, "evalset"))
    wanted = set(options.case_ids) if options.case_ids is not None else None
    first = next((case.id for case in evalset.cases if wanted is None or case.id in wanted), None)
    return replace(options, n=1, case_ids=(first,) if first is not None else options.case_ids)


async def _form(
    request: Request, typed: Typed, error: EvaldeskError | None = None, *, is_checked: bool = False
) -> Response:
    form = replace(await _filled(request, typed), is_checked=is_checked)
    if error:
        name = getattr(error, "field", None) or ""
        problems = defaultdict(str, {name: str(error)})
        form = replace(form, problems=problems, problem=str(error))
    block = target_of(request)
    return page(
        request,
        "runs/new.html",
        block=block if block in ("plan", "estimate") else None,
        status=422 if error else 200,
        form=form,
    )


async def _filled(request: Request, typed: Typed) -> RunForm:
    desk = desk_of(request)
    agents = desk.agents.list()
    files = [file for file in await asyncio.to_thread(desk.evalsets.list) if not file.error]
    wanted = _chosen(typed, "evalset")
    evalset_id = wanted if wanted in {file.id for file in files} else (files[0].id if files else "")
    evalset = await _read_evalset(request, evalset_id) if evalset_id else None
    is_selection, ticked = chosen_of(typed, evalset)
    all_cases = evalset.cases if evalset else ()
    cases = [case for case in all_cases if not is_selection or case.id in ticked]
    meant = _agent_meant(agents, cases) or (agents[0].id if agents else "")
    agent = await _agent(request, _chosen(typed, "agent"), meant)
    values = typed_values(typed)
    plan = await asyncio.to_thread(
        estimate,
        desk.store,
        agent.id if agent else "",
        evalset_id,
        n_cases=len(cases),
        n=_or_one(values["n"]),
        concurrency=_or_one(values["concurrency"]),
    )
    listed = all_cases if len(all_cases) <= MAX_LISTED else tuple(case for case in all_cases if case.id in ticked)
    found = {"agent": agent.id if agent else "", "evalset": evalset_id}
    gone = [name for name, value in found.items() if _chosen(typed, name) not in ("", value)]
    problems = defaultdict(str, dict.fromkeys(gone, GONE))
    return RunForm(
        problems=problems,
        agents=[(each.id, each.name) for each in agents],
        evalsets=[(file.id, f"{file.name} ({plural(file.n_cases, 'case')})") for file in files],
        agent=agent.id if agent else "",
        evalset=evalset_id,
        own_model=(agent.description.model or "") if agent and agent.description else "",
        models=desk.settings.models,
        values=values,
        is_selection=is_selection,
        choices=[(case.id, case.id in ticked) for case in listed],
        n_all=len(all_cases),
        n_selected=len(ticked),
        groups=() if target_of(request) == "estimate" else await _groups(desk, typed, cases),
        unscored=await asyncio.to_thread(unscored_lines, typed, cases),
        estimate=plan,
    )


async def _groups(desk: Desk, typed: Typed, cases: Sequence[Case]) -> tuple[MetricGroup, ...]:
    offer = Offer(desk.settings.allowed_judges, desk.settings.functions)
    return await asyncio.to_thread(metric_groups, typed, cases, offer)


def _agent_meant(agents: Sequence[FoundAgent], cases: Sequence[Case]) -> str:
    """The only agent there is, or the first that a case names; empty where none does."""
    ids = [agent.id for agent in agents]
    sessions = [case.initial_session for case in cases if case.initial_session]
    named = [session.app_name for session in sessions if session.app_name in ids]
    return ids[0] if len(ids) == 1 else next(iter(named), "")


async def _agent(request: Request, agent_id: str, default: str) -> FoundAgent | None:
    agents = desk_of(request).agents
    try:
        return await agents.described(agent_id or default, timeout_s=2.0)
    except NotFoundError:
        return agents.get(default) if default else None


async def _read_evalset(request: Request, evalset_id: str) -> EvalSet | None:
    try:
        evalset, _, _ = await asyncio.to_thread(desk_of(request).evalsets.read, evalset_id)
    except (NotFoundError, FormatError):
        return None
    return evalset


def _chosen(typed: Typed, name: str) -> str:
    value = typed.get(name, "")
    return value if isinstance(value, str) else ""


def _or_one(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 7 else 1
