"""`evaldesk.evaluate`: an eval set run from Python, on the same engine and with the same verdicts as everywhere."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar, Unpack, cast

from evaldesk import paths
from evaldesk.agents import agent_ref, named_ref
from evaldesk.desk.criteria.criteria import GivenCriteria, find_criteria_file, given_criteria, given_user, reaches_out
from evaldesk.desk.evalsets.cases import evalset_of
from evaldesk.desk.runs.gates.impossible import check_gates
from evaldesk.desk.runs.kept_workers import SHARED
from evaldesk.desk.runs.model_checks import Unpriced, check_prices
from evaldesk.desk.runs.plan import RunOptions, subject_of
from evaldesk.desk.runs.run_result import RunResult
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.desk.runs.stored_runs import StoredRuns, compared_plans
from evaldesk.desk.trust import Trust
from evaldesk.engine import ChatPlayers, Executor, InlineExecutor
from evaldesk.engine.launch import placed
from evaldesk.engine.worker.player import adopt, describe_agent, disown
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.formats import AdkObject, load_evalset
from evaldesk.gate_options import GATE_OPTIONS, GATES_BY_NAME, AskedGates, gates_of
from evaldesk.model import AgentDescription, AgentRef, Case, Criterion, EvalSet, RunConfig
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import BY_CHANCE, BY_NAME, RUN_OPTIONS, Asked, RunOption
from evaldesk.settings import Settings, read_settings
from evaldesk.store import Store

GivenPlace: TypeAlias = tuple[str | os.PathLike[str] | None, str | None]
"""An interpreter and an image."""
GivenEvalSet: TypeAlias = EvalSet | AdkObject | Sequence[Case] | Sequence[str] | str | os.PathLike[str]
P = ParamSpec("P")
T = TypeVar("T")

_numbers = itertools.count(1)


class AskedRun(Asked, AskedGates, total=False):
    """The options of a run and its gates, by name."""


@dataclass(frozen=True, slots=True)
class _Agent:
    """The agent to run; `target` is an object of this process, or None where a worker imports the agent."""

    ref: AgentRef
    target: object = None


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Carry out `work` in an event loop of its own: in this thread, or in another where a loop runs already."""
    results: list[T] = []

    async def collect_result() -> None:
        results.append(
            await work
        )  # not returned: asyncio writes the result of its task into a message that nobody sees

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_free = True  # run outside of this block: the errors of an agent would name the one that is caught here
    else:
        is_free = False
    if is_free:
        asyncio.run(collect_result())
        return results[0]
    with ThreadPoolExecutor(1, thread_name_prefix="evaldesk-evaluate") as threads:
        threads.submit(asyncio.run, collect_result()).result()
    return results[0]


def make_blocking(work: Callable[P, Coroutine[Any, Any, T]], name: str) -> Callable[P, T]:
    """The function `name`, which takes the arguments of `work` and waits for it."""

    @functools.wraps(work)
    def wait(*arguments: P.args, **options: P.kwargs) -> T:
        return wait_for(work(*arguments, **options))

    wait.__name__ = wait.__qualname__ = name
    return wait


async def evaluate_async(
    agent: object,
    evalset: GivenEvalSet,
    *,
    criteria: GivenCriteria | None = None,
    cases: Sequence[str] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    image: str | None = None,
    on_progress: Callable[[RunSummary], None] = lambda _: None,
    **options: Unpack[AskedRun],
) -> RunResult:
    """Run the cases of `evalset` n times each with `agent`, and give the result; nothing is printed.

    `agent` is a folder, `module:attr`, `samples/NAME` or a name in `evaldesk.toml`, played in worker processes; or the
    object itself (an `LlmAgent`, a function `(message, state)`), played in this process, where a call that blocks is
    not cut off by `timeout_s` (seconds). `evalset` is an EvalSet, here or of google-adk, a list of cases, or the path
    of a file, with `:CASE,CASE` after it as on the command line; or a list of such, all of one file. `criteria` is
    a mapping `{"response_match_score": 0.8}` as in `test_config.json`, the path of such a file, an EvalConfig of
    google-adk, or a list of Criterion; None takes the file beside the eval set, else the default ones.
    `cases` names those to run; None runs all. `python` is the interpreter that the agent is played on; None takes that
    of `evaldesk.toml`, else that of the agent's project, `"evaldesk"` Evaldesk's own; `image` names the
    image of containers to play it in. `options` are those of the table
    of run options, such as `n=5`, `timeout_s=60`, `model`, `temperature` or `seed`; one that is not given is as
    `evaldesk.toml` has it. Gates are options as well, such as `min_pass_rate=0.9`, `pass_hat={5: 0.8}`, or
    `baseline=12, regression_rule="confirm"`, where a baseline is a run of `workspace`, or the JSON file of one;
    `result.conclusion` answers them, and without one every trial must pass. The run is kept in `workspace`, or nowhere
    when that is None; `evaldesk.toml` is read there, or in the working folder.

    `evaluate(...)` waits for the end, also inside a running event loop, which it blocks; `await evaluate_async(...)`
    does not, and cancelling it ends the run: its finished trials stay in `workspace`. Raises UsageError, FormatError,
    or AgentError when the agent cannot be loaded.
    """
    option_names = {*BY_NAME, *GATES_BY_NAME}
    unknown = next((name for name in options if name not in option_names), None)
    if unknown:
        raise TypeError(str(NotFoundError.among("run option", unknown, option_names)))
    run_options = {name: value for name, value in options.items() if name not in GATES_BY_NAME}
    gates = {name: value for name, value in options.items() if name in GATES_BY_NAME}
    baseline_option = options.get("baseline")
    baseline = (
        None
        if baseline_option is None
        else os.fspath(baseline_option)
        if isinstance(baseline_option, os.PathLike)
        else str(baseline_option)
    )
    if baseline and workspace is None and not Path(baseline).is_file():
        raise UsageError(
            f"baseline={baseline} names a run of a workspace; say workspace= as well, or name the JSON file of a run",
            field="baseline",
        )
    plan_options = RunOptions(case_ids=None if cases is None else tuple(cases), **cast("Asked", run_options))
    if gates:
        n, compat = plan_options.value("n"), plan_options.value("compat")
        plan_options = plan_options.but(
            gates=gates_of({**gates, "baseline": baseline}, n=n, compat=compat, name_of=_keyword)
        )
    return await _evaluate(agent, evalset, criteria, plan_options, workspace, (python, image), on_progress, baseline)


def _keyword(option: RunOption) -> str:
    return f"{option.name}="


def signature_of_options(work: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function that takes `**options`, with every option of the table in their place."""
    own = inspect.signature(work)
    own_parameters = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    types = {**inspect.get_annotations(Asked), **inspect.get_annotations(AskedGates)}
    options = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if option.unset == BY_CHANCE else option.default,
            annotation=types[option.name],
        )
        for option in (*RUN_OPTIONS, *GATE_OPTIONS)
    ]
    return own.replace(parameters=[*own_parameters, *options])


vars(evaluate_async)["__signature__"] = signature_of_options(evaluate_async)
evaluate = make_blocking(evaluate_async, "evaluate")


async def _evaluate(
    agent: object,
    evalset_source: GivenEvalSet,
    criteria: GivenCriteria | None,
    options: RunOptions,
    workspace: str | os.PathLike[str] | None,
    place: GivenPlace,
    on_progress: Callable[[RunSummary], None],
    compared_with: str | None = None,
) -> RunResult:
    home = Path(workspace or "").resolve()
    settings = read_settings(home, (), environment=os.environ, n_workers=os.cpu_count() or 2)
    who = _resolve_agent(agent, settings, place, options.value("environment"))
    trust = Trust(settings)
    trust.name(who.ref if who.target is None else replace(who.ref, root=_folder_of(agent)))
    evalset, path, case_ids = _load_given_evalset(evalset_source, paths.folder_of_names(who.ref.folder))
    if case_ids is not None and options.case_ids is not None:
        raise UsageError("name the cases after the colon of the eval set or as cases=, not both", field="cases")
    options = options if case_ids is None else options.but(case_ids=case_ids)
    _check_names(evalset, options.case_ids)
    criteria_file = find_criteria_file(path) if criteria is None and path else None
    criteria, plan_options = criteria_file or criteria, options
    if criteria is not None:
        plan_options = options.but(criteria=given_criteria(criteria), user=given_user(criteria))
    if criteria_file and reaches_out(plan_options.criteria or (), plan_options.user):
        trust.check_criteria_file(who.ref, criteria_file)
    with tempfile.TemporaryDirectory(prefix="evaldesk-", ignore_cleanup_errors=True) as passing:
        if workspace is None:
            settings = replace(settings, workspace=Path(passing).resolve(), store=None)
        is_kept = workspace is not None
        run_context = _open_runs(
            settings, who, options.overrides.get("model"), plan_options.criteria or (), trust if is_kept else None
        )
        async with run_context as (runs, store, description, unpriced):
            plan = runs.plan_for(subject_of(who.ref, evalset, path, description, home), plan_options)
            if compared_with is not None:
                baseline = await asyncio.to_thread(StoredRuns(store.runs).baseline, compared_with)
                (plan,) = compared_plans([plan], baseline)
            if not plan_options.gates.asks_nothing:
                check_gates(plan.config.gates, [plan], _keyword)
            _check_isolation(who, plan.config)
            trust.check_executor(plan.config)
            if plan.config.gates.max_cost is not None:
                await check_prices(unpriced, plan, description, "max_cost=")
            summary = await runs.run_to_end(plan, on_progress)
            result = await asyncio.to_thread(StoredRuns(store.runs).result, summary.id)
            return replace(result, status=summary.status, reason=summary.reason)


@asynccontextmanager
async def _open_runs(
    settings: Settings, who: _Agent, model: str | None, criteria: Sequence[Criterion], trust: Trust | None
) -> AsyncIterator[tuple[RunDesk, Store, AgentDescription, Unpriced]]:
    """The runs of a workspace, the agent's description of itself, and a function for prices. Raises AgentError."""
    if model:
        settings = replace(settings, models=(*settings.models, model))
    store = await asyncio.to_thread(trust.opened_store if trust else partial(Store.open, settings.database))
    shared_workers = SHARED.get()
    host = ChatPlayers() if shared_workers is None else shared_workers.host
    runs = RunDesk(settings, store, open_executor=None if who.target is None else _inline, trust=trust)
    runs.shared_workers = shared_workers
    try:
        if who.target is None:
            await asyncio.to_thread(runs.freeze, criteria, who.ref.root)  # before the import of the agent
            yield runs, store, await host.describe(who.ref), host.unpriced
        else:
            yield runs, store, describe_agent(adopt(who.ref, who.target), who.ref), _unpriced_here
    finally:
        await runs.close()
        if shared_workers is None:
            await host.close()
        store.close()
        disown(who.ref)


def _inline(config: RunConfig) -> Executor:
    return InlineExecutor(config.concurrency)


async def _unpriced_here(_: AgentRef, models: Sequence[str]) -> tuple[str, ...]:
    """Those of `models` without a known price where an object is played, in this process."""
    from evaldesk.llm import price

    return tuple(model for model in models if price(model, 1, 1) is None)


def _check_isolation(who: _Agent, config: RunConfig) -> None:
    """Raise UsageError for an object whose trials should have processes of their own, or be played elsewhere."""
    if who.target is not None and not config.is_shared:
        raise UsageError(
            f"isolation = {config.isolation!r} is for an agent that is named; an object stays in this process",
            field="isolation",
        )
    if who.target is not None and config.executor.name:
        raise UsageError(
            f"on = {config.executor.name!r} is for an agent that is named; an object stays in this process", field="on"
        )


def _resolve_agent(agent: object, settings: Settings, place: GivenPlace, environment: str) -> _Agent:
    if isinstance(agent, AgentRef):
        return _Agent(placed(agent, settings, *place, environment) if any((*place, environment)) else agent)
    if isinstance(agent, str | os.PathLike):
        spec, declared_agents = os.fspath(agent), settings.agents
        ref = named_ref(spec, declared_agents, settings.workspace) if declared_agents else agent_ref(spec)
        return _Agent(placed(ref, settings, *place, environment))
    for name, choice in zip(("python", "image", "environment"), (*place, environment), strict=True):
        if choice:
            raise UsageError(f"{name}= is for an agent that is named; an object stays in this process", field=name)
    name = getattr(agent, "name", None) or getattr(agent, "__name__", None) or type(agent).__name__
    return _Agent(AgentRef(str(name), f"this process:{next(_numbers)}"), agent)


def _folder_of(agent: object) -> str:
    """The folder of the code that defines an agent of this process; of an agent of a framework's class, this folder."""
    code = agent if hasattr(agent, "__code__") or isinstance(agent, type) else type(agent)
    file = getattr(sys.modules.get(str(code.__module__)), "__file__", None)
    is_installed = file is None or "site-packages" in file or Path(file).is_relative_to(paths.PACKAGE)
    return str(Path.cwd() if is_installed else Path(str(file)).resolve().parent)


def _load_given_evalset(
    source: GivenEvalSet, folder: Path | None
) -> tuple[EvalSet, Path | None, tuple[str, ...] | None]:
    """The eval set, its file where it has one, and the cases that its name chose; None for all."""
    if isinstance(source, EvalSet):
        return source, None, None
    if hasattr(source, "model_dump_json"):
        return evalset_of(cast("AdkObject", source)), None, None
    words = [source] if isinstance(source, str | os.PathLike) else list(source)
    cases = tuple(each for each in words if isinstance(each, Case))
    if len(cases) == len(words):
        return EvalSet("cases", cases=cases), None, None
    selections: dict[Path, tuple[str, ...] | None] = {}
    for word in words:
        if not isinstance(word, str | os.PathLike):
            raise UsageError(f"an eval set is an EvalSet, cases, or a path; not {type(word).__name__}", field="evalset")
        path, names = paths.selected_cases(os.fspath(word), folder)
        earlier = selections.get(path, ())
        selections[path] = None if names is None or earlier is None else (*earlier, *names)
    if len(selections) > 1:
        raise UsageError("evaluate runs one eval set; call it once for each", field="evalset")
    path, case_ids = next(iter(selections.items()))
    return load_evalset(path), path, case_ids


def _check_names(evalset: EvalSet, case_ids: Sequence[str] | None) -> None:
    known_ids = [case.id for case in evalset.cases]
    for name in case_ids or ():
        if name not in known_ids:
            raise NotFoundError.among(f"case in {evalset.id}", name, known_ids)
