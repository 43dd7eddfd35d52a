"""Stored trials, scored again by other criteria without playing them: a run of its own that names its source."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter

from evaldesk import __version__
from evaldesk.desk.criteria.criteria import is_plain
from evaldesk.desk.other_tools import as_tool_calls
from evaldesk.desk.runs.gates.conclusion import Ending
from evaldesk.desk.runs.plan import RunPlan, check_measuring, foreseen_plan
from evaldesk.engine import GradeSpec
from evaldesk.engine.executors import check_executor
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model import Case, Criterion, Gates, RunConfig, Transcript, TrialResult
from evaldesk.model.run import LIVE
from evaldesk.model.stored import PendingTrial, TrialKey
from evaldesk.model.transcript import TurnRecord, last_stop
from evaldesk.run_options import KEEP
from evaldesk.store import RunStore
from evaldesk.store.runs.run_store import is_imported
from evaldesk.transcripts.recorded import cut_short

READ_AHEAD = 16
LOOKED_AT = 32
SCORED_AT_ONCE = 64
GRADING_FAILED = "grading_failed"


def plan_rescoring(
    runs: RunStore,
    run_id: int,
    criteria: Sequence[Criterion],
    source_config: RunConfig | None = None,
    cases: Sequence[Case] | None = None,
    gates: Gates | None = None,
) -> RunPlan:
    """A run that scores the trials of run `run_id` by `criteria`; everything else stays as it was played.

    `source_config` is the part of its configuration to copy, by default all. `cases` are those of the run with other
    expectations; None takes them as they were played. The limit of cost was one of playing, which that run has
    answered: its trials keep what they cost, and are not paid. `gates` are those of the new run, by default the ones of
    run `run_id`. Raises ConflictError while that run goes on, UsageError
    naming the field for criteria that cannot be.
    """
    summary = runs.summary(run_id)
    if summary.status in LIVE:
        raise ConflictError(f"run {run_id} is still running; stop it or wait for its end, then re-score it")
    if not summary.n_done:
        raise UsageError(f"run {run_id} has no finished trial to score; resume it first", field="metric")
    check_measuring(criteria)
    cases = tuple(runs.cases(run_id)) if cases is None else tuple(cases)
    source_id = played_run_id(runs, run_id)
    config = replace(
        source_config or summary.config,
        criteria=as_tool_calls(summary.config.compat, criteria),
        gates=gates or replace(summary.config.gates, max_cost=None),
        is_by_set=False,
        source_run_id=source_id,
        note="",
        name=None,
        fresh=False,
        retry_failed=False,
        evaldesk_version=__version__,
    )
    check_executor(config)
    plan = foreseen_plan(config, cases)
    return replace(plan, baseline=runs.baseline(run_id), trials_of_cases=tuple(map(len, runs.strips(run_id))))


def same_criteria(runs: RunStore, run_id: int, criteria: Sequence[Criterion]) -> str:
    """Says which scoring of the trials of run `run_id` has these criteria already; empty where none has.

    It is no refusal: the code of a metric may have changed, and a judge may answer otherwise. Raises NotFoundError.
    """
    summary = runs.summary(run_id)
    sorted_criteria = sorted(as_tool_calls(summary.config.compat, criteria), key=attrgetter("metric"))
    for run in (summary, *runs.scorings(played_run_id(runs, run_id))):
        if sorted(run.config.criteria, key=attrgetter("metric")) == sorted_criteria:
            return f"Run {run.id} has the same criteria: scores change only where a metric's code or a judge did."
    return ""


def played_run_id(runs: RunStore, run_id: int) -> int:
    """The run that played the trials of run `run_id`; itself when it did, or when its source was deleted."""
    source_id = runs.summary(run_id).config.source_run_id
    if source_id is None:
        return run_id
    try:
        return runs.summary(source_id).id
    except NotFoundError:
        return run_id


def as_handed_out(config: RunConfig) -> RunConfig:
    """A re-score as its executor has it: where neither a model nor a function of the user scores, many trials at once.

    The number of trials at once describes the trials and stays in the run.
    """
    is_alone = all(map(is_plain, config.criteria))
    return replace(config, concurrency=max(config.concurrency, SCORED_AT_ONCE)) if is_alone else config


class StoredTrials:
    """The trials of a run as a worker's input to score them for another; read a few at a time, in any order."""

    def __init__(self, runs: RunStore, config: RunConfig, run_id: int) -> None:
        self._runs = runs
        self._config = config
        self._run_id = run_id
        self._keys: deque[TrialKey] = deque()
        self._ahead: dict[TrialKey, TrialResult] = {}

    def expect(self, pending: Sequence[PendingTrial]) -> None:
        """Note trials that will be asked for, in their order."""
        self._keys.extend((trial.case_index, trial.trial_index) for trial in pending)

    def is_read(self, trial: PendingTrial) -> bool:
        """Whether its scoring begins at once, without the store."""
        return (trial.case_index, trial.trial_index) in self._ahead

    def grade_spec(self, trial: PendingTrial, case: Case) -> GradeSpec | None:
        """The trial with the run's criteria; None when it was never played. Raises NotFoundError without the source."""
        key = (trial.case_index, trial.trial_index)
        while key not in self._ahead and self._keys:
            ahead = [self._keys.popleft() for _ in range(min(READ_AHEAD, len(self._keys)))]
            self._ahead |= self._runs.trials(self._config.source_run_id or 0, ahead)
        source = self._ahead.pop(key, None)
        if source is None or source.status == "cancelled":
            return None
        if self._tells_results:
            source = replace(source, transcript=Transcript(tuple(map(cut_short, source.transcript.turns))))
        if not self._tells_state:
            source = replace(source, transcript=Transcript(tuple(map(_without_state, source.transcript.turns))))
        result = replace(without_grades(source), run_id=self._run_id, attempt=trial.attempt)
        config = self._config
        return GradeSpec(
            result, case, config.criteria, config.limits, config.is_strict, keeps_prompts=config.prompts == KEEP
        )

    @cached_property
    def _tells_results(self) -> bool:
        """Whether the source came in a file that tells results of calls, as its first trials do."""
        if not is_imported(self._config):
            return False
        return any(event.kind == "tool_result" for turn in self._first_turns for event in turn.events)

    @cached_property
    def _tells_state(self) -> bool:
        """Whether the source was played, or came in a file that tells session states, as its first trials do."""
        if not is_imported(self._config):
            return True
        return any(
            turn.state_before or turn.state_after or any(event.kind == "state_delta" for event in turn.events)
            for turn in self._first_turns
        )

    @cached_property
    def _first_turns(self) -> Sequence[TurnRecord]:
        """The turns of the first trials of the source."""
        first_trials = self._runs.trials(self._config.source_run_id or 0, [(at, 0) for at in range(LOOKED_AT)])
        return [turn for trial in first_trials.values() for turn in trial.transcript.turns]


def _without_state(turn: TurnRecord) -> TurnRecord:
    """The turn of a file that tells no session state, so that no metric judges an empty one."""
    return replace(turn, unseen=tuple(sorted({*turn.unseen, "state"})))


def without_grades(result: TrialResult) -> TrialResult:
    """The result before anybody graded it: no scores, no cost of judges, and no error but those of playing."""
    usages = tuple(usage for usage in result.usages if usage.role != "judge")
    ungraded = replace(result, scores=(), usages=usages)
    if result.error and result.error.kind == GRADING_FAILED:
        return replace(ungraded, status="finished", stop_reason=last_stop(result.transcript.turns), error=None)
    return ungraded


def missing_ending(runs: RunStore, config: RunConfig, n: int) -> Ending:
    """The end of a re-score of a run with `n` unplayed trials.

    As that one did, where it stopped when it was decided: its stop without the answers, which were of other scores.
    """
    trials, source = "1 trial was" if n == 1 else f"{n:,} trials were", config.source_run_id
    if is_imported(config):
        return Ending("finished", f"{trials} not in the file that run {source} was imported from.")
    try:
        stop = runs.summary(source or 0).stop
    except NotFoundError:
        stop = None
    if stop is None:
        return Ending("stopped", f"{trials} never played in run {source}. Resume that run first, then this one.")
    words = f"Run {source} stopped when it was decided, so {trials} never played."
    return Ending("finished", words, replace(stop, answers=()))
