"""The request of a run, checked and frozen into its configuration."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path, PurePath
from random import Random
from typing import Any, Literal, TypeAlias, Unpack

from evaldesk import __version__
from evaldesk.agents import AGENTS
from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.criteria.criteria import criteria_of_set, has_criteria, ready_criteria
from evaldesk.desk.evalsets.cases import CaseIds, with_ids
from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.evalsets.versions import SHORTEST
from evaldesk.desk.other_tools import as_tool_calls
from evaldesk.desk.runs.rows import chosen_rows
from evaldesk.desk.runs.shards import place_of, shard_of
from evaldesk.engine.driver.code_files import agent_version, functions_version
from evaldesk.engine.executors import check_place
from evaldesk.errors import EmptyShardError, NotFoundError, UsageError
from evaldesk.gate_options import asked_of, check_pooled, title_of
from evaldesk.matching.case_version import version_of_set
from evaldesk.metrics import (
    applies_by_part,
    build_metric,
    check_criteria,
    criteria_of_case,
    missing_reasons,
    unset_option,
)
from evaldesk.metrics.metric import is_efficiency, is_function, metric_info
from evaldesk.metrics.scoring import narrowing_words
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Case,
    Criterion,
    EvalSet,
    Gates,
    Interpreter,
    RunConfig,
    TurnRecord,
    default_criteria,
)
from evaldesk.model.comparison import Baseline
from evaldesk.model.evalset import (
    CRITERIA,
    MOST_NAMED,
    NEEDS_REVIEW,
    REVIEW_REASON,
    GroupIds,
    LargeCases,
    ids_for_review,
    ids_with_tags,
    repeats_words,
    tags_of_filter,
    trials_of_cases,
)
from evaldesk.model.options import Recording, UserConfig
from evaldesk.model.pinned import PINNED, pins_turns
from evaldesk.model.run import MAX_TRIALS, ExecutorConfig, option_values, with_options
from evaldesk.model.set_versions import SHORT
from evaldesk.model.tagged_cases import TagAuthor
from evaldesk.model.visibility import Visibility
from evaldesk.reading.pinned_turns import pinned_turns
from evaldesk.run_options import (
    ADK_POOLED,
    BY_NAME,
    EVEN,
    OF_ONE_RUN,
    OWN,
    RUN_OPTIONS,
    Asked,
    checked_options,
    has_door,
    offered,
)
from evaldesk.settings import Settings
from evaldesk.store.evalsets.names import identity_of
from evaldesk.wording.words import named_words

AuthorsOfTag: TypeAlias = Callable[[str, str, Collection[str]], Mapping[str, TagAuthor]]
"""The newest change of a tag of an eval set at the desk, by the ids of some cases."""
MOST_LEFT_OUT = 1_000
MOST_NEAREST = 2_000
NOTHING_APPLIES = "No criterion applies: the case asserts nothing that they judge."


@dataclass(frozen=True, slots=True, init=False)
class RunOptions:
    """The request of a run: some options of the table by their names, the cases and the criteria.

    `case_ids` None means all cases, `criteria` None the default ones for them; they may change with a file that the run
    follows where it `is_by_file`. `user` is the simulated user that a
    criteria file describes. An option that was not asked for is as the settings of the workspace have it; with `like`,
    the configuration of the earlier run that is run again, as that run had it. Raises UsageError for a value that
    cannot be, TypeError for an unknown name.
    """

    case_ids: tuple[str, ...] | None
    criteria: tuple[Criterion, ...] | None
    user: UserConfig | None
    like: RunConfig | None
    gates: Gates
    is_by_file: bool
    overrides: Mapping[str, Any]

    def __init__(
        self,
        *,
        case_ids: tuple[str, ...] | None = None,
        criteria: tuple[Criterion, ...] | None = None,
        user: UserConfig | None = None,
        like: RunConfig | None = None,
        gates: Gates | None = None,
        is_by_file: bool = False,
        **overrides: Unpack[Asked],
    ) -> None:
        own = {
            "case_ids": case_ids,
            "criteria": criteria,
            "user": user,
            "like": like,
            "gates": gates or Gates(),
            "is_by_file": is_by_file,
            "overrides": checked_options(overrides),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def but(
        self,
        *,
        case_ids: tuple[str, ...] | Literal["same"] | None = "same",
        criteria: tuple[Criterion, ...] | None = None,
        user: UserConfig | None = None,
        gates: Gates | None = None,
        is_by_file: bool | None = None,
        **overrides: Unpack[Asked],
    ) -> RunOptions:
        """The same with some things asked otherwise; an option of None is not asked for any more."""
        return RunOptions(
            case_ids=self.case_ids if case_ids == "same" else case_ids,
            criteria=self.criteria if criteria is None else criteria,
            user=user or self.user,
            like=self.like,
            gates=gates or self.gates,
            is_by_file=self.is_by_file if is_by_file is None else is_by_file,
            **{**self.overrides, **overrides},
        )

    def criteria_for(self, cases: Sequence[Case]) -> tuple[Criterion, ...]:
        """The requested criteria, or the default ones for the cases; judged as Osmosis, functions are called so."""
        tool = self.value("compat")
        if self.criteria is None:
            return default_criteria(cases, strict=self.value("strict") or tool != OWN)
        return self.criteria if tool == OWN else as_tool_calls(tool, self.criteria)

    def value(self, name: str) -> Any:
        """The value under this name, or the default of the table."""
        return self.overrides.get(name, BY_NAME[name].default)


@dataclass(frozen=True, slots=True)
class RunSubject:
    """The subject of a run: the agent now with its description, if any; the eval set as its file is now."""

    agent: AgentRef
    evalset: EvalSet
    evalset_id: str
    evalset_path: str = ""
    evalset_version: str = ""
    agent_version: str = ""
    agent_model: str | None = None
    description: AgentDescription | None = None


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Cases that one metric will not judge, for one reason; an empty `metric` stands for all criteria together."""

    metric: str
    reason: str
    case_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Foresight:
    """The known facts of the scores before anything is spent.

    Trials of the cases in `unscored` cannot pass. To those in `not_applicable` a metric does not apply, and their
    other criteria decide.
    """

    unscored: tuple[Unjudged, ...] = ()
    not_applicable: tuple[Unjudged, ...] = ()

    @property
    def partly_asserted(self) -> frozenset[str]:
        """The ids of the cases to which at least one metric does not apply."""
        return frozenset(case_id for each in self.not_applicable for case_id in each.case_ids)

    @property
    def n_partly_asserted(self) -> int:
        """The number of cases to which at least one metric does not apply."""
        id_groups = [each.case_ids for each in self.not_applicable if isinstance(each.case_ids, GroupIds)]
        if not id_groups:
            return len(self.partly_asserted)
        return len(GroupIds(id_groups[0].cases, frozenset().union(*(ids.groups for ids in id_groups))))

    def n_asserted(self, n_cases: int) -> dict[str, int]:
        """The number of cases to which a metric applies, for each metric that does not apply to all."""
        counts: dict[str, int] = {}
        for each in self.not_applicable:
            counts[each.metric] = counts.get(each.metric, n_cases) - len(each.case_ids)
        return counts


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run that may be started: its frozen configuration, the exact cases, and the run that it is compared with.

    `trials_of_cases` are the trials of each case by a budget or by the cases themselves; empty where each has those of
    the configuration.
    `is_of_part` says whether the file has further cases. `visibility` is that of the agent. `evalset` is the whole set
    as its file is now; None for cases without a file, and for an earlier version of one. `prefix` are the pinned turns
    of a fork.
    """

    config: RunConfig
    cases: Sequence[Case]
    foresight: Foresight = field(default_factory=Foresight)
    baseline: Baseline | None = None
    trials_of_cases: tuple[int, ...] = ()
    is_of_part: bool = False
    visibility: Visibility = field(default_factory=Visibility)
    evalset: EvalSet | None = None
    prefix: tuple[TurnRecord, ...] = ()
    unused_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_each(self) -> Sequence[int]:
        """The trials of each case. The one place that says so; the stored run has the length of each strip from it."""
        return self.trials_of_cases or (self.config.n,) * len(self.cases)

    def with_trials(self, n_each: tuple[int, ...]) -> RunPlan:
        """The plan with these trials of each case. Raises UsageError for too many."""
        if sum(n_each) > MAX_TRIALS:
            raise UsageError(f"{sum(n_each):,} trials are more than the {MAX_TRIALS:,} of one run", field="n")
        partly = self.foresight.partly_asserted
        n_partly = sum(n for n, case in zip(n_each, self.cases, strict=True) if case.id in partly) if partly else 0
        return replace(self, config=replace(self.config, n_partly_planned=n_partly), trials_of_cases=n_each)

    @property
    def n_least(self) -> int:
        """The trials that every case has."""
        return min(self.n_each)

    @property
    def n_most(self) -> int:
        """The most trials of a case."""
        return max(self.n_each)

    @property
    def n_trials(self) -> int:
        """The trials of all cases."""
        return sum(self.n_each)


def plan_run(
    subject: RunSubject,
    options: RunOptions,
    *,
    models: Sequence[str],
    seed: int,
    recordings: str = "",
    executors: Mapping[str, ExecutorConfig] | None = None,
) -> RunPlan:
    """The run that `options` ask for. Raises UsageError naming the field when something cannot be.

    `models` are the permitted models, `seed` is the default one, `recordings` is a folder.
    `executors` are the permitted executors.
    """
    rows = options.value("rows")
    if rows is not None:
        if options.case_ids is not None:
            raise UsageError("--rows and names of cases: choose the cases by one of them", field="rows")
        options = options.but(case_ids=chosen_rows(subject.evalset.cases, rows))
    _check_pooled(options)
    cases = chosen_cases(subject.evalset, options.case_ids, file=PurePath(subject.evalset_path).name)
    cases = _cases_with_tags(cases, options)
    options = options.but(criteria=options.criteria_for(cases))  # shards have the criteria of all cases
    cases, shard_sizes = _cases_of_shard(cases, options)
    check_reviewed(cases)
    check_deciding(options.criteria_for(cases))
    version = checked_version(subject.evalset, options.value("expect_version"))
    n = options.value("n")
    if len(cases) * n > MAX_TRIALS:
        raise UsageError(f"{len(cases) * n:,} trials are more than the {MAX_TRIALS:,} of one run", field="n")
    config = RunConfig(
        agent=subject.agent,
        evalset_id=subject.evalset_id,
        evalset_path=subject.evalset_path,
        evalset_version=subject.evalset_version,
        recording=Recording(folder=recordings),
        agent_version=subject.agent_version,
        agent_model=subject.agent_model,
        seed=seed,
        evaldesk_version=__version__,
        gates=replace(options.gates, pass_threshold=options.value("pass_threshold")).as_tool(options.value("compat")),
        shows_case=_shows_case(subject.description),
        shard_sizes=shard_sizes,
        set_version=version,
        left_out=left_out_ids(cases, options.value("without")),
        is_by_file=options.is_by_file,
        interpreter=subject.description.interpreter if subject.description else Interpreter(),
    )
    model = _allowed_model(options.overrides.get("model"), subject.agent_model, models)
    own = {"model": model, "note": options.value("note").strip()}
    config = with_executor(with_options(apply_options(config, options, cases), own), executors or {})
    if config.budget is None and config.allocate != EVEN:
        raise UsageError(
            f"allocate = {config.allocate!r} spreads a budget, and there is none; say budget = 200, the trials of all "
            "cases together",
            field="budget",
        )
    check_place(config)
    check_calls(config, config.agent.kind)
    check_pinned(cases, config.agent)
    visibility = AGENTS.visibility(subject.agent, subject.description)
    plan = foreseen_plan(config, cases, visibility)
    if config.budget is None and (n_each := _own_trials(cases, n)):
        plan = plan.with_trials(n_each)
    return replace(
        plan,
        is_of_part=len(cases) < len(subject.evalset.cases),
        evalset=subject.evalset if subject.evalset_version else None,
    )


def _check_pooled(options: RunOptions) -> None:
    """Raise UsageError for what needs a verdict of each trial, beside the pooled ones of cases."""
    if options.value("compat") != ADK_POOLED:
        return
    if not options.gates.is_pooled:  # those are of a door, which names them by its own words
        check_pooled(asked_of(options.gates), title_of)
    for name, value in (("shard", options.value("shard")), ("pass_threshold", options.value("pass_threshold") < 1)):
        if value:
            raise UsageError(
                f"{BY_NAME[name].title}: {ADK_POOLED} judges all trials of a case together, at thresholds of its "
                "metrics; leave one of them out",
                field=name,
            )


def _own_trials(cases: Sequence[Case], n: int) -> tuple[int, ...]:
    try:
        return trials_of_cases(cases, n)
    except ValueError as error:
        raise UsageError(str(error), field="cases") from error


def checked_version(evalset: EvalSet, expected: str | None) -> str:
    """The version of an eval set. Raises UsageError where another one is expected."""
    version = version_of_set(evalset)
    if expected and (len(expected) < SHORTEST or not version.startswith(expected.casefold())):
        found = f"{evalset.name or evalset.id} has version {version[:SHORT]}, and {expected!r} is expected"
        raise UsageError(
            f"{found}; `evaldesk evalset diff` shows the difference, and --expect-version {version[:SHORT]} takes it",
            field="expect_version",
        )
    return version


def _cases_with_tags(cases: Sequence[Case], options: RunOptions) -> Sequence[Case]:
    """The cases with one of the tags that were asked for; all without one. Raises UsageError where none has it."""
    tags = _tags_of(options.value("only"), "only")
    if not tags:
        return cases
    ids = ids_with_tags(cases, tags)
    if not ids:
        raise UsageError(f"only = {options.value('only')!r}: no case has such a tag", field="only")
    return with_ids(cases, set(ids))


# The gates never see these cases, whatever reads the run: decision 512.
def left_out_ids(cases: Sequence[Case], without: str) -> tuple[str, ...]:
    """The ids of the cases that no gate asks for. Raises UsageError for too many."""
    ids = ids_with_tags(cases, _tags_of(without, "without"))
    if len(ids) > MOST_LEFT_OUT:
        raise UsageError(
            f"without = {without!r}: {len(ids):,} cases are in no gate, and a run keeps at most {MOST_LEFT_OUT:,} of "
            "them; choose the other cases with only = tag:NAME",
            field="without",
        )
    return tuple(ids)


def with_tag_authors(authors_of: AuthorsOfTag, config: RunConfig) -> RunConfig:
    """The configuration with the persons who set the tags at the desk by which its cases are in no gate."""
    newest: dict[str, TagAuthor] = {}
    for tag in _tags_of(config.without, "without") if config.left_out else ():
        for case_id, author in authors_of(config.evalset_id, tag, config.left_out).items():
            earlier = newest.get(case_id)
            if author.is_added and (earlier is None or earlier.changed_at < author.changed_at):
                newest[case_id] = author
    names = (newest[case_id].name if case_id in newest else "" for case_id in config.left_out)
    return replace(config, left_out_by=tuple(names))


def _tags_of(text: str, name: str) -> tuple[str, ...]:
    try:
        return tags_of_filter(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}", field=name) from error


def _cases_of_shard(cases: Sequence[Case], options: RunOptions) -> tuple[Sequence[Case], tuple[int, ...]]:
    """The cases of the shard that was asked for, and the numbers of cases of all shards; all cases without one.

    Raises UsageError beside an option that needs all cases, EmptyShardError where the shard has no case.
    """
    shard = options.value("shard")
    if shard is None:
        return cases, ()
    number, n = shard_of(shard)
    gates = options.gates
    for value, name in (
        (options.value("budget"), "budget"),
        (gates.stop_when_decided, "stop_when_decided"),
    ):
        if value and n > 1:
            words = f"shard = {shard} and {name}: {name} needs the trials of all shards; leave one of them out"
            raise UsageError(words, field=name)
    if gates.compares and gates.regression_rule == "confirm" and gates.is_by_history and n > 1:
        words = "the history of all cases together chooses the fresh trials; say likely, which plays none, or confirm"
        words += f" with a number of trials that must pass, such as 3/{gates.confirm[1]}"
        raise UsageError(f"shard = {shard} and regression_rule = 'confirm': {words}", field="regression_rule")
    ids: list[list[str]] = [[] for _ in range(n)]
    for case in cases:
        ids[place_of(case.id, n)].append(case.id)
    sizes = tuple(map(len, ids))
    if not sizes[number - 1]:
        raise EmptyShardError(f"shard {shard} has no case of {sum(sizes):,}; nothing is played", field="shard")
    return with_ids(cases, set(ids[number - 1])), sizes


def with_executor(config: RunConfig, executors: Mapping[str, ExecutorConfig]) -> RunConfig:
    """The configuration with its executor as evaldesk.toml has it now. Raises UsageError for a name that it has not."""
    name = config.executor.name
    if not name:
        return replace(config, executor=ExecutorConfig())
    if name not in executors:
        raise UsageError(str(NotFoundError.among("executor", name, executors)), field="on")
    return replace(config, executor=executors[name])


def _shows_case(description: AgentDescription | None) -> bool:
    """Whether agents of the kind are given the whole case, as their own tool does it."""
    kind = AGENTS.find(description.kind) if description else None
    return kind is not None and kind.reads_case


def foreseen_plan(config: RunConfig, cases: Sequence[Case], visibility: Visibility | None = None) -> RunPlan:
    """The plan of a run whose configuration is checked, with the known facts of its scores."""
    visibility = visibility or Visibility()
    foresight = foresee(cases, config.criteria, strict=config.is_strict, visibility=visibility)
    n_asserted, n_partly = foresight.n_asserted(len(cases)), foresight.n_partly_asserted
    version = functions_version(config.criteria)
    n_narrowed = 0 if config.is_strict else len(narrowed_cases(cases, config.criteria))
    config_with_counts = replace(
        config, n_asserted=n_asserted, n_partly_asserted=n_partly, n_narrowed=n_narrowed, functions_version=version
    )
    return RunPlan(config_with_counts, cases, foresight, visibility=visibility)


def check_calls(config: RunConfig, kind_name: str) -> None:
    """Raise UsageError for faults and replays of an agent whose model calls are not seen, and for both at once.

    The same for a live run of an agent that has none, or with a recording.
    """
    if config.model_options.live:
        _check_live(config, kind_name)
    has_faults, mode, kind = bool(config.model_options.faults), config.recording.mode, AGENTS.find(kind_name)
    if has_faults and config.recording.may_replay:
        raise UsageError(
            f"faults are injected into calls, and recording = {mode!r} answers without; leave one out", field="faults"
        )
    if kind is None or kind.can_replay(config.agent):
        return
    way_out = f"; say {kind.shows_models} = true in its table of evaldesk.toml" if kind.shows_models else ""
    if mode == "replay":
        raise UsageError(
            f"recording = 'replay' asks no model, but those of {config.agent.id!r} ({kind.title}) are asked where no "
            f"recording sees it{way_out}, or leave recording off",
            field="recording",
        )
    if has_faults:
        raise UsageError(
            f"faults are injected into model calls; those of {config.agent.id!r} ({kind.title}) are not seen{way_out}",
            field="faults",
        )


def check_pinned(cases: Sequence[Case], agent: AgentRef) -> None:
    """Raise UsageError for pinned turns that cannot be read, and for an agent that cannot be given them."""
    if isinstance(cases, LargeCases) and not cases.has_key(PINNED):
        return
    kind = AGENTS.find(agent.kind)
    for case in cases:
        if not pins_turns(case):
            continue
        try:
            pinned_turns(case)
        except UsageError as error:
            raise UsageError(f"case {case.id!r}: {error}", field="cases") from error
        if kind is not None and not kind.takes_history:
            raise UsageError(
                f"case {case.id!r} begins with pinned turns, and agents of {kind.title} keep their history themselves; "
                "leave the case out, or choose another agent",
                field="cases",
            )


def _check_live(config: RunConfig, kind_name: str) -> None:
    kind = AGENTS.find(kind_name)
    if kind is not None and not kind.has_live:
        raise UsageError(f"live: {config.agent.id!r} ({kind.title}) has no live sessions; leave it out", field="live")
    if config.recording.mode != "off":
        raise UsageError(
            f"live: the calls of a live model are a stream, which recording = {config.recording.mode!r} neither keeps "
            "nor replays; leave one out",
            field="recording",
        )
    if config.model_options.faults:
        raise UsageError(
            "faults are injected into single calls, and a live model has none; leave one out", field="faults"
        )


def apply_options(config: RunConfig, options: RunOptions, cases: Sequence[Case]) -> RunConfig:
    """The configuration with all `options`. Raises UsageError for options that exclude each other."""
    base = replace(config, criteria=options.criteria_for(cases), user=options.user or UserConfig())
    return with_options(base, options.overrides)


def chosen_cases(evalset: EvalSet, case_ids: tuple[str, ...] | None, *, file: str = "") -> Sequence[Case]:
    """The cases named by `case_ids`, in the order of the `file`; all for None. Raises UsageError."""
    if not evalset.cases:
        raise UsageError(f"{file or 'this eval set'} has no cases yet; add one from a session first", field="evalset")
    check_ids(evalset, file=file)
    if case_ids is None:
        return evalset.cases
    wanted_ids = set(case_ids)
    known_ids = CaseIds(evalset.cases)
    unknown_ids = [case_id for case_id in wanted_ids if case_id not in known_ids]
    if unknown_ids:
        name = min(unknown_ids)
        nearest = get_close_matches(name, (case.id for case in islice(evalset.cases, MOST_NEAREST)), n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise UsageError(f"this eval set has no case {name!r}{hint}", field="cases")
    if not wanted_ids:
        raise UsageError("select at least one case", field="cases")
    return with_ids(evalset.cases, wanted_ids)


def check_ids(evalset: EvalSet, *, file: str = "") -> None:
    """Raise UsageError where several cases of the eval set in `file` have the same id."""
    repeats = repeats_words(evalset.cases)
    if repeats:
        raise UsageError(
            f"{file or evalset.id}: several cases have the same id: {repeats}; give each case its own", field="evalset"
        )


def check_reviewed(cases: Sequence[Case]) -> None:
    """Raise UsageError for cases that an import could not read whole and that nobody looked at since."""
    if unreviewed_ids := ids_for_review(cases):
        first = next((case for case in cases if case.id == unreviewed_ids[0]), None)
        reason = first.extra.get(REVIEW_REASON) if first else ""
        why = f" ({reason})" if isinstance(reason, str) and reason else ""
        names = named_words(unreviewed_ids, MOST_NAMED)
        raise UsageError(
            f"not whole after their import, so not run: {names}{why}; complete each case and take away its tag "
            f"{NEEDS_REVIEW}, in the editor or in the file",
            field="cases",
        )


def check_deciding(criteria: Sequence[Criterion]) -> None:
    """Raise UsageError for criteria that cannot be built, or without a deciding one."""
    check_criteria(criteria)
    if not any(criterion.threshold is not None for criterion in criteria):
        raise UsageError("choose at least one metric that decides; without one every trial is unscored", field="metric")


def check_measuring(criteria: Sequence[Criterion]) -> None:
    """As `check_deciding`; criteria of efficiency alone are allowed: they measure trials that were judged before."""
    if criteria and all(each.threshold is None and is_efficiency(each) for each in criteria):
        check_criteria(criteria)
    else:
        check_deciding(criteria)


def foresee(
    cases: Sequence[Case],
    criteria: Sequence[Criterion],
    *,
    strict: bool = False,
    visibility: Visibility | None = None,
) -> Foresight:
    """Which cases each metric will not judge, and why. Raises UsageError for a criterion that cannot be.

    With the `visibility` of the agent, what cannot be seen of it will not be judged, either.
    """
    if isinstance(cases, LargeCases):
        if all(map(applies_by_part, criteria)):
            parts_foresight = foresee(cases.parts, criteria, strict=strict, visibility=visibility)
            return _foresee_large(cases, parts_foresight)
        cases = tuple(cases)
    unscored: list[Unjudged] = []
    not_applicable: list[Unjudged] = []
    n_applying = dict.fromkeys((case.id for case in cases), 0)
    narrowed = {} if strict else narrowed_cases(cases, criteria)
    for criterion in criteria:
        option = unset_option(criterion)
        if option is not None:
            unscored.append(Unjudged(criterion.metric, f"Its option `{option}` is empty.", tuple(n_applying)))
            continue
        reasons = missing_reasons(criterion, cases)
        others = {case_id: words for case_id, (metrics, words) in narrowed.items() if criterion.metric not in metrics}
        reasons = {**reasons, **others} if others else reasons
        not_applicable += _by_reason(criterion.metric, reasons)
        if reason := _unseen_reason(criterion, visibility):
            applying_ids = tuple(case_id for case_id in n_applying if case_id not in reasons)
            unscored += [Unjudged(criterion.metric, reason, applying_ids)] if applying_ids else []
        for case_id in n_applying:
            n_applying[case_id] += criterion.threshold is not None and case_id not in reasons
    if strict:
        return Foresight((*unscored, *not_applicable))
    unjudged_ids = tuple(case_id for case_id, n in n_applying.items() if not n)
    if unjudged_ids and not unscored and any(criterion.threshold is not None for criterion in criteria):
        unscored.append(Unjudged("", NOTHING_APPLIES, unjudged_ids))
    return Foresight(tuple(unscored), tuple(not_applicable))


def checked_criteria_of_case(case: Case, criteria: Sequence[Criterion]) -> tuple[Criterion, ...]:
    """The criteria that judge the case. Raises UsageError, with the case, for a threshold that cannot be."""
    deciding = criteria_of_case(case, criteria)
    for each in deciding:
        if each not in criteria and not is_function(each):
            try:
                build_metric(each)
            except UsageError as error:
                raise UsageError(f"case {case.id!r}, criteria: {error}", field="cases") from error
    return deciding


def narrowed_cases(cases: Sequence[Case], criteria: Sequence[Criterion]) -> dict[str, tuple[frozenset[str], str]]:
    """The ids of the cases that other criteria judge than those of the run: their metrics, and why no others do.

    Raises UsageError, with the case, for a threshold that is out of the range of its metric.
    """
    if isinstance(cases, LargeCases) and not cases.has_key(CRITERIA):
        return {}
    own = [(case, checked_criteria_of_case(case, criteria)) for case in cases if CRITERIA in case.extra]
    return {
        case.id: (frozenset(each.metric for each in deciding), narrowing_words(deciding))
        for case, deciding in own
        if deciding != tuple(criteria)
    }


def _unseen_reason(criterion: Criterion, visibility: Visibility | None) -> str:
    if visibility is None or is_function(criterion):
        return ""
    return visibility.unseen_reason(metric_info(criterion.metric).parts)


def _foresee_large(cases: LargeCases, parts_foresight: Foresight) -> Foresight:
    """The foresight of all cases, from that of the parts that they assert."""
    unscored, not_applicable = (
        tuple(replace(each, case_ids=cases.of_parts(each.case_ids)) for each in of_parts)
        for of_parts in (parts_foresight.unscored, parts_foresight.not_applicable)
    )
    return Foresight(unscored, not_applicable)


def _by_reason(metric: str, reasons: Mapping[str, str]) -> list[Unjudged]:
    ids_by_reason: dict[str, list[str]] = {}
    for case_id, reason in reasons.items():
        ids_by_reason.setdefault(reason, []).append(case_id)
    return [Unjudged(metric, reason, tuple(ids)) for reason, ids in ids_by_reason.items()]


def _allowed_model(model: str | None, own: str | None, models: Sequence[str]) -> str | None:
    """None for the agent's own model. A name outside the list could send keys anywhere, so it is refused."""
    if not model or model == own:
        return None
    if model not in models:
        names = ", ".join(models) or "none; add some to evaldesk.toml"
        raise UsageError(f"{model!r} is not among the allowed models: {names}", field="model")
    return model


def with_defaults(options: RunOptions, settings: Settings, root: str, isolation: str = "") -> RunOptions:
    """The options, where they leave something open as the settings have it; functions are imported from `root`.

    `isolation` is that of the agent, which wins over the settings.

    Raises UsageError for a criterion that cannot be.
    """
    defaults = _of_run(options.like) if options.like else _of_settings(settings, options.user)
    if isolation and not options.like:
        defaults["isolation"] = isolation
    values = {**{name: value for name, value in defaults.items() if value is not None}, **options.overrides}
    for name in ("extra", "user_extra"):
        values[name] = {**(defaults.get(name) or {}), **(options.overrides.get(name) or {})}
    ready = None if options.criteria is None else ready_criteria(options.criteria, settings, root)
    user = (
        options.like.user
        if options.like and not options.user
        else settings.with_user_models(options.user or settings.user)
    )
    return options.but(criteria=ready, user=user, **values)


def is_judged_by_set(options: RunOptions, evalset: EvalSet) -> bool:
    """Whether the file of the set brings criteria for runs that name none, before those of a file beside it.

    Judged as another tool, or with `strict`, a set has none.
    """
    return has_criteria(evalset) and not options.value("strict") and options.value("compat") == OWN


def with_criteria_of_set(options: RunOptions, evalset: EvalSet) -> tuple[RunOptions, bool]:
    """The options with the criteria of the set where they name none, and whether the run has those of the set.

    Raises UsageError for criteria that cannot be.
    """
    if not is_judged_by_set(options, evalset):
        return options, False
    if options.criteria is None:
        criteria = criteria_of_set(evalset)
        return (options if criteria is None else options.but(criteria=criteria)), criteria is not None
    with contextlib.suppress(UsageError):
        return options, options.criteria == criteria_of_set(evalset)
    return options, False


def usual_values(settings: Settings, like: RunConfig | None) -> dict[str, Any]:
    """The value that each option has where nothing is asked for, by its name."""
    start = RunConfig(AgentRef("", ""), "")
    values = {**option_values(start), "seed": None}
    return values | (_of_run(like) if like else _of_settings(settings, None))


def recordings_folder(settings: Settings) -> Path:
    """Where recorded answers are."""
    return settings.state_folder / "recordings"


def _of_settings(settings: Settings, user: UserConfig | None) -> dict[str, Any]:
    """The options that `evaldesk.toml` may set; a criteria file describes the user in its place."""
    return option_values(replace(settings, user=user or settings.user), offered("toml"))


def _of_run(config: RunConfig) -> dict[str, Any]:
    """The earlier run's values of the options that no form offers; the form asks for the others."""
    options = (each for each in RUN_OPTIONS if not has_door(each, "form") and each.name not in OF_ONE_RUN)
    return option_values(config, tuple(options))


def options_like(config: RunConfig) -> RunOptions:
    """The options of an earlier run, every one of the table, without its gates."""
    values = {
        name: value for name, value in option_values(config).items() if value is not None and name not in OF_ONE_RUN
    }
    return RunOptions(criteria=config.criteria, user=config.user, like=config, is_by_file=config.is_by_file, **values)


async def read_subject(
    agents: AgentDesk, evalsets: EvalSetDesk, agent_id: str, evalset_id: str, environment: str = ""
) -> RunSubject:
    """The agent, in the environment of that name, and the eval set. Raises NotFoundError, FormatError, UsageError."""
    with _at_field("agent"):
        agent = await agents.get_described_agent(agent_id)
    if environment:
        agent = await agents.described_in(agent, environment)
    with _at_field("evalset"):
        evalset, version, path = await asyncio.to_thread(evalsets.read, evalset_id)
    return RunSubject(
        agent=agent.ref,
        evalset=evalset,
        evalset_id=evalset_id,
        evalset_path=str(path),
        evalset_version=version,
        agent_version=await asyncio.to_thread(agent_version, agent.ref),
        agent_model=agent.description.model if agent.description else None,
        description=agent.description,
    )


def subject_of(
    agent: AgentRef, evalset: EvalSet, path: Path | None, description: AgentDescription, home: Path
) -> RunSubject:
    """The subject of the run, read at this moment; `path` is the file of the eval set where there is one.

    `home` is the workspace.
    """
    return RunSubject(
        agent=agent,
        evalset=evalset,
        evalset_id=identity_of(path, home) if path else evalset.id,
        evalset_path=str(path.resolve()) if path else "",
        evalset_version=digest_of_file(path) if path else "",
        agent_version=agent_version(agent),
        agent_model=description.model,
        description=description,
    )


def digest_of_file(path: Path) -> str:
    """The version of a file of any size, which may be behind a link."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


@contextlib.contextmanager
def _at_field(name: str) -> Iterator[None]:
    """Name the form field of an unknown name in its error."""
    try:
        yield
    except NotFoundError as error:
        error.field = name
        raise


def order_of_play(config: RunConfig, n_cases: int, n_most: int) -> Sequence[int] | None:
    """The order in which the cases of a run with at most `n_most` trials each are played; None for that of the file.

    The first cases speak for the others where chance decided, before the first trial, which come
    first.
    """
    if n_most > 1 or config.gates.stop_when_decided != "likely":
        return None
    return shuffle_cases(config.seed, n_cases)


def shuffle_cases(seed: int, n_cases: int) -> Sequence[int]:
    """The indexes of the cases of a run in an order of chance."""
    order = list(range(n_cases))
    Random(seed).shuffle(order)  # noqa: S311
    return order
