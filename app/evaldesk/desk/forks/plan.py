"""The plan of a fork: its run, the pinned turns, and the facts that a person is told before anything is spent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from evaldesk import __version__
from evaldesk.desk.forks.points import check_call, check_point, tells_state
from evaldesk.desk.runs.driver import trial_seed
from evaldesk.desk.runs.plan import RunPlan, foreseen_plan
from evaldesk.engine.driver.code_files import agent_version
from evaldesk.errors import UsageError
from evaldesk.matching.case_version import case_version
from evaldesk.metrics.metric import is_function, is_metric
from evaldesk.model import AgentRef, Case, Gates, ModelOptions, RunConfig, TrialResult, TurnRecord, default_criteria
from evaldesk.model.fork import (
    MOST_DEPTH,
    MOST_FORK_TEXT,
    Fork,
    ForkPart,
    ForkPoint,
    check_edits,
    edited_case,
    edited_prefix,
    edited_state,
    first_message,
    is_storable,
    point_seed,
    turn_from_call,
)
from evaldesk.model.options import Recording
from evaldesk.model.pinned import n_pinned, pinning
from evaldesk.model.stored import RunSummary
from evaldesk.model.transcript import known_sum
from evaldesk.run_options import BY_NAME, EVEN
from evaldesk.store import Store
from evaldesk.store.runs.run_store import is_imported
from evaldesk.transcripts.plumbing import is_plumbing
from evaldesk.wire import converted, to_json

MOST_EARLIER = 20
"""Trials of the case by which the cost of a fork is estimated."""
Restored: TypeAlias = Literal["pinned turns", "recorded prefix"]


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """A fork that may be played: its run, and the facts to know before.

    `cost_each` is the mean cost in US dollars of the turns from the point on, over `n_earlier` trials of the case; None
    where it is not known. `real_tools` are the tools of these turns that would run for real, `doubled_tools` are
    answered by doubles. `earlier` are the runs of the same fork. `notes` are sentences.
    """

    fork: Fork
    run: RunPlan
    parent: RunSummary
    restored: Restored
    n_turns_left: int
    cost_each: float | None = None
    n_earlier: int = 0
    real_tools: tuple[str, ...] = ()
    doubled_tools: tuple[str, ...] = ()
    earlier: tuple[RunSummary, ...] = ()
    is_agent_changed: bool = False
    notes: tuple[str, ...] = ()

    @property
    def part(self) -> ForkPart:
        """The place of the run."""
        part = self.run.config.fork
        if part is None:
            raise AssertionError("the run of a fork names its parent")
        return part

    @property
    def cost(self) -> float | None:
        """The estimated cost of all its trials, in US dollars."""
        return None if self.cost_each is None else self.cost_each * self.fork.n


def plan_fork(store: Store, fork: Fork, parent: RunSummary, own: RunConfig, agent: AgentRef) -> ForkPlan:
    """The plan of a fork of a trial of `parent`, whose parts that may be copied are `own`, played by `agent`.

    Raises UsageError naming the field at fault, with the nearest point where the trial cannot be forked there;
    NotFoundError for a trial that was not played.
    """
    point = fork.point
    _check_request(fork, parent)
    result = store.runs.trial(point.run_id, point.case_index, point.trial_index, is_whole=True)
    case = store.runs.case(point.run_id, point.case_index)
    turns = result.transcript.turns
    check_point(point, result, agent, tells_state=tells_state(parent.config.agent, turns))
    if point.call is not None:
        check_call(point, result, agent, own.recording)
    check_edits(fork.edits, point.turn, point.call)
    fork = _with_then(fork, case)
    earlier_turns, played_turn = turns[: point.turn - 1], turns[point.turn - 1]
    state = edited_state(played_turn.state_before, fork.edits)
    prefix = edited_prefix(earlier_turns, state, fork.edits)
    new_case = edited_case(case, fork, state, [turn.query for turn in prefix])
    if n_pinned(new_case) > len(prefix):  # a pinned turn is played by this fork
        new_case = pinning(new_case, range(len(prefix)))
    if new_case.scenario is None and len(new_case.turns) < point.turn:
        raise UsageError("after these edits there is no turn left to play; insert one, or say a message", field="edits")
    runs_tools = not is_imported(parent.config) if fork.runs_tools is None else fork.runs_tools
    later_turns = (turn_from_call(played_turn, point.call), *turns[point.turn :])
    recorded_tools = tools_of(later_turns, case, point.turn)
    if not runs_tools:
        new_case = with_recorded_doubles(new_case, turns[point.turn - 1 :])
    doubled = doubled_tools(new_case)
    version = agent_version(agent)
    config = _config(fork, parent, own, agent, new_case, version)
    has_other_model = any(edit.kind in ("agent", "model", "instruction") for edit in fork.edits)
    part = ForkPart(
        point,
        fork.edits,
        fork.then,
        len(prefix),
        _fingerprint(prefix, new_case, fork, config),
        depth=(parent.config.fork.depth if parent.config.fork else 0) + 1,
        first=fork.first,
        agent_version=parent.config.agent_version,
        message=first_message(new_case, fork) or (played_turn.query if point.call and new_case.scenario else ""),
    )
    parent_seed = trial_seed(parent.config.seed, case.id, point.trial_index + _first_of(parent.config))
    config = replace(config, fork=part, seed=point_seed(parent_seed, point))
    run = replace(foreseen_plan(config, (new_case,)), prefix=prefix)
    cost_each, n_earlier = _cost_of_rest(store, parent, point)
    n_left = max(len(new_case.turns) - len(prefix), 1) if new_case.scenario is None else len(turns) - len(prefix)
    return ForkPlan(
        fork,
        run,
        parent,
        "recorded prefix" if part.n_prefix_calls else "pinned turns",
        n_left,
        cost_each,
        n_earlier,
        tuple(tool for tool in recorded_tools if tool not in doubled) if runs_tools else (),
        tuple(sorted(doubled)),
        tuple(store.forks.same(part.fingerprint)),
        is_agent_changed=bool(
            not has_other_model and parent.config.agent_version and version != parent.config.agent_version
        ),
        notes=tuple(_notes(parent, config, played_turn, prefix)),
    )


def _check_request(fork: Fork, parent: RunSummary) -> None:
    """Raise UsageError for a number of plays, a depth or a kind of point that cannot be."""
    if fork.n < 1:
        raise UsageError(f"n = {fork.n}: a fork is played at least once", field="n")
    BY_NAME["n"].check(fork.n, "n")
    depth = (parent.config.fork.depth if parent.config.fork else 0) + 1
    if depth > MOST_DEPTH:
        raise UsageError(f"this would be a fork of a fork {depth} deep; at most {MOST_DEPTH}", field="turn")
    if fork.then == "message" and not fork.message.strip():
        raise UsageError("say the message that is played after the point", field="message")
    if fork.then == "message" and fork.point.call:
        raise UsageError(
            f"another message begins another turn; the nearest point for it is before turn {fork.point.turn}",
            field="message",
        )
    if not is_storable(fork.message):
        raise UsageError("the message holds half a surrogate pair", field="message")
    if len(fork.message) > MOST_FORK_TEXT:
        raise UsageError(
            f"the message has {len(fork.message):,} characters; at most {MOST_FORK_TEXT:,} fit", field="message"
        )


def _first_of(config: RunConfig) -> int:
    return config.fork.first if config.fork else 0


def _with_then(fork: Fork, case: Case) -> Fork:
    """The fork with the user of its case where it names none."""
    if case.scenario is not None and fork.then == "script":
        return replace(fork, then="user")
    if case.scenario is None and fork.then == "user":
        raise UsageError("the case has a script and no simulated user; leave `then` out", field="then")
    return fork


def _config(fork: Fork, parent: RunSummary, own: RunConfig, agent: AgentRef, case: Case, version: str) -> RunConfig:
    """The configuration of the run: the parent's, without its gates, its budget and its command."""
    model, options = own.model, own.model_options
    for edit in fork.edits:
        if edit.kind == "model":
            model, options = edit.name or model, options | _model_options(edit.value)
        elif edit.kind == "instruction" and edit.name:
            options = replace(options, instructions={**options.instructions, edit.name: edit.text})
        elif edit.kind == "instruction":
            options = replace(options, instruction=edit.text)
    is_computed = all(is_metric(each.metric) or is_function(each) for each in own.criteria)
    criteria = own.criteria if is_computed else default_criteria([case])
    return RunConfig(
        agent=agent,
        evalset_id=own.evalset_id,
        evalset_path=own.evalset_path,
        evalset_version=own.evalset_version,
        n=fork.n,
        allocate=EVEN,
        criteria=criteria,
        pass_threshold=own.pass_threshold,
        concurrency=own.concurrency,
        limits=own.limits,
        model=model,
        model_options=options,
        user=own.user,
        recording=Recording(folder=own.recording.folder, tools=own.recording.tools),
        agent_version=version,
        agent_model=own.agent_model,
        errors_are_failures=own.errors_are_failures,
        evaldesk_version=__version__,
        strict=own.strict,
        compat=own.compat,
        gates=Gates(pass_threshold=own.pass_threshold).as_tool(own.compat),
        environment=own.environment,
        isolation=own.isolation,
        prompts=own.prompts,
        executor=own.executor,
        shows_case=own.shows_case,
        interpreter=own.interpreter,
        set_version=own.set_version,
    )


def _model_options(value: object) -> ModelOptions:
    if not isinstance(value, Mapping):
        return ModelOptions()
    option_names = {"temperature", "top_p", "max_tokens", "reasoning_effort"}
    other = sorted(set(value) - option_names)
    if other:
        raise UsageError(
            f"model: unknown option {other[0]!r}; there are {', '.join(sorted(option_names))}", field="model"
        )
    try:
        return converted(dict(value), ModelOptions)
    except ValueError as error:
        raise UsageError(f"model: {error}", field="model") from error


def _fingerprint(prefix: Sequence[TurnRecord], case: Case, fork: Fork, config: RunConfig) -> str:
    """A digest of the content of the pinned turns, the case from there on, the edits and the agent."""
    ref = config.agent
    parts: tuple[object, ...] = (
        [hashlib.blake2b(to_json(turn), digest_size=16).hexdigest() for turn in prefix],
        case_version(case),
        dict(case.initial_state) if not prefix else {},
        fork.edits,
        fork.then,
        fork.message,
        (ref.target, ref.kind, ref.declared, ref.part, config.agent_version),
        (config.model or config.agent_model, config.model_options),
        *((("call", fork.point.call),) if fork.point.call else ()),
    )
    return hashlib.blake2b(to_json(parts), digest_size=16).hexdigest()


def tools_of(turns: Sequence[TurnRecord], case: Case, turn: int) -> tuple[str, ...]:
    """The tools that the trial called from this turn on, or that the case expects there; without hand-overs."""
    names = [call.name for each in turns for call in each.tool_calls]
    names += [call.name for each in case.turns[turn - 1 :] for call in each.expected.tool_calls or ()]
    return tuple(name for name in dict.fromkeys(names) if not is_plumbing(name))


def doubled_tools(case: Case) -> frozenset[str]:
    """The tools of a case that doubles answer."""
    plan = case.extra.get("tool_doubles")
    tools = plan.get("tools") if isinstance(plan, Mapping) else None
    return frozenset(map(str, tools)) if isinstance(tools, Mapping) else frozenset()


def with_recorded_doubles(case: Case, turns: Sequence[TurnRecord]) -> Case:
    """The case with the recorded results of these turns as doubles; tools without one are refused."""
    recorded: dict[str, list[dict[str, Any]]] = {}
    for turn in turns:
        for event in turn.own_events:
            if event.kind == "tool_result" and event.call and not is_plumbing(event.call.name):
                answer = {"error": str(event.result)} if event.is_error else {"result": event.result}
                recorded.setdefault(event.call.name, []).append({"args": dict(event.call.args), **answer})
    plan = case.extra.get("tool_doubles")
    own: dict[str, Any] = dict(plan) if isinstance(plan, Mapping) else {}
    tools = own.get("tools")
    own["tools"] = {**recorded, **(tools if isinstance(tools, Mapping) else {})}
    return replace(case, extra={**case.extra, "tool_doubles": {**own, "unmatched": "refuse"}})


def _cost_of_rest(store: Store, parent: RunSummary, point: ForkPoint) -> tuple[float | None, int]:
    """The mean cost of the turns from the point on over trials of the case, and the number of these trials."""
    case_index, turn = point.case_index, point.turn
    (strip,) = store.runs.strips(parent.id, [case_index])
    keys = [(case_index, at) for at in range(min(len(strip), MOST_EARLIER))]
    trials = [each for each in store.runs.trials(parent.id, keys).values() if len(each.transcript.turns) >= turn]
    costs = [_cost_from(each, point) for each in trials]
    known_costs = [cost for cost in costs if cost is not None]
    return (sum(known_costs) / len(known_costs) if known_costs else None), len(known_costs)


def _cost_from(trial: TrialResult, point: ForkPoint) -> float | None:
    first_turn, *later_turns = trial.transcript.turns[point.turn - 1 :]
    usages = [usage for each in (turn_from_call(first_turn, point.call), *later_turns) for usage in each.usages]
    return known_sum(usage.cost for usage in usages) if usages else None


def _notes(parent: RunSummary, config: RunConfig, played_turn: TurnRecord, prefix: Sequence[TurnRecord]) -> list[str]:
    notes = []
    if "state" in played_turn.unseen:
        notes.append("The session state of this agent is not seen; it starts from the recorded part alone.")
    if prefix and "memory" in played_turn.unseen:
        notes.append(
            "The pinned turns reach this agent only by its parameters `session` and `state`: memory of its own begins "
            "empty."
        )
    if config.criteria != parent.config.criteria:
        notes.append("The scores of the imported trial cannot be computed here; the default criteria judge the fork.")
    if any(turn.open_requests for turn in prefix):
        notes.append("A pinned turn waits for a person; the next message is played without a decision.")
    return notes
