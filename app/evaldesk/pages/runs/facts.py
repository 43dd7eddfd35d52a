"""The frozen configuration of a run, line by line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evaldesk.agents import AGENTS
from evaldesk.desk.runs.fresh_trials import is_recording
from evaldesk.engine.executors import HERE, place_of
from evaldesk.gate_options import GATES_BY_NAME, asked_of
from evaldesk.model import Criterion, RunConfig
from evaldesk.model.conclusion import Gates, counted
from evaldesk.model.json_text import json_line
from evaldesk.model.run import NOTHING_SHARED, SharedState, measured_value, option_value
from evaldesk.model.stored import RunSummary, host_of
from evaldesk.run_options import RUN_OPTIONS, RunOption
from evaldesk.secrets import mask_values
from evaldesk.store.runs.run_store import has_evalset, is_imported
from evaldesk.wire import to_json
from evaldesk.wording.places import loop_bound_words
from evaldesk.wording.recorded import plan_sentence
from evaldesk.wording.words import asserted_lines, needs_words, spread_sentence, started_words

ORDERS: Mapping[str, str] = {"EXACT": "exact order", "IN_ORDER": "in order", "ANY_ORDER": "any order"}


IMPORTED = ("n", "pass_threshold", "errors_are_failures")
"""Options with a meaning for a run whose trials came in a file."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One line: its name, its text, and the part of it that is literally code.

    `is_usual` where an option has its default, which only a comparison shows; `is_compared` where two runs are compared
    by the line, and `is_name` where it differs as a whole.
    """

    name: str
    text: str
    href: str = ""
    code: str = ""
    is_usual: bool = False
    is_compared: bool = True
    is_name: bool = False


def run_facts(summary: RunSummary) -> tuple[Fact, ...]:
    """Every setting of the run; options at their default only where a page always shows them."""
    return tuple(fact for fact in all_facts(summary) if (fact.text or fact.code) and not fact.is_usual)


def all_facts(summary: RunSummary) -> tuple[Fact, ...]:
    """The subject of the run, then every option of the table that the run has."""
    config, host = summary.config, host_of(summary.driver)
    model_words = config.model or config.agent_model or ""
    if config.model and config.agent_model:
        model_words = f"{config.model} (instead of {config.agent_model})"
    # Model and note have lines of their own; of an imported run only some options are known.
    options = [each for each in RUN_OPTIONS if each.name not in ("model", "note") and _is_of(config, each)]
    is_elsewhere = bool(config.agent.container or config.agent.commands)
    return (
        Fact("Agent", config.agent.id, "" if is_imported(config) else "/agents", config.agent.target, is_name=True),
        Fact("Agent files", "", "", config.agent_version),
        Fact(
            "Played in",
            played_in(config, summary.shared_state),
            is_compared=is_elsewhere,
        ),
        Fact("Interpreter", config.interpreter.versions, "", config.interpreter.path),
        Fact("Model", "", "", model_words, is_name=True),
        Fact("Answers", recording_sentence(config), is_compared=False),
        Fact("Simulated user", user_sentence(config), is_compared=False),
        Fact("Eval set", config.evalset_name, evalset_href(config), config.evalset_version[:12]),
        Fact("Cases", f"{summary.n_cases:,}"),
        Fact("Plan", _import_words(summary), is_compared=False),
        *(Fact("" if at else "Criteria", _criterion(each)) for at, each in enumerate(config.criteria)),
        Fact("Criteria of", criteria_source(config), is_compared=False),
        Fact("Function files", "", "", config.functions_version),
        *(
            Fact(option.title, option.value_words(value), is_usual=_is_usual(option, value))
            for option in options
            for value in [shown_value(config, option)]
        ),
        Fact("Gates", _gates(config), is_compared=False),
        Fact("Spread of the budget", spread_of(summary), is_compared=False),
        Fact("Asserted", "; ".join(asserted_lines(config, summary.n_cases)), is_compared=False),
        Fact("Started", started_words(summary.started_by, summary.started_on), is_compared=False),
        Fact("Played on", host if summary.started_on and host != summary.started_on else "", is_compared=False),
        Fact("Evaldesk", config.evaldesk_version),
        Fact("Fingerprint", "", "", run_fingerprint(config), is_compared=False),
        Fact("Note", summary.note, is_compared=False),
    )


def criteria_source(config: RunConfig) -> str:
    """Where the criteria come from, and the cases that name their own among them; empty for plain ones of the run."""
    source = "the eval set" if config.is_by_set else "the run" if config.n_narrowed else ""
    n = config.n_narrowed
    names = "names its" if n == 1 else "name their"
    return f"{source}; {counted(n, 'case')} {names} own among them" if n else source


def _import_words(summary: RunSummary) -> str:
    """The plan and end of an imported run; empty for a run that was played here."""
    plan = summary.config.recorded
    words = plan_sentence(plan, summary.n_done) if plan else ""
    return words[:1].upper() + words[1:]


def _gates(config: RunConfig) -> str:
    """The gates that were asked for; empty where every trial must pass, without an exception."""
    if config.gates == Gates():
        return ""
    gates = asked_of(config.gates).items()
    words = "; ".join(f"{GATES_BY_NAME[name].words} {GATES_BY_NAME[name].value_words(value)}" for name, value in gates)
    return words[:1].upper() + words[1:]


def spread_of(summary: RunSummary) -> str:
    """How the budget of the run was spread; empty without one."""
    return spread_sentence(summary.config, summary.n_cases, summary.n_trials, summary.n_least, summary.n_most)


def played_in(config: RunConfig, shared_state: SharedState = NOTHING_SHARED) -> str:
    """The place of the agent and the number of trials that share it; empty where none was played here."""
    agent = config.agent
    if is_imported(config) or config.source_run_id is not None:
        return ""
    observed = loop_bound_words(shared_state, config)
    each = f", {observed}" if observed else "" if config.is_shared else ", one for each trial"
    processes = f"processes{each}" if each else "processes that trials share"
    where = place_of(config.executor) if config.executor.name else HERE
    if agent.container:
        return f"{agent.container.sentence}{each}"
    kind = AGENTS.find(agent.kind) if agent.kind else None
    if kind and kind.target == "address":
        return f"the server at {agent.target}"
    if kind and kind.target == "file":
        return ""
    if kind and kind.target == "command":
        return "a process of the command for each trial, on this machine"
    commands = f"; commands of the benchmark in {agent.commands.sentence}" if agent.commands else ""
    return f"{where}, in {processes}{commands}"


def run_fingerprint(config: RunConfig) -> str:
    """The first 12 hex digits of the SHA-256 of the agent, the eval set, the criteria and the measured options.

    Two runs with one fingerprint differ by chance alone: seed, number of trials, trials at once and note are not in it.
    """
    measured_options = tuple(option for option in RUN_OPTIONS if option.is_measured)
    ref = config.agent  # without its folders: the same agent elsewhere is the same
    agent = (ref.id, ref.target, ref.kind, ref.declared, ref.part, config.agent_version, config.agent_model)
    evalset = (config.evalset_id, config.evalset_version)
    played_on = config.interpreter  # without its path; of runs before there was one nothing is known
    values = {option.name: measured_value(config, option) for option in measured_options}
    parts: list[object] = [agent, evalset, config.criteria, values]
    parts += [ref.container] if ref.container else []
    parts += [["commands", ref.commands]] if ref.commands else []
    parts += [["functions", config.functions_version]] if config.functions_version else []
    parts += [[played_on.version, played_on.packages, played_on.digest]] if played_on.version else []
    return hashlib.sha256(to_json(parts)).hexdigest()[:12]


def shown_value(config: RunConfig, option: RunOption) -> Any:
    """The value of an option as it may be shown: a key in the body of the model's calls is masked."""
    value = option_value(config, option)
    return mask_values(value) if value and option.kind == "object" else value


def shown_values(config: RunConfig, options: Iterable[RunOption] = RUN_OPTIONS) -> dict[str, Any]:
    """The values of the options by name, as they may be shown; an imported run has only some."""
    return {option.name: shown_value(config, option) for option in options if _is_of(config, option)}


def options_line(config: RunConfig) -> str:
    """`n=5, concurrency=4, temperature=0.2`: the options that are always shown, and the changed ones."""
    values = shown_values(config)
    options = [option for option in RUN_OPTIONS if option.name in values and option.name != "note"]
    options = [option for option in options if not _is_usual(option, values[option.name])]
    return ", ".join(f"{option.name}={_option_text(values[option.name])}" for option in options)


def _is_of(config: RunConfig, option: RunOption) -> bool:
    return not is_imported(config) or option.name in IMPORTED


def _is_usual(option: RunOption, value: object) -> bool:
    return value == option.default and not option.is_always_shown


def _option_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else json_line(value) if isinstance(value, Mapping) else str(value)


def away_sentence(config: RunConfig) -> str:
    """Why no case of the run is edited or run again here, where its eval set is not served; empty without a set."""
    if not has_evalset(config):
        return ""
    where = f" It was read from {config.evalset_path}." if config.evalset_path else ""
    return f"This desk does not serve the eval set {config.evalset_name}: no case is edited or run again.{where}"


def evalset_href(config: RunConfig) -> str:
    """Where the eval set is; nowhere when the cases came in the file of an imported run."""
    return f"/evalsets/{config.evalset_id}" if has_evalset(config) else ""


def _criterion(criterion: Criterion) -> str:
    own = {"function": criterion.metric, "root": criterion.options.get("root")}  # said by the name, and by the agent
    changed_options = {
        name: value for name, value in criterion.options.items() if name not in own or value != own[name]
    }
    options = ", ".join(_option(name, value) for name, value in changed_options.items())
    ending = f" ({options})" if options else ""
    if criterion.threshold is None:
        return f"{criterion.metric}, no threshold{ending}"
    return f"{criterion.metric} is {needs_words(criterion.metric, criterion.threshold)}{ending}"


def _option(name: str, value: object) -> str:
    if isinstance(value, str) and value in ORDERS:
        return ORDERS[value]
    if name == "ignore_args" and value is True:
        return "any arguments"
    return f"{name} {value if isinstance(value, str) else json_line(value)}"


_NO_EVIDENCE = (
    "A replayed trial repeats the recorded one with the same index: it is not an independent trial, and together with "
    "the run that was recorded it counts the same answers twice."
)


def recording_sentence(config: RunConfig) -> str:
    """Where the answers of the run come from; empty when all of them are its own and none is kept."""
    if is_recording(config):
        return f"The agent answers from a recorded transcript. {_NO_EVIDENCE}"
    what = "models and tools" if config.recording.tools else "models"
    if config.recording.mode == "replay":
        tools = ", and so do those of the tools whose calls Evaldesk sees" if config.recording.tools else ""
        return f"All answers of models come from the recording{tools}; no model was asked. {_NO_EVIDENCE}"
    if config.recording.mode == "auto":
        return f"Answers of {what} come from the recording where it has them. {_NO_EVIDENCE}"
    return f"The answers of {what} are recorded." if config.recording.mode == "record" else ""


def user_sentence(config: RunConfig) -> str:
    """The simulated user of cases with a scenario; empty where none was named."""
    user = config.user
    if not user.model:
        return ""
    cap = f"at most {user.max_turns} messages" if user.max_turns is not None else "any number of messages"
    return f"{user.model} plays the user of a scenario, {cap}"


def config_json(config: RunConfig) -> bytes:
    """The frozen configuration as JSON."""
    return to_json(config)
