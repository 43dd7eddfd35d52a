"""The folder of a job of Harbor: a folder for each trial, with its result and its trajectory.

    result.json                      the job: number of trials, statistics
    config.json
    TASK__ID/result.json             the trial: task, agent, rewards of the verifier, exception, times
    TASK__ID/agent/trajectory.json   the conversation, as ATIF

(harbor 0.22, models/trial/result.py and models/job/result.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported, ResultFolder
from evaldesk.integrations.atif.trajectory import Atif
from evaldesk.model import Case, Criterion, ErrorRecord, Expected, RecordedPlan, Turn, TurnRecord, Usage
from evaldesk.model.run import RecordedStatus
from evaldesk.model.transcript import is_score
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition, parse_recorded_json
from evaldesk.reading.values import MAX_COUNT, read_mapping, read_optional_mapping, read_optional_text, text_of
from evaldesk.transcripts.recorded import (
    RecordedRun,
    SummaryValue,
    TrialRows,
    iso_ms,
    number_or_name,
    recorded_score,
    recorded_trial,
    recorded_usage,
)

RESULT = "result.json"
TRAJECTORY = "agent/trajectory.json"
FULL_REWARD = 1.0
"""The reward from which a trial counts as passed; Harbor itself only averages rewards."""
FORMAT = "atif"


class JobFolder:
    """A job with its trials."""

    parts = "result.json with a folder for each trial (Harbor)"

    @staticmethod
    def holds(paths: Sequence[str]) -> bool:
        """Whether folders with results are there, and at least one trajectory or the result of the job."""
        trials = _trial_folders(paths)
        return bool(trials) and (RESULT in paths or any(f"{name}/{TRAJECTORY}" in paths for name in trials))

    @staticmethod
    def read_folder(folder: ResultFolder, outcome: str) -> Imported:
        """The run with a trial for each folder. Raises FormatError."""
        trials = [_read_trial(folder, name) for name in _trial_folders(folder.paths)]
        metrics = list(dict.fromkeys(name for trial in trials for name in trial.rewards))
        if outcome and outcome not in metrics:
            raise FormatError(f"no trial has the reward {outcome!r}; there are: {', '.join(metrics) or 'none'}")
        decides = outcome or ("reward" if "reward" in metrics or len(metrics) != 1 else metrics[0])
        criteria = tuple(Criterion(name, FULL_REWARD if name == decides else None) for name in metrics)
        rows, notes = TrialRows(), Notes()
        for trial in trials:
            spot = rows.place(trial.task)
            rows.offer(spot, _case(trial), len(trial.turns))
            scores = [
                recorded_score(each, trial.rewards[each.metric]) for each in criteria if each.metric in trial.rewards
            ]
            rows.add(
                spot,
                recorded_trial(
                    trial.turns,
                    scores=scores,
                    criteria=criteria,
                    error=trial.error,
                    duration_ms=trial.duration_ms,
                    usages=trial.usages,
                ),
            )
        cases, results = rows.finish()
        job = _job(folder)
        run = RecordedRun(
            PurePosixPath(folder.name).name or "job",
            next((trial.agent for trial in trials if trial.agent), ""),
            cases,
            results,
            criteria,
            next((trial.model for trial in trials if trial.model), None),
            plan=_plan(job, rows, len(cases), len(results)),
            summary=tuple(_summary(job, trials)),
        )
        words = [f"A trial passes when its {decides} is {FULL_REWARD:g}; Harbor averages rewards and passes none."]
        n_missing = sum(not trial.turns for trial in trials)
        if n_missing:
            words.append(f"{n_missing:,} of {len(trials):,} trials have no trajectory that can be read.")
        return Imported(
            FORMAT,
            runs=(run,),
            understood=tuple(words),
            refused=notes.sentences,
            outcomes=tuple(metrics),
            outcome=decides if metrics else "",
        )


@dataclass(frozen=True, slots=True)
class _Trial:
    """A trial: its task, rewards by name and conversation."""

    task: str
    agent: str
    model: str
    rewards: dict[str, float | str]
    turns: tuple[TurnRecord, ...]
    error: ErrorRecord | None
    duration_ms: float | None
    usages: tuple[Usage | ErrorRecord, ...] | None


def _trial_folders(paths: Sequence[str]) -> list[str]:
    """The folders in the job that have a result."""
    parents = (PurePosixPath(path) for path in paths)
    return [path.parent.as_posix() for path in parents if path.name == RESULT and len(path.parts) == 2]


def _read_trial(folder: ResultFolder, name: str) -> _Trial:
    path = f"{name}/{RESULT}"
    document = parse_recorded_json(folder.read(path), source=f"{folder.name}/{path}")
    place = JsonPosition(document)
    raw = read_mapping(place, document.value)
    agent = read_optional_mapping(place.at("agent_info"), raw.get("agent_info")) or {}
    model = read_optional_mapping(place.at("agent_info", "model_info"), agent.get("model_info")) or {}
    verified = read_optional_mapping(place.at("verifier_result"), raw.get("verifier_result")) or {}
    rewards = read_optional_mapping(place.at("verifier_result", "rewards"), verified.get("rewards")) or {}
    turns, usages = _conversation(folder, f"{name}/{TRAJECTORY}")
    counts = raw.get("agent_result")
    if usages is None and isinstance(counts, dict):
        cached = counts.get("n_cache_tokens")
        name_of_model = text_of(model.get("name"))
        tokens = ("n_input_tokens", "n_output_tokens")
        usages = (recorded_usage(name_of_model, counts, *tokens, cost=counts.get("cost_usd"), tokens_cached=cached),)
    start_ms, end_ms = iso_ms(raw.get("started_at")), iso_ms(raw.get("finished_at"))
    return _Trial(
        read_optional_text(place.at("task_name"), raw.get("task_name")) or name.rpartition("__")[0] or name,
        text_of(agent.get("name")),
        text_of(model.get("name")),
        {key: value for key, raw in rewards.items() if (value := number_or_name(raw)) is not None},
        turns,
        _error(raw.get("exception_info")),
        max(end_ms - start_ms, 0.0) if start_ms is not None and end_ms is not None else None,
        usages,
    )


def _conversation(
    folder: ResultFolder, path: str
) -> tuple[tuple[TurnRecord, ...], tuple[Usage | ErrorRecord, ...] | None]:
    """The turns of a trajectory, and its tokens; none where it is missing or cannot be read."""
    if path not in folder.paths:
        return (), None
    try:
        (run,) = Atif.read(folder.read(path), source=f"{folder.name}/{path}").runs
    except FormatError:
        return (), None
    result = run.results[0]
    return result.transcript.turns, tuple(result.usages) or None


def _error(raw: Any) -> ErrorRecord | None:
    if not isinstance(raw, dict):
        return None
    kind, message = text_of(raw.get("exception_type")) or "exception", text_of(raw.get("exception_message"))
    return ErrorRecord(kind, message or kind, trace=text_of(raw.get("exception_traceback")))


def _case(trial: _Trial) -> Case:
    turns = tuple(Turn(turn.query, Expected()) for turn in trial.turns) or (Turn(""),)
    return Case(trial.task, turns)


def _job(folder: ResultFolder) -> dict[str, Any]:
    if RESULT not in folder.paths:
        return {}
    document = parse_recorded_json(folder.read(RESULT), source=f"{folder.name}/{RESULT}")
    return read_mapping(JsonPosition(document), document.value)


def _plan(job: dict[str, Any], rows: TrialRows, n_cases: int, n_results: int) -> RecordedPlan:
    total = job.get("n_total_trials")
    plan = rows.plan_of(n_cases)
    n_planned = plan.n_planned
    if isinstance(total, int) and not isinstance(total, bool) and 0 <= total <= MAX_COUNT:
        n_planned = max(total, n_results)
    status: RecordedStatus = "finished" if job.get("finished_at") else "unfinished" if job else "unknown"
    return RecordedPlan(n_planned, plan.n_each, status)


def _summary(job: dict[str, Any], trials: Sequence[_Trial]) -> Iterator[SummaryValue]:
    """The statistics of the job beside those of its trials."""
    stats = job.get("stats")
    if not isinstance(stats, dict):
        return
    counts = {"n_trials": len(trials), "n_errors": sum(trial.error is not None for trial in trials)}
    for name, count in counts.items():
        value = stats.get(name)
        if is_score(value):
            yield SummaryValue(name, float(value), count)
