"""The form of a new run; its addresses stand in the table of `runs`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlencode

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response

from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.criteria.criteria import find_criteria_file, has_criteria
from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.cases import with_ids
from evaldesk.desk.experiments.planning import plan_experiment_of_page
from evaldesk.desk.experiments.variants import baseline_index, usual_name, variant_options
from evaldesk.desk.runs.allocating import Budget, Subject, last_class, spread
from evaldesk.desk.runs.estimate import estimate
from evaldesk.desk.runs.gates.forecasts import MOST_PREVIEWED, preview_gates
from evaldesk.desk.runs.histories import ComparedHistory, compared_history, keys_of
from evaldesk.desk.runs.plan import RunOptions, RunPlan, left_out_ids
from evaldesk.errors import ConflictError, EvaldeskError, FormatError, NotFoundError, UsageError
from evaldesk.model import Case, EvalSet, Gates
from evaldesk.model.evalset import LargeCases, tags_of_filter, trials_of_cases
from evaldesk.model.experiment import ExperimentPlan
from evaldesk.model.history import SetHistory
from evaldesk.model.stored import EvalSetFile, RunSummary
from evaldesk.pages.case_list import matching_ids
from evaldesk.pages.criteria.form import Typed, is_fresh, text_typed
from evaldesk.pages.criteria.labels import labelled, with_another
from evaldesk.pages.criteria.metric_form import MetricForm, Offer, metric_form
from evaldesk.pages.gate_figures import gate_figures
from evaldesk.run_options import BY_NAME, EVEN, OWN
from evaldesk.web.cases.editor import run_address
from evaldesk.web.forms.fields import number_of, read_form, whole_or_one
from evaldesk.web.forms.gates import (
    BASELINE,
    GateForm,
    baseline_id,
    baselines_of,
    gate_fields,
    read_gates,
    with_better_gate,
)
from evaldesk.web.forms.run import (
    FORM_DEFAULTS,
    LIKE,
    MAX_LISTED,
    PRESET,
    PRESET_NAME,
    RunForm,
    as_beside,
    chosen_of,
    filled_by,
    judged_lines,
    kept_of,
    like_run,
    models_of,
    option_fields,
    preset_fields,
    preset_name,
    read_form_values,
    read_options,
    typed_without,
)
from evaldesk.web.forms.variants import (
    asks_for_variants,
    changed_variants,
    estimate_variants,
    read_variants,
    variant_form,
)
from evaldesk.web.render import cases_words, desk_of, go, page, target_of
from evaldesk.wording.words import budget_sentence, own_trials_sentence

LAST_USED = 50
MOST_BASELINES = 20
"""Runs among which the agent that was used last is looked for."""
GONE = "The one asked for is not here: deleted, renamed, or in a folder that is not served. Choose another."


async def show_new_run(request: Request) -> Response:
    """GET /runs/new: the form; `agent`, `evalset`, `case` and `like` (a run) fill it.

    With `which=all` the cases are those of the set that match `q`, `with_tag` and `with_only`.
    """
    form_values: Typed = ImmutableMultiDict(request.query_params.multi_items())
    if form_values.get("which") == "all":
        form_values = await asyncio.to_thread(_with_matching_cases, desk_of(request), form_values)
    earlier = await _earlier(request, form_values)
    if earlier:
        form_values = like_run(earlier, await asyncio.to_thread(_selected_by, desk_of(request), earlier))
    elif preset_id := _number(form_values, PRESET):
        form_values = filled_by(await asyncio.to_thread(desk_of(request).presets.get, preset_id), form_values)
    return await _form(request, form_values)


def _with_matching_cases(desk: Desk, form_values: Typed) -> Typed:
    """The form with the cases that match its search; without a search every case is played."""
    fields = {"text": "q", "tag": "with_tag", "only": "with_only"}
    query = {name: _form_text(form_values, field) for name, field in fields.items()}
    other_values = [(name, text) for name, text in form_values.multi_items() if name not in ("case", "which")]
    if not any(query.values()):
        return ImmutableMultiDict([*other_values, ("cases", "all")])
    evalset = desk.evalsets.evalset(_form_text(form_values, "evalset"))
    return ImmutableMultiDict([*other_values, *(("case", case_id) for case_id in matching_ids(evalset.cases, **query))])


async def preview(request: Request) -> Response:
    """POST /runs/new: the same form with the typed values; nothing is started.

    `another` adds a metric once more, `vary` an option with several values, `check` lists the faults.
    """
    form_values = changed_variants(with_better_gate(with_another(await read_form_values(request))))
    return await _check_form(request, form_values) if form_values.get("check") else await _form(request, form_values)


async def _check_form(request: Request, form_values: Typed) -> Response:
    try:
        await (_plan_variants if asks_for_variants(form_values) else _plan)(request, form_values)
    except (UsageError, FormatError) as error:
        return await _form(request, form_values, error)
    return await _form(request, form_values, is_checked=True)


async def create(request: Request) -> Response:
    """POST /runs: start the run, or the experiment; an impossible value comes back beside its field."""
    form_values = await read_form_values(request)
    try:
        if asks_for_variants(form_values) and not form_values.get("try"):
            experiment, run_plans = await _plan_variants(request, form_values)
            return go(f"/experiments/{await desk_of(request).experiments.start(experiment, run_plans)}")
        plan = await _plan(request, form_values)
    except (UsageError, FormatError) as error:
        return await _form(request, form_values, error)
    return go(f"/runs/{await desk_of(request).runs.start(plan)}")


async def save_preset(request: Request) -> Response:
    """POST /runs/presets: store the form under `preset-name` for its agent, and show it filled in by that.

    With `enter` it was Enter in some field, and no button: without another name than is shown the form is only checked.
    """
    form = await read_form(request)
    form_values: Typed = ImmutableMultiDict(form.multi_items())
    agent_id, name, shown_preset_id = (
        _form_text(form_values, "agent"),
        _form_text(form_values, "preset-name"),
        _number(form_values, PRESET),
    )
    presets = desk_of(request).presets
    if form_values.get("enter"):
        titles = dict(await asyncio.to_thread(presets.names, agent_id))
        if name.split() in ([], titles.get(shown_preset_id or 0, "").split()):
            return await _check_form(request, labelled(form_values))
    try:
        read_options(labelled(form_values), None)
        desk_of(request).agents.get(agent_id)
        preset_id = await asyncio.to_thread(
            presets.save, agent_id, preset_name(name), preset_fields(form_values), shown_preset_id
        )
    except (UsageError, ConflictError, FormatError) as error:
        field = getattr(error, "field", None) or PRESET_NAME
        return await _form(request, labelled(form_values), UsageError(str(error), field=field), has_started=False)
    again = {PRESET: preset_id, "agent": agent_id, "evalset": _form_text(form_values, "evalset")}
    return go(f"/runs/new?{urlencode(again)}")


async def delete_preset(request: Request) -> Response:
    """POST /runs/presets/{preset_id}/deletion: the preset is gone; the form of its agent is shown."""
    presets = desk_of(request).presets
    preset = await asyncio.to_thread(presets.get, request.path_params["preset_id"])
    await asyncio.to_thread(presets.remove, preset.id)
    return go(f"/runs/new?{urlencode({'agent': preset.agent_id})}")


async def run_case(request: Request, evalset_id: str, case: Case, agent_id: str = "") -> str:
    """Start five trials of a case and say where; without an `agent_id`, by the agent that the case names.

    Where there is something to decide, nothing is started and the address is that of the form: no agent is meant, it
    does not load, a metric cannot judge the case, or the run would be refused.
    """
    desk = desk_of(request)
    agent_id = agent_id or _agent_meant(desk.agents.list(), [case])
    agent_field = {"agent": agent_id} if agent_id else {}
    form = run_address(evalset_id, case.id, **agent_field)
    form_values: Typed = ImmutableMultiDict(
        {**agent_field, "evalset": evalset_id, "case": case.id, "cases": "selected", "n": "5"}
    )
    try:
        form_values = await asyncio.to_thread(
            as_beside,
            form_values,
            find_criteria_file(desk.evalsets.file(evalset_id).path),
            desk.evalsets.read(evalset_id)[0],
        )
        unscored, _ = await asyncio.to_thread(judged_lines, form_values, [case])
        if unscored or desk.agents.get(agent_id).error:
            return form
        return f"/runs/{await desk.runs.start(await _plan(request, form_values))}"
    except (UsageError, FormatError, NotFoundError):
        return form


async def _earlier(request: Request, form_values: Typed) -> RunSummary | None:
    """The run that this one is to be like, by its number; settings beyond the form are taken from its configuration.

    Those that this workspace does not have are left out where somebody else may have written them.

    Raises NotFoundError.
    """
    run_id, runs = _number(form_values, LIKE), desk_of(request).runs
    if run_id is None:
        return None
    run = await runs.summary(run_id)
    return replace(run, config=await asyncio.to_thread(runs.own_part, run))


def _number(form_values: Typed, name: str) -> int | None:
    return number_of(_form_text(form_values, name))


async def _plan(request: Request, form_values: Typed) -> RunPlan:
    earlier = await _earlier(request, form_values)
    options = read_options(form_values, earlier.config if earlier else None)
    if not _form_text(form_values, "evalset"):
        raise UsageError("choose an eval set", field="evalset")
    if form_values.get("try"):
        if asks_for_variants(form_values):  # that of the baseline
            variants = read_variants(form_values, desk_of(request).settings.workspace)
            names = [each.name for each in variants.variants]
            options = variant_options(options, variants.variants[baseline_index(names, variants.baseline)])
        options = await _only_one(request, form_values, options)
    agent_id, evalset_id = _form_text(form_values, "agent"), _form_text(form_values, "evalset")
    try:
        return await desk_of(request).plan_run(agent_id, evalset_id, options, baseline_id(form_values))
    except NotFoundError as error:
        if baseline_id(form_values) is None:
            raise
        raise UsageError(str(error), field=BASELINE) from error


async def _plan_variants(request: Request, form_values: Typed) -> tuple[ExperimentPlan, list[RunPlan]]:
    desk, earlier = desk_of(request), await _earlier(request, form_values)
    options = read_options(form_values, earlier.config if earlier else None)
    agent_id, evalset_id = _form_text(form_values, "agent"), _form_text(form_values, "evalset")
    if not evalset_id:
        raise UsageError("choose an eval set", field="evalset")
    requested = await asyncio.to_thread(read_variants, form_values, desk.settings.workspace)
    evalset = await _read_evalset(request, evalset_id)
    return await plan_experiment_of_page(
        desk,
        agent_id,
        evalset_id,
        options,
        requested.variants,
        name=usual_name((evalset.name or evalset.id) if evalset else evalset_id),
        factors=requested.factors,
        baseline=requested.baseline,
        drops_worse=requested.drops_worse,
        allows_equal=requested.allows_equal,
    )


def _selected_by(desk: Desk, run: RunSummary) -> Collection[str]:
    """The cases of a run that left out some of its eval set; none when it ran them all."""
    try:
        file = desk.evalsets.file(run.config.evalset_id)
    except NotFoundError:
        return ()
    return desk.stored_runs.case_ids(run.id) if run.n_cases < file.n_cases else ()


async def _only_one(request: Request, form_values: Typed, options: RunOptions) -> RunOptions:
    """One trial of the first chosen case."""
    evalset, _, _ = await asyncio.to_thread(desk_of(request).evalsets.read, _form_text(form_values, "evalset"))
    chosen_cases = evalset.cases if options.case_ids is None else with_ids(evalset.cases, options.case_ids)
    first = chosen_cases[0].id if chosen_cases else None
    return options.but(
        n=1, budget=None, allocate=None, case_ids=(first,) if first is not None else options.case_ids, gates=Gates()
    )


async def _form(
    request: Request,
    form_values: Typed,
    error: EvaldeskError | None = None,
    *,
    is_checked: bool = False,
    has_started: bool = True,
) -> Response:
    form = replace(await _fill_form(request, form_values), is_checked=is_checked)
    if error:
        name = getattr(error, "field", None) or ""
        problems = defaultdict(str, {name: str(error)})
        form = replace(form, problems=problems, problem=str(error), is_preset_refused=not has_started)
    block = target_of(request)
    is_gone = GONE in form.problems.values()
    return page(
        request,
        "runs/new.html",
        block=block if block in ("plan", "estimate") else None,
        status=422 if error else 404 if is_gone else 200,
        is_swap=block == "plan",
        form=form,
    )


async def _fill_form(request: Request, form_values: Typed) -> RunForm:
    desk = desk_of(request)
    agents = desk.agents.list()
    files = [file for file in await asyncio.to_thread(desk.evalsets.list) if not file.error]
    requested_id = _form_text(form_values, "evalset")
    default_id, last_agent = (
        ("", "")
        if requested_id
        else await asyncio.to_thread(_usual_set_and_agent, desk, _form_text(form_values, "agent"), agents)
    )
    evalset_id = requested_id if requested_id in {file.id for file in files} else default_id
    evalset_file = next((file for file in files if file.id == evalset_id), None)
    is_reading = evalset_file is not None and evalset_file.is_reading
    evalset = await _read_evalset(request, evalset_id) if evalset_file and not is_reading else None
    is_new, criteria_path, problems = is_fresh(form_values), None, dict[str, str]()
    try:
        criteria_path = find_criteria_file(evalset_file.path) if evalset_file else None
        form_values = await asyncio.to_thread(as_beside, form_values, criteria_path, evalset)
    except (FormatError, UsageError) as error:
        problems |= {"metric": f"{error}. These are the default criteria."} if is_new else {}
    is_selection, ticked = chosen_of(form_values, evalset)
    all_cases = evalset.cases if evalset else ()
    cases = await asyncio.to_thread(with_ids, all_cases, ticked) if is_selection else all_cases
    last_agent = last_agent if last_agent in {each.id for each in agents} else ""
    agent_id = last_agent or _agent_meant(agents, cases) or (agents[0].id if agents else "")
    agent = await _agent(request, _form_text(form_values, "agent"), agent_id)
    visibility = agent.visibility if agent else None
    unscored, not_applicable = await asyncio.to_thread(judged_lines, form_values, cases, visibility)
    earlier = await _earlier_still_there(request, form_values)
    fields = option_fields(form_values, desk.settings, earlier.config if earlier else None)
    typed_n = {name: fields[name].value for name in ("n", "budget", "allocate", "model")}
    n_each, spread_words = await asyncio.to_thread(_spread, desk, typed_n, agent, evalset_id, cases)
    n_trials = sum(n_each)
    history = await asyncio.to_thread(_history, desk, agent, evalset_file, cases)
    plan = await asyncio.to_thread(
        estimate,
        desk.stored_runs,
        agent.id if agent else "",
        evalset_id,
        n_cases=len(cases),
        n=n_trials // max(1, len(cases)),
        concurrency=whole_or_one(fields["concurrency"].value),
        n_trials=n_trials,
        history=history,
    )
    is_small, offer = target_of(request) == "estimate", Offer(desk.settings.allowed_judges, desk.settings.functions)
    listed_cases = all_cases
    if len(all_cases) > MAX_LISTED:
        listed_cases = cases if is_selection else await asyncio.to_thread(with_ids, all_cases, ticked)
    ids = {"agent": agent.id if agent else "", "evalset": evalset_id}
    missing_fields = [name for name, value in ids.items() if _form_text(form_values, name) not in ("", value)]
    variants = await asyncio.to_thread(
        variant_form,
        form_values,
        {name: each.choices for name, each in fields.items()} | {"model": models_of(desk.settings.models, earlier)},
        desk.settings.workspace,
        lambda requested: estimate_variants(
            desk.stored_runs,
            requested,
            agent.id if agent else "",
            agent.description.model if agent and agent.description else None,
            evalset_id,
            cases,
            {name: each.value for name, each in fields.items()},
        ),
    )
    return RunForm(
        variants=variants,
        problems=defaultdict(str, problems | dict.fromkeys(missing_fields, GONE)),
        agents=[(each.id, each.name) for each in agents],
        evalsets=[(file.id, f"{file.name} ({cases_words(file)})") for file in files],
        agent=agent.id if agent else "",
        evalset=evalset_id,
        own_model=(agent.description.model or "") if agent and agent.description else "",
        models=models_of(desk.settings.models, earlier),
        fields=fields,
        kept_options=kept_of(earlier) if earlier else None,
        is_selection=is_selection,
        choices=[(case.id, case.id in ticked) for case in listed_cases] if is_selection or ticked else (),
        presets=await asyncio.to_thread(desk.presets.names, agent.id if agent else ""),
        preset=_number(form_values, PRESET),
        n_all=len(all_cases),
        n_selected=len(ticked),
        metrics=MetricForm() if is_small else await asyncio.to_thread(metric_form, form_values, cases, offer),
        criteria_file=criteria_path.name if criteria_path else "",
        is_beside=is_new and criteria_path is not None and not problems and not (evalset and has_criteria(evalset)),
        unscored=unscored,
        not_applicable=not_applicable,
        estimate=plan,
        spread=spread_words,
        is_reading=is_reading,
        gates=await asyncio.to_thread(
            _gates,
            desk,
            form_values,
            plan.last_run,
            n_each=n_each,
            file=evalset_file,
            cases=cases,
            history=history,
            without=typed_without(form_values, earlier.config if earlier else None),
        ),
    )


def _spread(
    desk: Desk, texts: Mapping[str, str], agent: FoundAgent | None, evalset_id: str, cases: Sequence[Case]
) -> tuple[Sequence[int], str]:
    """The trials of each case, and how a budget is spread, or why it cannot be."""
    n, n_cases = whole_or_one(texts["n"]), len(cases)
    try:
        budget, allocate = BY_NAME["budget"].read(texts["budget"]), BY_NAME["allocate"].read(texts["allocate"])
        if budget is None or not cases:
            own_numbers = trials_of_cases(cases, n)
            return own_numbers or [n] * n_cases, own_trials_sentence(own_numbers, n)
        own = agent.description.model if agent and agent.description else None
        model = texts["model"] if texts["model"] != own else ""
        of_class = last_class(desk.stored_runs, agent.id if agent else "", evalset_id, model or None)
        subject = Subject(cases, of_class)
        allocation = spread(Budget(budget, allocate or EVEN, n), subject, desk.stored_runs)
    except (UsageError, ValueError) as error:
        return [n] * n_cases, f"{str(error)[:1].upper()}{str(error)[1:]}."
    n_trials = sum(allocation.n_each)
    words = budget_sentence(
        budget, allocate or EVEN, allocation.run_ids, n_cases, n_trials, min(allocation.n_each), max(allocation.n_each)
    )
    return allocation.n_each, words


def _gates(
    desk: Desk,
    form_values: Typed,
    last_run: int | None,
    *,
    n_each: Sequence[int],
    file: EvalSetFile | None,
    cases: Sequence[Case],
    history: SetHistory | None,
    without: str,
) -> GateForm:
    """The gates of the form, and how they behave with so many trials of each case that they ask for."""
    runs = desk.stored_runs
    newest, _ = runs.list_newest("finished", MOST_BASELINES, evalset_id=file.id) if file else ((), 0)
    form = GateForm(gate_fields(form_values), baselines_of(newest))
    is_without = bool(tags_of_filter(without))
    try:
        held_ids = left_out_ids(cases, without if is_without else BY_NAME["without"].default)
    except UsageError as error:
        return replace(form, problem=str(error))
    form = replace(form, n_in_quarantine=len(held_ids), is_without=is_without)
    n, threshold = (
        whole_or_one(text_typed(form_values, "n", FORM_DEFAULTS["n"])),
        text_typed(form_values, "pass_threshold", "1"),
    )
    try:
        gates = read_gates(form_values, n=n, compat=text_typed(form_values, "compat", "") or OWN)
        share = BY_NAME["pass_threshold"].read(threshold)
        baseline = None
        if file and 0 < len(cases) <= MOST_PREVIEWED:
            left_out = frozenset(held_ids if is_without else ())
            places = tuple(place for place, case in enumerate(cases) if case.id not in left_out)
            cases, n_each = [cases[place] for place in places], [n_each[place] for place in places]
            history = history.of(places) if history else None
            baseline = _baseline_history(desk, file.name, cases, baseline_id(form_values))
        figures = preview_gates(
            gates,
            history,
            n_each=n_each,
            pass_threshold=1.0 if share is None else share,
            baseline=baseline,
            is_searched=bool(form_values.get("search")),
        )
    except UsageError as error:
        return replace(form, problem=str(error))
    return (
        replace(form, figures=gate_figures(figures), from_run=last_run if figures.is_of_history else None)
        if figures
        else form
    )


def _history(
    desk: Desk, agent: FoundAgent | None, file: EvalSetFile | None, cases: Sequence[Case]
) -> SetHistory | None:
    """What the cases did in the runs of the agent as it played last, which is taken for the one to be played."""
    runs = desk.stored_runs
    last = runs.find_last_run(agent.id, file.id) if agent and file else None
    if last is None or file is None or not 0 < len(cases) <= MOST_PREVIEWED:
        return None
    return runs.history(last, keys_of(file.name, cases))


def _baseline_history(desk: Desk, evalset: str, cases: Sequence[Case], run_id: int | None) -> ComparedHistory | None:
    """What the cases did in the runs of the baseline's agent; None without a baseline that is there."""
    if run_id is None:
        return None
    try:
        return compared_history(desk.stored_runs.baseline_of(run_id), keys_of(evalset, cases))
    except NotFoundError:
        return None


async def _earlier_still_there(request: Request, form_values: Typed) -> RunSummary | None:
    try:
        return await _earlier(request, form_values)
    except NotFoundError:
        return None


def _usual_set_and_agent(desk: Desk, agent_id: str, agents: Sequence[FoundAgent]) -> tuple[str, str]:
    """The eval set that is usual for the agent, and the agent: the one used last, unless `agent_id` names another."""
    ids = [agent.id for agent in agents]
    recent_ids = [run.config.agent.id for run in desk.stored_runs.list_newest(limit=LAST_USED)[0]]
    recent_ids += [session.agent_id for session in desk.sessions.list(limit=1)]
    agent_id = next((each for each in (agent_id, *recent_ids, *ids) if each and (each == agent_id or each in ids)), "")
    return desk.evalsets.propose_evalset_id(agent_id), agent_id


def _agent_meant(agents: Sequence[FoundAgent], cases: Sequence[Case]) -> str:
    """The only agent there is, or the first that a case names; empty where none does."""
    ids = [agent.id for agent in agents]
    if isinstance(cases, LargeCases):
        return ids[0] if len(ids) == 1 else cases.first_app(ids)
    sessions = [case.initial_session for case in cases if case.initial_session]
    app_names = [session.app_name for session in sessions if session.app_name in ids]
    return ids[0] if len(ids) == 1 else next(iter(app_names), "")


async def _agent(request: Request, agent_id: str, default: str) -> FoundAgent | None:
    agents = desk_of(request).agents
    try:
        return await agents.get_described_agent(agent_id or default, timeout_s=2.0)
    except NotFoundError:
        return agents.get(default) if default else None


async def _read_evalset(request: Request, evalset_id: str) -> EvalSet | None:
    try:
        evalset, _, _ = await asyncio.to_thread(desk_of(request).evalsets.read, evalset_id)
    except (NotFoundError, FormatError):
        return None
    return evalset


def _form_text(form_values: Typed, name: str) -> str:
    value = form_values.get(name, "")
    return value if isinstance(value, str) else ""
