"""The models that a run asks: each has a name, a key and, under a limit of cost, a price, before anything is spent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from evaldesk.agents import AGENTS
from evaldesk.agents.env_files import env_variables
from evaldesk.desk.criteria.criteria import JUDGE_OPTIONS, MORE_JUDGES, judges_of
from evaldesk.desk.runs.plan import RunPlan, check_calls
from evaldesk.errors import VALUE_LIMIT, AgentError, NotFoundError, UsageError
from evaldesk.llm import model_fault
from evaldesk.metrics import is_metric, metric_info
from evaldesk.model import AgentDescription, AgentRef, Case, Criterion, ModelOptions
from evaldesk.model.evalset import LargeCases, some_of
from evaldesk.model.options import ADK_JUDGE, USER_VARIABLE
from evaldesk.reading.scenario import USER_MODEL, no_plan_words, own_model, plan_of, unlisted_words
from evaldesk.run_options import BY_NAME
from evaldesk.secrets import missing_keys, set_variables

VLLM_ADDRESS = "HOSTED_VLLM_API_BASE"
"""The variable with the address of a server that takes any name of a model."""
_PRICES = "price_in and price_out, in US dollars for a million tokens, under"


def check_models(plan: RunPlan, agent: AgentDescription, environment: Mapping[str, str]) -> None:
    """Raise UsageError naming the field of a model that has no name or no key, of the agent, the user or a judge.

    A run that may answer from a recording needs no keys, but an agent that it can replay. Judges are asked from this
    `environment` and the agent's `.env`, wherever the agent is played.
    """
    check_calls(plan.config, agent.kind)
    check_instructions(plan.config.model_options, agent)
    _check_media(plan, agent)
    if plan.config.recording.may_replay:
        return
    _check_agent(plan, agent)
    _check_user(plan, agent)
    judging = agent
    if agent.variables:
        with suppress(AgentError):
            environment = {**env_variables(plan.config.agent.folder, environment), **environment}
        judging = replace(agent, variables=set_variables(environment))
    for criterion in plan.config.criteria:
        if plan.config.n_asserted.get(criterion.metric) != 0:
            _check_judges(criterion, judging)


def check_instructions(options: ModelOptions, agent: AgentDescription) -> None:
    """Raise UsageError for an instruction of an agent that takes none, or that its tree does not have."""
    if options.instruction is not None and not agent.takes_instruction:
        raise UsageError(_no_instruction(agent), field="instruction")
    if not options.instructions:
        return
    agents = {each.name: each for each in _agents_of(agent)}
    for name, text in options.instructions.items():
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"instructions.{name} must be a text, and not an empty one", field="instructions")
        if name not in agents:
            raise UsageError(str(NotFoundError.among("agent", name, agents)), field="instructions")
        if not agents[name].takes_instruction:
            raise UsageError(_no_instruction(agents[name]), field="instructions")


def unused_options(plan: RunPlan, agent: AgentDescription) -> Mapping[str, str]:
    """Options that would change nothing in this run, each with the reason and what to do instead.

    No model call of the agent follows them, or no simulated user is asked.
    """
    config, kind = plan.config, AGENTS.find(agent.kind)
    about = f"the agent {config.agent.id!r} ({AGENTS.title(agent.kind)})"
    source = kind.option_source if kind else ""
    reasons = {
        name: f"no model call of {about} follows {name}; "
        + (source.format(name=name) if source else "set it in the code of the agent, and vary the agent")
        for name in (*(kind.unused_options if kind else ()), *agent.unused_options)
    }
    if kind and kind.native_prefix and not config.model_options.base_url:
        models = [config.model] if config.model else [each.model for each in _agents_of(agent) if each.model]
        is_native = bool(models) and all(model.startswith(kind.native_prefix) for model in models if model)
        for name in (
            *(("reasoning_effort",) if is_native else ()),
            *(("extra",) if is_native or not config.model else ()),
        ):
            reasons[name] = (
                f"{name} reaches models of LiteLLM alone, and {about} asks {', '.join(map(str, models)) or 'its own'}; "
                "name another model beside it"
            )
    if not any(case.scenario for case in some_of(plan.cases)) or agent.offers_user:
        why = "the functions of its module play the user" if agent.offers_user else "no case has a scenario"
        user_options = (name for name in BY_NAME if name.startswith(_USER_PREFIX))
        reasons |= dict.fromkeys(user_options, f"no simulated user is asked, since {why}; choose other cases")
    return reasons


_USER_PREFIX = "user_"


def _agents_of(agent: AgentDescription) -> Iterator[AgentDescription]:
    yield agent
    for each in agent.sub_agents:
        yield from _agents_of(each)


def _no_instruction(agent: AgentDescription) -> str:
    return (
        f"agent {agent.name!r} ({agent.kind}) takes no instruction; give its function a parameter: "
        "def make_agent(instruction=...), or leave the instruction out"
    )


def _check_media(plan: RunPlan, agent: AgentDescription) -> None:
    """Raise UsageError naming the first case with an image, a sound or a file that the agent cannot take."""
    accepted_kinds = AGENTS.takes(agent)
    all_taken = all(
        item.kind in accepted_kinds for case in some_of(plan.cases) for turn in case.turns for item in turn.media
    )
    for case in () if all_taken else plan.cases:
        for number, turn in enumerate(case.turns, 1):
            misfit = next((item for item in turn.media if item.kind not in accepted_kinds), None)
            if misfit:
                raise UsageError(
                    f"case {case.id!r}, turn {number} has {misfit.title()}, and {plan.config.agent.id!r} "
                    f"({AGENTS.title(agent.kind)}) takes {' and '.join(accepted_kinds) or 'text only'}; leave the case "
                    "out, or let the agent name the kinds it takes (docs/agents.md)",
                    field="cases",
                )


def _check_agent(plan: RunPlan, agent: AgentDescription) -> None:
    config, kind = plan.config, AGENTS.find(agent.kind)
    if kind and kind.is_recording:
        return
    about = f"the agent {config.agent.id!r}"
    if agent.model == "" and not config.model and kind and kind.asks_by_name:
        way = f"in its code, with {BY_NAME['model'].flags[0]} or in the field {BY_NAME['model'].title}"
        raise UsageError(f"{about} names no model; name one {way}", field="model")
    if config.model and not (kind and kind.asks_by_name):
        return
    if config.model or config.model_options.api_key_env:
        lacking = _lacking(missing_keys(config.model or "", _set_variables(agent)), config.model_options, agent)
    else:
        lacking = () if config.model_options.base_url else agent.missing
    _refuse(lacking, about, "model")


def _check_user(plan: RunPlan, agent: AgentDescription) -> None:
    user = plan.config.user
    if not any(case.scenario for case in some_of(plan.cases)):
        return
    own_models = own_user_models(plan.cases)
    for model, case_id in own_models.items():
        if model not in (user.model, *user.models):
            raise UsageError(f"case {case_id!r}: {unlisted_words(model)}", field="cases")
        options = user.options if model == user.model else ModelOptions()
        lacking = missing_keys(model, _set_variables(agent))
        _refuse(_lacking(lacking, options, agent), f"the simulated user ({model}) of case {case_id!r}", "cases")
    if agent.offers_user:
        return
    if user.model:
        lacking = missing_keys(user.model, _set_variables(agent))
        _refuse(_lacking(lacking, user.options, agent), f"the simulated user ({user.model})", "user_model")
    elif agent.variables and not agent.is_demo and USER_VARIABLE not in agent.variables:
        raise UsageError(
            "a case has a scenario and no model plays its user; name one as `model` under [user] in evaldesk.toml, "
            f"with --user-model or in {USER_VARIABLE}, or offer a user_response_fn in the agent's module",
            field="user_model",
        )
    for case in () if isinstance(plan.cases, LargeCases) else plan.cases:
        if case.scenario is not None and "user" not in case.scenario and not plan_of(case.scenario):
            raise UsageError(f"case {case.id!r}: {no_plan_words(case.scenario)}", field="cases")


def own_user_models(cases: Sequence[Case]) -> Mapping[str, str]:
    """The models that cases name for their users, each with the id of the first such case."""
    if isinstance(cases, LargeCases) and not cases.has_key(USER_MODEL):
        return {}
    models: dict[str, str] = {}
    for case in cases:
        if model := own_model(case.scenario):
            models.setdefault(model, case.id)
    return models


def _check_judges(criterion: Criterion, agent: AgentDescription) -> None:
    if not is_metric(criterion.metric) or not metric_info(criterion.metric).has_judge:
        return
    for judge in _named_judges(criterion):
        lacking = missing_keys(judge, _set_variables(agent))
        about = f"the judge {judge!r} of {criterion.metric}"
        _refuse(_lacking(lacking, _judge_access(criterion), agent), about, "metric")


def _lacking(names: tuple[str, ...], options: ModelOptions, agent: AgentDescription) -> tuple[str, ...]:
    """The missing variables: the run's own key variable, else none at an address of its own."""
    if not agent.variables:
        return ()  # not looked up
    if options.api_key_env:
        return () if options.api_key_env in agent.variables else (options.api_key_env,)
    return () if options.base_url else names


def _refuse(names: tuple[str, ...], about: str, field: str) -> None:
    if names:
        words = (
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not set, so the calls of {about} would fail"
        )
        raise UsageError(f"{words}; set it where Evaldesk is started, or in the agent's .env", field=field)


def _set_variables(agent: AgentDescription) -> Mapping[str, str]:
    """The variables that are set where the agent is loaded; their values are not known here."""
    return dict.fromkeys(agent.variables, "1")


ModelFault: TypeAlias = Callable[[AgentRef, str], Awaitable[str]]
"""Gives the reason why every call of a model would fail where an agent is played; empty where it may be called."""


async def check_model_names(fault_of: ModelFault, plan: RunPlan, agent: AgentDescription) -> None:
    """Raise UsageError for a model of the run, its simulated user or a judge that no provider has.

    It is found without a call. A model at an address of its own may have any name, and a run that may answer from a
    recording calls none.
    """
    config, kind = plan.config, AGENTS.find(agent.kind)
    if config.recording.may_replay:
        return
    if config.model and not _is_elsewhere(config.model_options) and not (kind and kind.is_remote):
        fault = await fault_of(config.agent, config.model)
        if fault:
            raise UsageError(f"the model {config.model[:VALUE_LIMIT]!r}: {fault}", field="model")
    if VLLM_ADDRESS in agent.variables or any(not is_metric(each.metric) for each in config.criteria):
        return  # any name is one of that server; code of a function may register a provider
    for model, about, field in _other_models(plan, agent):
        fault = await asyncio.to_thread(model_fault, model)
        if fault:
            raise UsageError(f"{about}: {fault}", field=field)


def _is_elsewhere(options: ModelOptions) -> bool:
    """Whether the model is at an address, or of a provider, that the options name."""
    return bool(options.base_url) or "custom_llm_provider" in options.extra


def _other_models(plan: RunPlan, agent: AgentDescription) -> Iterator[tuple[str, str, str]]:
    """The models of the simulated user and of the judges that will be asked, each in words and with its field."""
    from evaldesk.metrics.judges.options import full_name

    config = plan.config
    user = config.user
    is_user_asked = any(case.scenario for case in some_of(plan.cases)) and not agent.offers_user
    if user.model and is_user_asked and not _is_elsewhere(user.options):
        yield user.model, f"the simulated user ({user.model[:VALUE_LIMIT]})", "user_model"
    for criterion in config.criteria:
        if config.n_asserted.get(criterion.metric) == 0 or not metric_info(criterion.metric).has_judge:
            continue
        if not _is_elsewhere(_judge_access(criterion)):
            for judge in _named_judges(criterion):
                yield full_name(judge), f"the judge {judge[:VALUE_LIMIT]!r} of {criterion.metric}", "metric"


def _judge_access(criterion: Criterion) -> ModelOptions:
    """The address and the key that the judges of a criterion are asked with."""
    judge_options: Any = criterion.options.get(JUDGE_OPTIONS)
    nested: Mapping[str, Any] = judge_options if isinstance(judge_options, Mapping) else {}
    return ModelOptions(base_url=nested.get("base_url"), api_key_env=nested.get("api_key_env"))


def _named_judges(criterion: Criterion) -> tuple[str, ...]:
    """The judges of a criterion, ADK's own where it names none."""
    more: Any = criterion.options.get(MORE_JUDGES)
    return (*(judges_of(criterion) or (ADK_JUDGE,)), *(map(str, more) if isinstance(more, list) else ()))


Unpriced: TypeAlias = Callable[[AgentRef, Sequence[str]], Awaitable[tuple[str, ...]]]
"""Gives those of some models whose price is not known where an agent is played."""


async def check_prices(
    unpriced_of: Unpriced, plan: RunPlan, agent: AgentDescription, option_name: str = "--max-cost"
) -> None:
    """Raise UsageError where a price of the run cannot be known, so that no limit of cost can be kept.

    The prices are those of the agent, of its models, of the simulated user and of the judges. A run that plays a
    recording asks no model. `option_name` is the name of the limit.
    """
    reason = _unknowable(plan, agent)
    if reason:
        raise UsageError(f"{option_name}: {reason}", field="max_cost")
    next_steps = _models_to_price(plan, agent)
    unpriced = await unpriced_of(plan.config.agent, tuple(next_steps)) if next_steps else ()
    if unpriced:
        model = unpriced[0]
        words = f"the price of {model!r} is not known, so its cost has no limit; {next_steps[model]}"
        raise UsageError(f"{option_name}: {words}", field="max_cost")


def _unknowable(plan: RunPlan, agent: AgentDescription) -> str:
    """Why the agent's cost can never be known; empty where it can be, or where its own code may report it."""
    config, kind = plan.config, AGENTS.find(agent.kind)
    is_priced = config.model_options.prices is not None
    if agent.tells_cost or (kind and (kind.is_recording or kind.reports_cost or (is_priced and kind.counts_tokens))):
        return ""
    about = f"{config.agent.id!r} ({AGENTS.title(agent.kind)})"
    if kind is None or not kind.prices_calls:
        say_it = f"; say {_PRICES} [model] in evaldesk.toml" if kind and kind.counts_tokens else ""
        return (
            f"the cost of {about} cannot be known, because it makes its model calls itself and reports no cost"
            f"{say_it}; leave the limit out"
        )
    if is_priced or config.recording.mode == "replay" or config.model or any(_models(agent)):
        return ""
    return f"{about} names no model, so its price is not known; {_say_it('model')}"


def _models_to_price(plan: RunPlan, agent: AgentDescription) -> dict[str, str]:
    """The models whose price is not configured, each with the next step where no other source knows it."""
    config = plan.config
    if config.recording.mode == "replay":
        return {}
    judges = [judge for criterion in config.criteria for judge in judges_of(criterion)]
    next_steps = dict.fromkeys(judges, "name another judge, or leave the limit out")
    if config.user.options.prices is None and any(case.scenario for case in some_of(plan.cases)):
        next_steps[config.user.model] = _say_it("user.options")
    next_steps |= dict.fromkeys(own_user_models(plan.cases), "take it out of the case, or leave the limit out")
    kind = AGENTS.find(agent.kind)
    if config.model_options.prices is None and kind and kind.prices_calls and not kind.is_recording:
        next_steps |= dict.fromkeys([config.model] if config.model else _models(agent), _say_it("model"))
    return {model: words for model, words in reversed(next_steps.items()) if model}


def _models(agent: AgentDescription) -> Iterator[str]:
    """The models of the agent and of its sub-agents."""
    if agent.model:
        yield agent.model
    for below in agent.sub_agents:
        yield from _models(below)


def _say_it(table: str) -> str:
    return f"say {_PRICES} [{table}] in evaldesk.toml"
