"""The frozen configuration of a run, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaldesk.desk.run_names import evalset_name
from evaldesk.desk.run_recording import recording_sentence, user_sentence
from evaldesk.desk.run_view import needs_words
from evaldesk.desk.trial_turns import json_line
from evaldesk.model import Criterion, RunConfig
from evaldesk.store import RunSummary
from evaldesk.store.recorded_runs import has_evalset, is_imported

ORDERS: Mapping[str, str] = {"EXACT": "exact order", "IN_ORDER": "in order", "ANY_ORDER": "any order"}


@dataclass(frozen=True, slots=True)
class Fact:
    """One line: what it is, what it says, and what is literally code in it."""

    name: str
    text: str
    href: str = ""
    code: str = ""


def run_facts(summary: RunSummary) -> tuple[Fact, ...]:
    """Everything that decided what the run did."""
    config = summary.config
    facts = [
        Fact("Agent", config.agent.id, "" if is_imported(config) else "/agents", config.agent.target),
        Fact("Agent files", "", "", config.agent_version),
        Fact("Model", "", "", _model(config)),
        Fact("Answers", recording_sentence(config)),
        Fact("Simulated user", user_sentence(config)),
        Fact("Eval set", evalset_name(config), _evalset_href(config), config.evalset_version[:12]),
        Fact("Trials", _trials(summary)),
        *_criteria(config),
        Fact("A case passes", f"when at least {100 * config.pass_threshold:g} % of its scored trials pass"),
        Fact("Errors", "count as failures" if config.errors_are_failures else "stay out of the pass rate"),
        Fact("Evaldesk", config.evaldesk_version),
        Fact("Note", summary.note),
    ]
    return tuple(fact for fact in facts if fact.text or fact.code)


def _evalset_href(config: RunConfig) -> str:
    """Where the eval set is; nowhere when the cases came in the file of an imported run."""
    return f"/evalsets/{config.evalset_id}" if has_evalset(config) else ""


def _model(config: RunConfig) -> str:
    if config.model:
        return f"{config.model} (instead of {config.agent_model})" if config.agent_model else config.model
    return config.agent_model or ""


def _trials(summary: RunSummary) -> str:
    config = summary.config
    cases = f"{summary.n_cases:,} case{'s' if summary.n_cases != 1 else ''}"
    if is_imported(config):
        return f"{config.n} of each of {cases}"
    limit = f"{config.limits.trial_timeout_s:g} s each at most"
    return f"{config.n} of each of {cases}, {config.concurrency} at once, {limit}, seed {config.seed}"


def _criteria(config: RunConfig) -> list[Fact]:
    names = ["Passes when"] + [""] * len(config.criteria)
    return [Fact(name, _criterion(each)) for name, each in zip(names, config.criteria, strict=False)]


def _criterion(criterion: Criterion) -> str:
    own = {"function": criterion.metric, "root": criterion.options.get("root")}  # said by the name, and by the agent
    told = {name: value for name, value in criterion.options.items() if name not in own or value != own[name]}
    options = ", ".join(_option(name, value) for name, value in told.items())
    ending = f" ({options})" if options else ""
    if criterion.threshold is None:
        return f"{criterion.metric} informs only{ending}"
    return f"{criterion.metric} is {needs_words(criterion.metric, criterion.threshold)}{ending}"


def _option(name: str, value: object) -> str:
    if isinstance(value, str) and value in ORDERS:
        return ORDERS[value]
    if name == "ignore_args" and value is True:
        return "any arguments"
    return f"{name} {value if isinstance(value, str) else json_line(value)}"
