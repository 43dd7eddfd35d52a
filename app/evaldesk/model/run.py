"""A run, its trials, the two values that cross to a worker and back, and the places where trials are played."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from evaldesk.errors import UsageError
from evaldesk.model.comparison import ROUNDING
from evaldesk.model.conclusion import Criterion, Gates, Score, Verdict
from evaldesk.model.decisions import Decision, scripts_turns
from evaldesk.model.evalset import (
    EVALSET_ENDING,
    EXPECTED_OUTCOMES,
    QUARANTINE,
    TAG_PREFIX,
    Case,
    JsonObject,
    some_of,
)
from evaldesk.model.fork import ForkPart, Prefix
from evaldesk.model.media import Media
from evaldesk.model.options import Limits, ModelOptions, Recording, UserConfig
from evaldesk.model.prompts import Prompts
from evaldesk.model.transcript import ErrorRecord, Transcript, TurnRecord, Usage, known_sum
from evaldesk.model.visibility import Visibility
from evaldesk.run_options import AUTO, BY_NAME, EVEN, KEEP, OWN, RUN_OPTIONS, SHARED, SHARING, RunOption

TrialStatus: TypeAlias = Literal["finished", "errored", "timed_out", "cancelled"]
RunStatus: TypeAlias = Literal["pending", "running", "stopping", "stopped", "finished", "failed"]
LIVE: frozenset[RunStatus] = frozenset({"pending", "running", "stopping"})
"""The statuses of a run that goes on."""
MAX_TRIALS = 1_000_000
"""Trials of one run, played or imported."""
RecordedStatus: TypeAlias = Literal["finished", "stopped", "failed", "unfinished", "unknown"]
_EARLY: Mapping[RecordedStatus, str] = {
    "stopped": "the run was stopped before its end",
    "failed": "the run broke off",
    "unfinished": "the run had not ended when the file was written",
}

DEFAULT_CRITERIA: tuple[Criterion, ...] = (
    Criterion("tool_trajectory_avg_score", 1.0),
    Criterion("response_match_score", 0.8),
)
FINAL_STATE = Criterion("final_state_match", 1.0)
DECISIONS_ASKED = Criterion("decisions_asked", 1.0)
OUTCOME = Criterion("outcome", 1.0)


def default_criteria(cases: Sequence[Case], *, strict: bool = False) -> tuple[Criterion, ...]:
    """ADK's two criteria, and criteria for the case's further assertions: final state, decisions and outcomes of turns.

    With `strict` ADK's two only.
    """
    if strict:
        return DEFAULT_CRITERIA
    first_cases = some_of(cases)
    own = (FINAL_STATE,) if any(case.final_state is not None for case in first_cases) else ()
    decision_criteria = (DECISIONS_ASKED,) if any(scripts_turns(case) for case in first_cases) else ()
    outcome_criteria = (OUTCOME,) if any(case.extra.get(EXPECTED_OUTCOMES) for case in first_cases) else ()
    return (*DEFAULT_CRITERIA, *own, *decision_criteria, *outcome_criteria)


Network: TypeAlias = Literal["none", "model-only", "open"]
IMAGE_VARIABLE = "EVALDESK_IMAGE"
"""Names its image to a player in a container."""
EACH_IMAGE = "instance"
"""In the place of an image for commands: the one that the benchmark names for each instance."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container that agents are played in. `memory` is in MiB, `pids` bounds processes and threads.

    `network` is the default one of docker or podman, the models of the providers alone, or none at all.
    `variables` are the names of the
    environment variables that the agent gets; without them it gets none of ours.
    """

    image: str = ""
    network: Network = "none"
    cpus: float = 1.0
    memory: int = 2048
    pids: int = 512
    variables: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """`a container of shop:7`."""
        return f"a container of {'the image of each instance' if self.image == EACH_IMAGE else self.image}"

    @property
    def sentence(self) -> str:
        """`a container of shop:7: no network, 1 CPU, 2,048 MiB, 512 processes`."""
        network = {"none": "no network", "model-only": "a network to models alone", "open": "network"}[self.network]
        cpus = "1 CPU" if self.cpus == 1 else f"{self.cpus:g} CPUs"
        return f"{self.words}: {network}, {cpus}, {self.memory:,} MiB, {self.pids:,} processes"


_IMAGE = re.compile(r"[\w][\w./:@-]{0,254}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)
LEAST_MEMORY, LEAST_PIDS, MAX_CPUS = 64, 16, 1024


def checked_container(container: Container) -> Container:
    """The container, or the settings of other names. Raises UsageError naming the key at fault."""
    if container.image and not _IMAGE.fullmatch(container.image):
        raise UsageError(f"image = {container.image!r} is not the name of an image", field="image")
    if not 0 < container.cpus <= MAX_CPUS:
        raise UsageError(f"cpus = {container.cpus:g}: a container has more than 0 and at most {MAX_CPUS:,} CPUs")
    if container.memory < LEAST_MEMORY:
        raise UsageError(f"memory = {container.memory}: a container has at least {LEAST_MEMORY} MiB")
    if container.pids < LEAST_PIDS:
        raise UsageError(f"pids = {container.pids}: a container has at least {LEAST_PIDS} processes and threads")
    for name in container.variables:
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"variables: {name!r} is not the name of an environment variable")
    return container


@dataclass(frozen=True, slots=True)
class AgentRef:
    """How a worker finds an agent: `target` is `module:attr`, imported with `root` first on `sys.path`.

    `folder` holds the agent's own files (watched for edits). `kind` names an adapter, or is empty to let the adapters
    look at the object. `declared` is the agent's table of `evaldesk.toml` as JSON text; an agent that is made of its
    table alone has no target. `part` names an agent inside the tree of the target, by its own name or its
    name in the module; empty is the agent itself. `python` is the interpreter that it is played on; empty is
    Evaldesk's own. `container` is where it is played; None is a process of this machine. `commands` is the container of
    the commands that a benchmark's script runs, where the script itself is played on this machine. `isolation` is that
    of its trials where a run asks for none; empty is that of the workspace. `make_deps` and `read_state` name functions
    that make an object of the session state for the agent and read it back, as `module:function`; empty are those
    beside it.
    """

    id: str
    target: str
    root: str = ""
    folder: str = ""
    kind: str = ""
    declared: str = ""
    part: str = ""
    python: str = ""
    container: Container | None = None
    commands: Container | None = None
    isolation: str = ""
    make_deps: str = ""
    read_state: str = ""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that plays an agent, as its player tells it: `path` is empty for Evaldesk's own.

    `packages` are the installed ones that agents are made of, with their versions. `digest` is over all that are
    installed; it is empty on Evaldesk's own, and all is empty where nothing is imported.
    """

    path: str = ""
    version: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""

    @property
    def versions(self) -> str:
        """`Python 3.12.1, google-adk 1.14.0`; empty where it is not known."""
        package_versions = (f"{name} {version}" for name, version in self.packages.items())
        return ", ".join((f"Python {self.version}", *package_versions)) if self.version else ""


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as the agent shows it to its model; `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentDescription:
    """An agent's description of itself; `initial_state` is its proposed initial state of a session.

    `model` is empty for an agent that cannot answer before one is named, None where its models are not seen. `missing`
    names the environment variables that its turns will lack, `variables` those that are set where it is loaded.
    `is_direct`: its model is at an endpoint of its own, which is called without LiteLLM. `tells_cost`: its own code
    tells the cost of every model call, `tells_calls`: every tool call. `offers_user`: its module has functions that
    play the user of a scenario.
    `takes` are the kinds of media that it says it takes, `unseen` the parts of its work that cannot be seen.
    `takes_instruction`: its instruction can be replaced for a run. `makes_instruction`: its own is made by code when a
    turn begins, and `instruction` only tells so.
    `unused_options` are options of a run that its model calls do not follow, beside those of its kind.
    """

    name: str
    kind: str
    description: str = ""
    instruction: str = ""
    model: str | None = None
    tools: tuple[ToolDescription, ...] = ()
    is_demo: bool = False
    initial_state: JsonObject = field(default_factory=dict)
    sub_agents: tuple[AgentDescription, ...] = ()
    missing: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    is_direct: bool = False
    tells_cost: bool = False
    offers_user: bool = False
    interpreter: Interpreter = field(default_factory=Interpreter)
    takes: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    takes_instruction: bool = False
    makes_instruction: bool = False
    tells_calls: bool = False
    unused_options: tuple[str, ...] = ()

    @property
    def tools_of_all(self) -> tuple[str, ...]:
        """The names of its tools and of those of the agents below it, each once."""
        below = (name for agent in self.sub_agents for name in agent.tools_of_all)
        return tuple(dict.fromkeys([*(tool.name for tool in self.tools), *below]))


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """Everything that one attempt at one case needs. `attempt` counts from 1.

    With `shows_case` the player gets the whole case, and not only the user's side of it. `losses` say why the attempts
    before this one were lost, through no fault of the trial. With `needs_cost` the run has a limit of cost: a trial of
    the user's own code that tells no cost, and in which no call is noticed, does not cost nothing. The turns of a
    `prefix` are pinned: its session begins after them.
    """

    run_id: int
    case_index: int
    trial_index: int
    case: Case
    agent: AgentRef
    criteria: tuple[Criterion, ...] = DEFAULT_CRITERIA
    limits: Limits = field(default_factory=Limits)
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    user: UserConfig = field(default_factory=UserConfig)
    recording: Recording = field(default_factory=Recording)
    seed: int = 0
    attempt: int = 1
    strict: bool = False
    shows_case: bool = False
    losses: tuple[str, ...] = ()
    keeps_prompts: bool = True
    needs_cost: bool = False
    prefix: Prefix | None = None

    @property
    def n_prefix_turns(self) -> int:
        """The turns before those that are played."""
        return len(self.prefix.turns) if self.prefix else 0


@dataclass(frozen=True, slots=True)
class TurnSpec:
    """Everything a worker needs to play one turn of a chat session; the worker may be a fresh one each time.

    With `resumed`, a turn that waited for a person, that turn goes on by the `decisions` about what it waits for. One
    that `observes` looks afterwards whether the agent holds an object of one event loop.
    """

    session_id: str
    agent: AgentRef
    message: str
    state: JsonObject = field(default_factory=dict)
    turns: tuple[TurnRecord, ...] = ()
    app_name: str = ""
    user_id: str = "user"
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    limits: Limits = field(default_factory=Limits)
    seed: int | None = None
    timeout_s: float = 300.0
    resumed: TurnRecord | None = None
    decisions: tuple[Decision, ...] = ()
    media: tuple[Media, ...] = ()
    keeps_prompts: bool = False
    observes: bool = False


@dataclass(frozen=True, slots=True)
class EarlierResult:
    """A result of a trial that counts no longer, because its file has a later one of the same trial."""

    verdict: Verdict
    reason: str = ""
    scores: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """The plan of a run that another tool played, and how that run ended, as far as its file tells.

    `n_planned` counts the planned trials, those whose case is not in the file among them; None where the file does not
    tell. Each case of the file was planned at least `n_each` times. `reason` is why the run ended early, in the
    words of its tool.
    """

    n_planned: int | None = None
    n_each: int = 1
    status: RecordedStatus = "unknown"
    reason: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the run ended before its end, or went on when the file was written."""
        return self.status in _EARLY

    @property
    def ending(self) -> str:
        """`the run broke off: no memory left`; empty where it did not end early, or its file does not tell."""
        return ": ".join(filter(None, (_EARLY[self.status], self.reason))) if self.status in _EARLY else ""


MAX_GLOBALS, MAX_GLOBAL_NAME, MAX_LOOP_WORDS = 20, 120, 300


@dataclass(frozen=True, slots=True)
class SharedState:
    """What trials of one process share, as it was observed.

    `loop_bound` says which object of the agent works in one event loop only; such an agent plays one trial a process.
    `changed_globals` are module globals, as `module.name`, that trials changed for the trials after them.
    """

    loop_bound: str = ""
    changed_globals: tuple[str, ...] = ()

    def bounded(self) -> SharedState:
        """The same with texts and numbers of names that fit a page."""
        names = tuple(name[:MAX_GLOBAL_NAME] for name in self.changed_globals[:MAX_GLOBALS])
        return SharedState(self.loop_bound[:MAX_LOOP_WORDS], names)

    def joined(self, other: SharedState) -> SharedState:
        """What both observed."""
        names = dict.fromkeys((*self.changed_globals, *other.changed_globals))
        return SharedState(self.loop_bound or other.loop_bound, tuple(names)).bounded()


NOTHING_SHARED = SharedState()


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of one trial. `logs` is the agent's printed output, bounded; `cost` None means unknown.

    `place` names the host that played it, where that was not the driver's own machine. `losses` say why attempts before
    it gave no result: their worker or their host was lost, and the trial was played again. `changes` tells what the
    trial changed of the process that played it. `prompts` come from the player and are stored apart; a stored result
    has none. `start_ms` is how long its player took to import the agent, which is not in `duration_ms`. `earlier` are
    the results of the same trial that came before this one in an imported file, oldest first. `shared_state` is what
    it shared with other trials of its process. The first `n_prefix_turns` turns of the transcript are pinned: they were
    not played, and are in no usage and no time.
    """

    run_id: int
    case_index: int
    trial_index: int
    status: TrialStatus
    verdict: Verdict
    stop_reason: str = ""
    transcript: Transcript = field(default_factory=Transcript)
    scores: tuple[Score, ...] = ()
    usages: tuple[Usage, ...] = ()
    duration_ms: float = 0.0
    error: ErrorRecord | None = None
    logs: str = ""
    attempt: int = 1
    place: str = ""
    losses: tuple[str, ...] = ()
    changes: str = ""
    prompts: Prompts | None = None
    earlier: tuple[EarlierResult, ...] = ()
    start_ms: float = 0.0
    shared_state: SharedState = NOTHING_SHARED
    n_prefix_turns: int = 0

    def without_content(self, error: ErrorRecord) -> TrialResult:
        """The trial errored for that reason, without transcript, scores, time and usages."""
        return replace(
            self,
            status="errored",
            verdict="errored",
            stop_reason="error",
            transcript=Transcript(),
            scores=(),
            usages=(),
            duration_ms=0.0,
            start_ms=0.0,
            error=error,
            logs="",
            prompts=None,
            n_prefix_turns=0,
        )

    @property
    def tokens(self) -> int:
        """Tokens in and out of every model call."""
        return sum(usage.tokens_in + usage.tokens_out for usage in self.usages)

    @property
    def is_least(self) -> bool:
        """Whether its sums are lower bounds: the tokens of a call are not known, or nobody tells if one was made."""
        is_told = any(usage.role == "agent" for usage in self.usages) or self.transcript.captures
        is_played = self.transcript.turns or self.status == "finished"
        return bool(is_played and not is_told) or any(usage.is_least for usage in self.usages)

    @property
    def visibility(self) -> Visibility:
        """How far its agent can be seen."""
        visibility = self.transcript.visibility
        is_part = self.is_least and visibility.tokens == "whole"
        return replace(visibility, tokens="part") if is_part else visibility

    @property
    def is_replayed(self) -> bool:
        """Whether a recording answered a call of the agent, so that it is no new evidence."""
        return any(usage.is_replayed for usage in self.usages if usage.role == "agent")

    @property
    def tells_cost(self) -> bool:
        """Whether the cost of all its model calls is known; also where it made none, and that is known."""
        return not self.is_least and all(usage.cost is not None for usage in self.usages)

    @property
    def cost(self) -> float | None:
        """US dollars over all model calls; None as soon as one price is unknown, and when no model was called."""
        return known_sum(usage.cost for usage in self.usages)


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """Where a run is played: `name` is that of a table `[executors.NAME]`, with its `kind` and its other keys.

    An empty name is this machine.
    """

    name: str = ""
    kind: str = "local"
    options: JsonObject = field(default_factory=dict)


FileOption: TypeAlias = Literal["output", "osmosis", "junit", "summary"]


@dataclass(frozen=True, slots=True)
class CommandPart:
    """The place of a run among the `n_runs` of one command, after those with the numbers of `earlier`.

    With `is_baseline` it is the run of a second model, which is no part of the command's conclusion.
    """

    n_runs: int
    earlier: tuple[int, ...] = ()
    is_baseline: bool = False


@dataclass(frozen=True, slots=True)
class ExperimentPart:
    """The place of a run among the variants of an experiment: its number, counted from 0, and its name."""

    experiment_id: int
    variant_index: int
    variant: str


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A run's configuration, frozen when it starts.

    `n` is the number of trials of each case; with a `budget`, of trials or US dollars for all of them, the fewest of
    each, and `allocate` says where the others go: `allocated_from` are the earlier runs that it took to know, newest
    first. `pass_threshold` is the share of scored trials that must pass for a case to count as passed.
    `agent_version` is the content hash of the agent's files, empty without a folder, `evalset_version` that of the
    set's file at the start, `functions_version` that of the user's functions
    among the criteria. `source_run_id` names the run whose stored trials are scored again; None where trials are
    played. With `strict` a metric without anything to judge in a case is unscored there, else it is not applicable;
    `n_asserted` is then the number of cases that it applies to, by metric, for those metrics that do not apply to all,
    and `n_partly_asserted` the number of cases to which at least one metric does not apply; `n_partly_planned` are the
    trials of these where a budget gives some cases more than others.
    `compat` names the tool by whose rules trials are judged. `gates` are the conditions of the conclusion.
    `environment` is the name by which a person chose the interpreter or the container of `agent`. `isolation` is
    `shared` where a player has several trials, at once and one after the other; with `auto` it has, until the agent
    is seen to hold something that is bound to one event loop. Else each trial has a process or a container of its own.
    `prompts` says whether it is kept how models were asked. `shows_case` gives the agent's process the whole case,
    and not only the user's side of it. `recorded` is the plan of an imported run. `files` are those that its command
    was asked to write, by their option; `command` is set where that has several runs, `experiment` where the run is a
    variant of one. `rows` are those of the file that were asked for, such as "3,7,10-20", None for all. A run with a
    `name` continues an unfinished one of that name, unless a `fresh` one was asked for; with `retry_failed` its errored
    trials are played again. `shard` is the part of the cases that it plays, such as "2/5", and `shard_sizes` are the
    numbers of cases of all of them. `set_version` is that of the whole eval set, and `expect_version` how it was to
    begin. `only` are the tags of its cases, `without` the tags of cases in no
    gate; `left_out` are the ids of these cases when it started, and `left_out_by` the persons who set their tags at
    the desk, each empty where another program did; none where that is not known. A `fork` continues a trial of another
    run.
    The criteria are those of the eval set where the run `is_by_set`, and of a file where it
    `is_by_file`; `n_narrowed` cases name their own among them.
    """

    agent: AgentRef
    evalset_id: str
    evalset_path: str = ""
    evalset_version: str = ""
    n: int = 1
    budget: str | None = None
    allocate: str = EVEN
    criteria: tuple[Criterion, ...] = DEFAULT_CRITERIA
    pass_threshold: float = 1.0
    concurrency: int = 4
    limits: Limits = field(default_factory=Limits)
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    user: UserConfig = field(default_factory=UserConfig)
    recording: Recording = field(default_factory=Recording)
    agent_version: str = ""
    functions_version: str = ""
    agent_model: str | None = None
    seed: int = 0
    note: str = ""
    errors_are_failures: bool = False
    evaldesk_version: str = ""
    source_run_id: int | None = None
    strict: bool = False
    compat: str = OWN
    n_asserted: Mapping[str, int] = field(default_factory=dict)
    n_partly_asserted: int = 0
    n_partly_planned: int = 0
    allocated_from: tuple[int, ...] = ()
    gates: Gates = field(default_factory=Gates)
    environment: str = ""
    isolation: str = AUTO
    prompts: str = KEEP
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    shows_case: bool = True
    interpreter: Interpreter = field(default_factory=Interpreter)
    recorded: RecordedPlan | None = None
    files: tuple[tuple[FileOption, str], ...] = ()
    command: CommandPart | None = None
    experiment: ExperimentPart | None = None
    rows: str | None = None
    name: str | None = None
    fresh: bool = False
    retry_failed: bool = False
    shard: str | None = None
    shard_sizes: tuple[int, ...] = ()
    set_version: str = ""
    expect_version: str | None = None
    only: str = ""
    without: str = f"{TAG_PREFIX}{QUARANTINE}"
    left_out: tuple[str, ...] = ()
    left_out_by: tuple[str, ...] = ()
    fork: ForkPart | None = None
    is_by_set: bool = False
    is_by_file: bool = False
    n_narrowed: int = 0

    @property
    def evalset_name(self) -> str:
        """The name of the eval set's file without its ending; the id of the set where no file is known."""
        name = PurePath(self.evalset_path).name
        return EVALSET_ENDING.sub("", name) or name or self.evalset_id

    @property
    def tag_authors(self) -> dict[str, str]:
        """The authors of the tags by which cases are in no gate, by the ids of these cases; empty where not known."""
        return dict(zip(self.left_out, self.left_out_by, strict=False))

    @property
    def is_shared(self) -> bool:
        """Whether trials share players, as far as their agent can."""
        return self.isolation in SHARING

    @property
    def is_strict(self) -> bool:
        """Whether a metric is unscored, not "not applicable", where a case gives it nothing to judge."""
        return self.strict or self.compat != OWN


def option_value(owner: object, option: RunOption) -> Any:
    """The value of an option of the table in a run configuration, or in an object with the same fields."""
    for name in option.path.split("."):
        owner = getattr(owner, name)
    return owner


def option_values(owner: object, options: tuple[RunOption, ...] = RUN_OPTIONS) -> dict[str, Any]:
    """The values of options by their names."""
    return {option.name: option_value(owner, option) for option in options}


def measured_value(config: RunConfig, option: RunOption) -> Any:
    """The value of an option as runs are compared by it: isolation `auto` measures the same as `shared`."""
    value = option_value(config, option)
    return SHARED if option.name == "isolation" and value == AUTO else value


def with_options(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """The configuration with other values for the options named.

    Raises UsageError for values that exclude each other.
    """
    changes: dict[str, Any] = {}
    for name, value in values.items():
        *groups, field_name = BY_NAME[name].path.split(".")
        place = changes
        for group in groups:
            place = place.setdefault(group, {})
        place[field_name] = value
    new_config: RunConfig = _replace_fields(config, changes)
    return new_config


def _replace_fields(value: Any, changes: Mapping[str, Any]) -> Any:
    """`value` with its fields changed; a mapping for a field that is a dataclass changes fields of that one."""
    fields_changed = {}
    for name, new_value in changes.items():
        old_value = getattr(value, name)
        fields_changed[name] = (
            _replace_fields(old_value, new_value)
            if is_dataclass(old_value) and isinstance(new_value, Mapping)
            else new_value
        )
    return replace(value, **fields_changed)


PlaceKind: TypeAlias = Literal["process", "container", "host"]
PlaceState: TypeAlias = Literal["starting", "up", "lost"]


@dataclass(frozen=True, slots=True)
class Place:
    """A machine, or containers on it, with `n_workers` players that are up and `n_under_way` trials.

    `note` is the reason of its loss, or of a worker's, and the differences from here.
    """

    name: str
    kind: PlaceKind
    n_workers: int = 0
    n_under_way: int = 0
    state: PlaceState = "up"
    note: str = ""


def is_more(cost: float, max_cost: float | None) -> bool:
    """Whether a cost is above the limit by more than rounding."""
    return max_cost is not None and cost > max_cost + ROUNDING


def is_news(reported_places: Sequence[Place], places: Sequence[Place]) -> bool:
    """Whether a place came, changed its state, or has another note; its load is no news."""
    return [(each.name, each.state, each.note) for each in reported_places] != [
        (each.name, each.state, each.note) for each in places
    ]
