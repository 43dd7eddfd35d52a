"""What a person asks of a run, checked and frozen into its configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evaldesk import __version__
from evaldesk.errors import UsageError
from evaldesk.metrics import check_criteria, unscored_reasons
from evaldesk.model import DEFAULT_CRITERIA, AgentRef, Case, Criterion, EvalSet, Limits, ModelOptions, RunConfig
from evaldesk.model.recording import Recording
from evaldesk.model.user import UserConfig

MAX_N = 1000
MAX_TRIALS = 200_000
MAX_CONCURRENCY = 256
MAX_TIMEOUT_S = 86_400.0
MAX_NOTE = 2_000


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run; `case_ids` None means all cases, `model` None the agent's own, `seed` None one by chance.

    `user_model` plays the user in place of the model of `user`.
    """

    case_ids: tuple[str, ...] | None = None
    n: int = 1
    criteria: tuple[Criterion, ...] = DEFAULT_CRITERIA
    pass_threshold: float = 1.0
    concurrency: int = 4
    timeout_s: float = 120.0
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    user: UserConfig | None = None
    user_model: str | None = None
    recording: Recording | None = None
    turn_timeout_s: float | None = None
    tool_timeout_s: float | None = None
    judge_timeout_s: float | None = None
    seed: int | None = None
    note: str = ""
    errors_are_failures: bool = False


@dataclass(frozen=True, slots=True)
class RunSubject:
    """What is run: the agent as it is now, and the eval set as its file is now."""

    agent: AgentRef
    evalset: EvalSet
    evalset_id: str
    evalset_path: str = ""
    evalset_version: str = ""
    agent_version: str = ""
    agent_model: str | None = None


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run that may be started: its frozen configuration and the exact cases."""

    config: RunConfig
    cases: tuple[Case, ...]
    unscored: tuple[Unscored, ...] = field(default=())

    @property
    def n_trials(self) -> int:
        """Cases times trials of each."""
        return len(self.cases) * self.config.n


@dataclass(frozen=True, slots=True)
class Unscored:
    """Cases that one metric will not be able to judge, for one reason."""

    metric: str
    reason: str
    case_ids: tuple[str, ...]


def plan_run(subject: RunSubject, options: RunOptions, *, models: Sequence[str], seed: int) -> RunPlan:
    """The run that `options` ask for. Raises UsageError naming the field when something cannot be."""
    check_numbers(options)
    check_deciding(options.criteria)
    cases = chosen_cases(subject.evalset, options.case_ids)
    if len(cases) * options.n > MAX_TRIALS:
        raise UsageError(f"{len(cases) * options.n:,} trials are more than the {MAX_TRIALS:,} of one run", field="n")
    config = RunConfig(
        agent=subject.agent,
        evalset_id=subject.evalset_id,
        evalset_path=subject.evalset_path,
        evalset_version=subject.evalset_version,
        n=options.n,
        criteria=options.criteria,
        pass_threshold=options.pass_threshold,
        concurrency=options.concurrency,
        limits=Limits(options.timeout_s, options.turn_timeout_s, options.tool_timeout_s, options.judge_timeout_s),
        model=_allowed_model(options.model, subject.agent_model, models),
        model_options=options.model_options,
        user=options.user or UserConfig(),
        recording=options.recording or Recording(),
        agent_version=subject.agent_version,
        agent_model=subject.agent_model,
        seed=seed if options.seed is None else options.seed,
        note=options.note.strip(),
        errors_are_failures=options.errors_are_failures,
        evaldesk_version=__version__,
    )
    return RunPlan(config, cases, foresee_unscored(cases, options.criteria))


def limits_of(options: RunOptions, usual: Limits) -> dict[str, Any]:
    """The limits of turns, tools and judges: those of the options, and where they name none the usual ones."""
    names = ("turn_timeout_s", "tool_timeout_s", "judge_timeout_s")
    asked = {name: getattr(options, name) for name in names}
    return {name: getattr(usual, name) if value is None else value for name, value in asked.items()}


def chosen_cases(evalset: EvalSet, case_ids: tuple[str, ...] | None) -> tuple[Case, ...]:
    """The cases named by `case_ids`, in the order of the file; all for None. Raises UsageError."""
    if not evalset.cases:
        raise UsageError("this eval set has no cases yet; add one from a chat session first", field="evalset")
    if case_ids is None:
        return evalset.cases
    wanted = set(case_ids)
    missing = wanted - {case.id for case in evalset.cases}
    if missing:
        raise UsageError(f"this eval set has no case {min(missing)!r}", field="cases")
    if not wanted:
        raise UsageError("select at least one case", field="cases")
    return tuple(case for case in evalset.cases if case.id in wanted)


def check_deciding(criteria: Sequence[Criterion]) -> None:
    """Raise UsageError for criteria that cannot be built, or of which none decides."""
    check_criteria(criteria)
    if not any(criterion.threshold is not None for criterion in criteria):
        raise UsageError("choose at least one metric that decides; without one every trial is unscored", field="metric")


def foresee_unscored(cases: Sequence[Case], criteria: Sequence[Criterion]) -> tuple[Unscored, ...]:
    """Which cases cannot be judged by which metric, and why, before anything is spent."""
    found: dict[tuple[str, str], list[str]] = {}
    for criterion in criteria:
        for case_id, reason in unscored_reasons(criterion, cases).items():
            found.setdefault((criterion.metric, reason), []).append(case_id)
    return tuple(Unscored(metric, reason, tuple(ids)) for (metric, reason), ids in found.items())


def check_numbers(options: RunOptions) -> None:
    """Raise UsageError naming the field that is out of its range."""
    ranges: tuple[tuple[str, str, float | None, float, float], ...] = (
        ("n", "trials of each case", options.n, 1, MAX_N),
        ("concurrency", "trials at once", options.concurrency, 1, MAX_CONCURRENCY),
        ("pass_threshold", "share of trials that must pass", options.pass_threshold, 0, 1),
        ("timeout_s", "limit of a trial in seconds", options.timeout_s, 0.1, MAX_TIMEOUT_S),
        ("turn_timeout_s", "limit of a turn in seconds", options.turn_timeout_s, 0.1, MAX_TIMEOUT_S),
        ("tool_timeout_s", "limit of a tool in seconds", options.tool_timeout_s, 0.1, MAX_TIMEOUT_S),
        ("judge_timeout_s", "limit of a judge in seconds", options.judge_timeout_s, 0.1, MAX_TIMEOUT_S),
    )
    for name, words, value, low, high in ranges:
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            raise UsageError(f"{words}: {low:g} to {high:g}, not {value:g}", field=name)
    if len(options.note) > MAX_NOTE:
        raise UsageError(f"the note has {len(options.note):,} characters; {MAX_NOTE:,} fit", field="note")


def _allowed_model(model: str | None, own: str | None, models: Sequence[str]) -> str | None:
    """None for the agent's own model. A name that nobody listed could send keys anywhere, so it is refused."""
    if not model or model == own:
        return None
    if model not in models:
        listed = ", ".join(models) or "none; add some to evaldesk.toml"
        raise UsageError(f"{model!r} is not among the allowed models: {listed}", field="model")
    return model
