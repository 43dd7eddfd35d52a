"""`evaldesk.evaluate`: an eval set run from Python, on the same engine and with the same verdicts as everywhere."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, cast, overload

from evaldesk import paths
from evaldesk.agents import agent_ref, named_ref
from evaldesk.desk.criteria.criteria import (
    GivenCriteria,
    find_criteria_file,
    given_criteria,
    given_live,
    given_user,
    reaches_out,
)
from evaldesk.desk.evalsets.cases import evalset_of
from evaldesk.desk.experiments.experiment_result import ExperimentResult
from evaldesk.desk.experiments.experiments import ExperimentDesk
from evaldesk.desk.experiments.revisions import agent_at, is_revision, trees_folder
from evaldesk.desk.experiments.variants import (
    AGENT,
    EVALSET,
    baseline_index,
    check_names,
    check_overridden_options,
    listed_variants,
    plan_experiment,
    usual_name,
    variant_options,
)
from evaldesk.desk.runs.gates.impossible import check_gates
from evaldesk.desk.runs.input_lock import OBJECT_TARGET
from evaldesk.desk.runs.kept_workers import SHARED
from evaldesk.desk.runs.model_checks import check_model_names, check_prices
from evaldesk.desk.runs.plan import RunOptions, RunPlan, is_judged_by_set, subject_of
from evaldesk.desk.runs.run_result import RunResult
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.desk.runs.stored_runs import StoredRuns, compared_plans
from evaldesk.desk.trust import Trust
from evaldesk.engine import ChatPlayers, Executor, InlineExecutor
from evaldesk.engine.launch import placed
from evaldesk.engine.worker.player import adopt, describe_agent, disown, fault_of, load
from evaldesk.errors import EvaldeskError, NotFoundError, UsageError
from evaldesk.formats import AdkObject, load_evalset
from evaldesk.gate_options import GATE_OPTIONS, GATES_BY_NAME, AskedGates, gates_of
from evaldesk.model import AgentRef, Case, EvalSet, Gates, RunConfig
from evaldesk.model.experiment import Variant
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import BY_CHANCE, BY_NAME, OF_NAMED_RUN, RUN_OPTIONS, Asked, RunOption
from evaldesk.settings import Settings, read_settings
from evaldesk.store import Store

GivenPlace: TypeAlias = tuple[str | os.PathLike[str] | None, str | None]
"""An interpreter and an image."""
GivenEvalSet: TypeAlias = EvalSet | AdkObject | Sequence[Case] | Sequence[str] | str | os.PathLike[str]
GivenVariants: TypeAlias = Sequence[Mapping[str, object] | Variant]
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


@overload
async def evaluate_async(
    agent: object,
    evalset: GivenEvalSet,
    *,
    criteria: GivenCriteria | None = None,
    cases: Sequence[str] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    image: str | None = None,
    on_progress: Callable[[RunSummary], None] = ...,
    **options: Unpack[AskedRun],
) -> RunResult: ...
@overload
async def evaluate_async(
    agent: object,
    evalset: GivenEvalSet,
    *,
    variants: GivenVariants,
    baseline_variant: str | None = None,
    gate_variants: Sequence[str] = (),
    drop_worse: bool = False,
    allow_equal: bool = False,
    experiment: str = "",
    criteria: GivenCriteria | None = None,
    cases: Sequence[str] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    image: str | None = None,
    on_progress: Callable[[RunSummary], None] = ...,
    **options: Unpack[AskedRun],
) -> ExperimentResult: ...
async def evaluate_async(
    agent: object,
    evalset: GivenEvalSet,
    *,
    variants: GivenVariants | None = None,
    baseline_variant: str | None = None,
    gate_variants: Sequence[str] = (),
    drop_worse: bool = False,
    allow_equal: bool = False,
    experiment: str = "",
    criteria: GivenCriteria | None = None,
    cases: Sequence[str] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    image: str | None = None,
    on_progress: Callable[[RunSummary], None] = lambda _: None,
    **options: Unpack[AskedRun],
) -> RunResult | ExperimentResult:
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

    With `variants` each of them is a run of an experiment, all in turn, and an ExperimentResult is given: `.table()`,
    `.differences`, `.may_be_best`, and `result["name"]`, the run of one. A variant is a mapping of run options, such as
    `{"model": "a", "instruction": "Be brief."}`, with a `name` where its options should not name it; `agent`, `evalset`
    and `instruction@planner`, of one agent of a tree, are options of it as well. They are compared with the first one
    or `baseline_variant`; gates count in those named by `gate_variants`; with `drop_worse` a variant that is worse
    than the best is not played on; `allow_equal` permits equal ones; `experiment` is a name for all.

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
    call = _Call(agent, evalset, criteria, plan_options, workspace, (python, image), on_progress)
    if variants is None:
        of_experiment: dict[str, object] = {
            "baseline_variant": baseline_variant,
            "gate_variants": gate_variants,
            "drop_worse": drop_worse,
            "allow_equal": allow_equal,
            "experiment": experiment,
        }
        unused = next((name for name, value in of_experiment.items() if value), None)
        if unused:
            raise UsageError(f"{unused}= is of an experiment; say variants= as well", field=unused)
        return await _evaluate(call, baseline)
    if baseline:
        raise UsageError("baseline= compares one run; with variants= say baseline_variant=", field="baseline")
    request = _VariantRequest(variants, baseline_variant, tuple(gate_variants), drop_worse, allow_equal, experiment)
    return await _evaluate_variants(call, request)


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


class _Evaluate(Protocol):
    """`evaluate_async` for a caller that waits."""

    __name__: str

    @overload
    def __call__(
        self,
        agent: object,
        evalset: GivenEvalSet,
        *,
        criteria: GivenCriteria | None = None,
        cases: Sequence[str] | None = None,
        workspace: str | os.PathLike[str] | None = None,
        python: str | os.PathLike[str] | None = None,
        image: str | None = None,
        on_progress: Callable[[RunSummary], None] = ...,
        **options: Unpack[AskedRun],
    ) -> RunResult: ...
    @overload
    def __call__(
        self,
        agent: object,
        evalset: GivenEvalSet,
        *,
        variants: GivenVariants,
        baseline_variant: str | None = None,
        gate_variants: Sequence[str] = (),
        drop_worse: bool = False,
        allow_equal: bool = False,
        experiment: str = "",
        criteria: GivenCriteria | None = None,
        cases: Sequence[str] | None = None,
        workspace: str | os.PathLike[str] | None = None,
        python: str | os.PathLike[str] | None = None,
        image: str | None = None,
        on_progress: Callable[[RunSummary], None] = ...,
        **options: Unpack[AskedRun],
    ) -> ExperimentResult: ...


evaluate = cast("_Evaluate", make_blocking(evaluate_async, "evaluate"))


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of `evaluate`, the options checked."""

    agent: object
    evalset: GivenEvalSet
    criteria: GivenCriteria | None
    options: RunOptions
    workspace: str | os.PathLike[str] | None
    place: GivenPlace
    on_progress: Callable[[RunSummary], None]


@dataclass(frozen=True, slots=True)
class _VariantRequest:
    """The arguments of `evaluate` that are of an experiment."""

    variants: GivenVariants
    baseline: str | None
    gate_variants: tuple[str, ...]
    drops_worse: bool
    allows_equal: bool
    name: str


async def _evaluate(call: _Call, compared_with: str | None) -> RunResult:
    with _read_call(call) as bench:
        async with bench.opened([bench.who]):
            plan = await bench.plan(bench.who, bench.evalset, bench.path, bench.options)
            if compared_with is not None:
                baseline = await asyncio.to_thread(StoredRuns(bench.store.runs).baseline, compared_with)
                (plan,) = compared_plans([plan], baseline)
            if not call.options.gates.asks_nothing:
                check_gates(plan.config.gates, [plan], _keyword)
            summary = await bench.runs.run_to_end(plan, call.on_progress)
            return await bench.result(summary)


async def _evaluate_variants(call: _Call, request: _VariantRequest) -> ExperimentResult:
    """Plan the variants, play them in turn, and give their results. Raises UsageError naming a variant at fault."""
    objects, named_variants = _agent_objects(request.variants)
    factors, variants = listed_variants(named_variants)
    names = [variant.name for variant in variants]
    check_names(names)
    baseline_index(names, request.baseline)
    for name in request.gate_variants:
        baseline_index(names, name)
    if not call.options.gates.asks_nothing and not request.gate_variants:
        raise UsageError("a gate of an experiment is one of a variant; say gate_variants=", field="gate_variants")
    if call.options.overrides.get("shard"):
        raise UsageError("variants= plays several runs, and a shard is part of one; leave out shard=", field="shard")
    named_option = next((each for each in OF_NAMED_RUN if call.options.value(each)), None)
    if named_option:
        raise UsageError(
            f"variants= plays several runs, and {named_option}= is of one; leave it out, or say experiment=",
            field=named_option,
        )
    check_overridden_options(call.options, variants)
    if call.options.overrides.get("allocate"):
        raise UsageError("the budget of an experiment is spent in order; leave out allocate=", field="allocate")
    with _read_call(call, [str(each.options["model"]) for each in variants if "model" in each.options]) as bench:
        agents_of_objects: dict[int, _Agent] = {id(call.agent): bench.who}
        agents = []
        for place, variant in enumerate(variants):
            environment = str(variant.options.get("environment", call.options.value("environment")))
            agent = objects.get(place, variant.options.get(AGENT, call.agent))
            who = agents_of_objects.get(id(agent))
            if who is None or "environment" in variant.options:
                who = _resolve_variant_agent(agent, call, bench.settings, environment)
            agents_of_objects.setdefault(id(agent), who)
            agents.append(who)
        async with bench.opened(agents):
            run_plans: list[RunPlan] = []
            for who, variant in zip(agents, variants, strict=True):
                try:
                    run_plans.append(await _plan_variant(bench, who, variant, request, run_plans))
                except EvaldeskError as error:
                    words = str(error)
                    sentence = words if words.startswith("variant ") else f"variant {variant.name!r}: {words}"
                    raise UsageError(sentence, field=getattr(error, "field", "")) from error
            plan = plan_experiment(
                request.name or usual_name(bench.evalset.name or bench.evalset.id),
                variants,
                run_plans,
                factors=factors,
                baseline=request.baseline,
                budget=call.options.overrides.get("budget"),
                drops_worse=request.drops_worse,
                allows_equal=request.allows_equal,
                gate_variants=request.gate_variants,
            )
            experiments = ExperimentDesk(bench.store, bench.runs)
            experiment_id = await experiments.start(plan, run_plans)

            def on_progress(summaries: Sequence[RunSummary]) -> None:
                for summary in summaries:
                    call.on_progress(summary)

            results = await experiments.play(experiment_id, on_progress)
            runs = [await bench.result(results.runs[index]) for index in range(len(variants))]
            return ExperimentResult(results, tuple(runs))


async def _plan_variant(
    bench: _Bench, who: _Agent, variant: Variant, request: _VariantRequest, earlier: Sequence[RunPlan]
) -> RunPlan:
    """The run of a variant, with the seed of the earlier ones. Raises UsageError."""
    gates = bench.options.gates if variant.name in request.gate_variants else Gates()
    options = variant_options(bench.options.but(budget=None, gates=gates), variant)
    if earlier:  # the trials of a case have the same seeds in all variants
        options = options.but(seed=earlier[0].config.seed)
    evalset, path = bench.evalset, bench.path
    if EVALSET in variant.options:
        path = Path(str(variant.options[EVALSET]))
        evalset = load_evalset(path)
    plan = await bench.plan(who, evalset, path, options)
    if not gates.asks_nothing:
        check_gates(plan.config.gates, [plan], _keyword)
    return plan


def _agent_objects(variants: GivenVariants) -> tuple[dict[int, object], list[Variant | Mapping[str, object]]]:
    """The agents that are objects by the place of their variant, and the variants with their names in place of them."""
    objects: dict[int, object] = {}
    named_variants: list[Variant | Mapping[str, object]] = []
    for place, variant in enumerate(variants):
        agent = variant.get(AGENT) if isinstance(variant, Mapping) else None
        if isinstance(variant, Mapping) and agent is not None and not isinstance(agent, str | os.PathLike):
            objects[place] = agent
            named_variants.append({**variant, AGENT: _name_of(agent)})
        else:
            named_variants.append(variant)
    return objects, named_variants


@dataclass(slots=True)
class _Bench:
    """The workspace, eval set and criteria of a call of `evaluate`; its runs are there while it is `opened`."""

    call: _Call
    settings: Settings
    home: Path
    trust: Trust
    who: _Agent
    evalset: EvalSet
    path: Path | None
    options: RunOptions
    criteria_file: Path | None
    runs: RunDesk = field(init=False)
    store: Store = field(init=False)
    host: ChatPlayers = field(init=False)

    @asynccontextmanager
    async def opened(self, agents: Sequence[_Agent]) -> AsyncIterator[None]:
        """Open the runs of the workspace for agents that are named, or objects of this process. Raises AgentError."""
        for who in agents:
            self._check(who)
        trust = self.trust if self.call.workspace is not None else None
        self.store = await asyncio.to_thread(
            trust.opened_store if trust else partial(Store.open, self.settings.database)
        )
        shared_workers = SHARED.get()
        self.host = ChatPlayers() if shared_workers is None else shared_workers.host
        object_refs = {who.ref for who in agents if who.target is not None}

        def open_inline(config: RunConfig) -> Executor | None:
            return InlineExecutor(config.concurrency) if config.agent in object_refs else None

        self.runs = RunDesk(self.settings, self.store, open_executor=open_inline, trust=trust)
        self.runs.shared_workers = shared_workers
        try:
            yield
        finally:
            await self.runs.close()
            if shared_workers is None:
                await self.host.close()
            self.store.close()
            for ref in object_refs:
                disown(ref)

    def _check(self, who: _Agent) -> None:
        """Take the agent for named by the caller, and check the criteria file found beside its eval set."""
        self.trust.name(who.ref if who.target is None else replace(who.ref, root=_folder_of(who.target)))
        if self.criteria_file and reaches_out(self.options.criteria or (), self.options.user):
            self.trust.check_criteria_file(who.ref, self.criteria_file)

    async def plan(self, who: _Agent, evalset: EvalSet, path: Path | None, options: RunOptions) -> RunPlan:
        """The run of an agent. Raises AgentError, UsageError."""
        if who.target is None:
            await asyncio.to_thread(self.runs.freeze, options.criteria or (), who.ref.root)  # before the agent's import
            description = await self.host.describe(who.ref)
        else:
            description = describe_agent(adopt(who.ref, who.target), who.ref)
        plan = self.runs.plan_for(subject_of(who.ref, evalset, path, description, self.home), options)
        _check_isolation(who, plan.config)
        self.trust.check_executor(plan.config)
        await check_model_names(self.host.model_fault if who.target is None else _fault_here, plan, description)
        if plan.config.gates.max_cost is not None:
            unpriced = self.host.unpriced if who.target is None else _unpriced_here
            await check_prices(unpriced, plan, description, "max_cost=")
        return plan

    async def result(self, summary: RunSummary) -> RunResult:
        """The whole run of a summary, with its end."""
        result = await asyncio.to_thread(StoredRuns(self.store.runs).result, summary.id)
        return replace(result, status=summary.status, reason=summary.reason)


@contextmanager
def _read_call(call: _Call, models: Sequence[str] = ()) -> Iterator[_Bench]:
    """The settings, the agent, the eval set and the criteria of a call; `models` are those of its variants.

    Raises UsageError, FormatError, TrustError.
    """
    home = Path(call.workspace or "").resolve()
    settings = read_settings(home, (), environment=os.environ, n_workers=os.cpu_count() or 2)
    options = call.options
    who = _resolve_agent(call.agent, settings, call.place, options.value("environment"))
    trust = Trust(settings)
    evalset, path, case_ids = _load_given_evalset(call.evalset, paths.folder_of_names(who.ref.folder))
    if case_ids is not None and options.case_ids is not None:
        raise UsageError("name the cases after the colon of the eval set or as cases=, not both", field="cases")
    options = options if case_ids is None else options.but(case_ids=case_ids)
    _check_names(evalset, options.case_ids)
    criteria_file = find_criteria_file(path) if path and call.criteria is None else None
    source = criteria_file or call.criteria
    if source is not None:
        asked_live = given_live(source) if options.overrides.get("live") is None else {}
        # The user and live settings of a file beside a set with criteria count, as they do for the command.
        is_by_set = call.criteria is None and is_judged_by_set(options, evalset)
        criteria = options.criteria if is_by_set else given_criteria(source)
        is_by_file = not is_by_set and isinstance(source, str | os.PathLike)
        options = options.but(criteria=criteria, user=given_user(source), is_by_file=is_by_file, **asked_live)
    model = options.overrides.get("model")
    more_models = (*([model] if model else []), *models)
    with tempfile.TemporaryDirectory(prefix="evaldesk-", ignore_cleanup_errors=True) as passing:
        if call.workspace is None:
            settings = replace(settings, workspace=Path(passing).resolve(), store=None)
        settings = replace(settings, models=(*settings.models, *more_models))
        yield _Bench(call, settings, home, trust, who, evalset, path, options, criteria_file)


async def _fault_here(ref: AgentRef, model: str) -> str:
    """The reason why every call of a model by an adopted object would fail; empty where it may be called."""
    return await asyncio.to_thread(lambda: fault_of(load(ref), model))


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
    return _Agent(AgentRef(_name_of(agent), f"{OBJECT_TARGET}{next(_numbers)}"), agent)


def _resolve_variant_agent(agent: object, call: _Call, settings: Settings, environment: str) -> _Agent:
    """The agent of a variant; `git:REV` is that of the call at another revision."""
    if not isinstance(agent, str) or not is_revision(agent):
        return _resolve_agent(agent, settings, call.place, environment)
    own = _resolve_agent(call.agent, settings, call.place, environment)
    return _Agent(agent_at(own.ref, agent, trees_folder(settings)))


def _name_of(agent: object) -> str:
    return str(getattr(agent, "name", None) or getattr(agent, "__name__", None) or type(agent).__name__)


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
