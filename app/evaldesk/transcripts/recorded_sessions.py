"""Sessions that were recorded one by one, as the trials of a run and as cases that expect their events.

A file that Evaldesk wrote has a note with each session: its case, trial and scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, TypeGuard, get_args

from evaldesk.model import (
    AskedBy,
    Case,
    Criterion,
    ErrorRecord,
    JsonObject,
    Prompts,
    RecordedPlan,
    Score,
    TrialResult,
    TurnRecord,
    Usage,
    Verdict,
    Waiting,
)
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import for_review
from evaldesk.model.run import RecordedStatus
from evaldesk.model.transcript import UNANSWERED, last_stop
from evaldesk.reading.values import MAX_COUNT, text_of
from evaldesk.transcripts.conversation_case import turn_expecting
from evaldesk.transcripts.recorded import (
    RecordedRun,
    TrialRows,
    ended_so,
    free_name,
    read_number,
    recorded_trial,
)

NO_ANSWER = UNANSWERED | {"interrupted"}


@dataclass(frozen=True, slots=True)
class Session:
    """A recorded session; `note` is the result of `session_note`, or any other value, and counts before `scores`.

    `n_lost` parts of its messages could not be read. `case_id` is the case that the source says it is a trial of.
    """

    id: str
    turns: tuple[TurnRecord, ...]
    error: ErrorRecord | None = None
    extra: JsonObject = field(default_factory=dict)
    usages: Sequence[Usage | ErrorRecord] | None = None
    scores: tuple[Score, ...] = ()
    note: Any = None
    prompts: Prompts | None = None
    n_lost: int = 0
    case_id: str = ""


@dataclass(frozen=True, slots=True)
class SessionNote:
    """The note of a session that Evaldesk wrote: its case, trial, scores and end."""

    case_id: str
    trial_index: int
    scores: tuple[Score, ...]
    error: ErrorRecord | None
    verdict: Verdict | None
    asked_by: tuple[AskedBy | None, ...]
    ends: tuple[Any, ...]
    plan: RecordedPlan | None


def run_of_sessions(name: str, agent: str, model: str | None, sessions: Sequence[Session]) -> RecordedRun:
    """The run of the sessions: each is a case of its own, but those that name their case are trials of it."""
    notes = [read_note(session.note) for session in sessions]
    own_ids = [note.case_id if note else session.case_id for session, note in zip(sessions, notes, strict=True)]
    used_names: dict[str, int] = {case_id: 1 for case_id in own_ids if case_id}
    scores_by_session = [note.scores if note else session.scores for session, note in zip(sessions, notes, strict=True)]
    criteria = criteria_of(scores_by_session)
    trials = TrialRows()
    tells_calls = any(turn.tool_calls for session in sessions for turn in session.turns)
    for session, note, own_id, scores in zip(sessions, notes, own_ids, scores_by_session, strict=True):
        case_id = own_id or free_name(session.id, used_names)
        at = trials.place(case_id)
        trials.offer(at, case_of_session(case_id, session, tells_calls=tells_calls))
        trials.add(at, trial_of_session(session, note, scores, criteria), note.trial_index if note else None)
    cases, results = trials.finish()
    plan = next((note.plan for note in notes if note and note.plan), RecordedPlan())
    return RecordedRun(name, agent or name, cases, results, criteria, model, plan=plan)


def named_case_ids(sessions: Iterable[Session]) -> frozenset[str]:
    """The ids of cases that the sessions say they are trials of."""
    notes = ((session, read_note(session.note)) for session in sessions)
    return frozenset(note.case_id if note else session.case_id for session, note in notes) - {""}


def case_of_session(case_id: str, session: Session, *, tells_calls: bool) -> Case:
    """A case that expects the recorded events: the calls, the answers, and ADK's `tool_responses` beside them.

    A source that tells no call of a tool in any session may not see them, so nothing is asserted of tools.
    """
    turns = tuple(turn_expecting(turn) for turn in session.turns)
    if not tells_calls:
        turns = tuple(replace(turn, expected=replace(turn.expected, tool_calls=None)) for turn in turns)
    case = Case(case_id, turns, extra=session.extra)
    return for_review(case, lost_words(session.n_lost)) if session.n_lost else case


def lost_words(n: int) -> str:
    """`2 parts of its messages that are not text were not read`."""
    return f"{counted(n, 'part of its messages')} that {'is' if n == 1 else 'are'} not text could not be read"


def session_note(run: RecordedRun, result: TrialResult) -> dict[str, Any]:
    """The case, the trial, the scores and the error of a session, and the user; details of scores are left out."""
    scores = [score_note(score) for score in result.scores]
    error = _error_note(result.error)
    speakers = [turn.asked_by for turn in result.transcript.turns]
    asked_by = {"asked_by": speakers} if any(speakers) else {}
    ends = [_end(turn) for turn in result.transcript.turns]
    end_note = {"ends": ends} if any(ends) else {}
    about = {"case": run.cases[result.case_index].id, "trial": result.trial_index, "verdict": result.verdict}
    plan = {} if run.plan == RecordedPlan() else {"plan": plan_note(run.plan)}
    return {**about, "scores": scores, **error, **asked_by, **end_note, **plan}


def plan_note(plan: RecordedPlan) -> dict[str, Any]:
    """The plan of a run, as `read_plan` reads it."""
    return {"planned": plan.n_planned, "each": plan.n_each, "status": plan.status, "reason": plan.reason}


def read_plan(raw: Any) -> RecordedPlan | None:
    """The plan of a note; None for a value that is none of ours."""
    if not isinstance(raw, dict):
        return None
    n_planned, each, status = raw.get("planned"), raw.get("each"), raw.get("status")
    known_status = next((name for name in get_args(RecordedStatus) if name == status), None)
    if known_status is None or not _is_count(each) or not (n_planned is None or _is_count(n_planned)):
        return None
    return RecordedPlan(n_planned, each, known_status, text_of(raw.get("reason")))


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= MAX_COUNT


def score_note(score: Score) -> dict[str, Any]:
    """A score without its details, as `read_score` reads it."""
    return {
        "metric": score.metric,
        "value": score.value,
        "turn": score.turn,
        "threshold": score.threshold,
        "passed": score.passed,
        "reason": score.reason,
        **({} if score.is_applicable else {"is_applicable": False}),
        **_error_note(score.error),
    }


def _error_note(error: ErrorRecord | None) -> dict[str, Any]:
    return {"error": {"kind": error.kind, "message": error.message}} if error else {}


def _end(turn: TurnRecord) -> dict[str, Any] | None:
    """The reason why the turn has no answer, and its requests to a person; None for an answered or broken turn."""
    requests = [{"id": each.id, "tool": each.tool, "args": dict(each.args)} for each in turn.open_requests]
    return {"stop": turn.stop_reason, "waiting": requests} if turn.stop_reason in NO_ANSWER else None


def _with_users_and_ends(turns: tuple[TurnRecord, ...], note: SessionNote) -> tuple[TurnRecord, ...]:
    """The turns with their user and their end, as the note says."""
    n = len(turns)
    rows = zip_longest(turns, note.asked_by[:n], note.ends[:n])
    return tuple(replace(_with_end(turn, end), asked_by=who) for turn, who, end in rows)


def _with_end(turn: TurnRecord, end: Any) -> TurnRecord:
    turn = replace(turn, stop_reason="answered") if turn.stop_reason == "interrupted" else turn
    if not isinstance(end, dict) or end.get("stop") not in [*NO_ANSWER]:
        return turn
    raw_waiting = end["waiting"] if isinstance(end.get("waiting"), list) else []
    argument_pairs = [(each, each.get("args")) for each in raw_waiting if isinstance(each, dict)]
    requests = [
        Waiting(str(each.get("id")), str(each.get("tool")), args)
        for each, args in argument_pairs
        if isinstance(args, dict)
    ]
    return ended_so(turn, end["stop"], requests)


def trial_of_session(
    session: Session, note: SessionNote | None, scores: tuple[Score, ...], criteria: Sequence[Criterion]
) -> TrialResult:
    """The trial of a session, with the scores of its note or its source; its verdict is by `criteria`."""
    error = session.error or (note.error if note else None)
    turns = _with_users_and_ends(session.turns, note) if note else session.turns
    trial = recorded_trial(
        turns,
        scores=scores,
        criteria=criteria,
        error=error,
        stop_reason="error" if error else last_stop(turns),
        usages=session.usages,
        prompts=session.prompts,
    )
    return trial if trial.error or not (note and note.verdict) else replace(trial, verdict=note.verdict)


def criteria_of(all_scores: Iterable[Sequence[Score]]) -> tuple[Criterion, ...]:
    """The metrics of the scores with their thresholds; of several thresholds the last."""
    by_metric = {score.metric: Criterion(score.metric, score.threshold) for scores in all_scores for score in scores}
    return tuple(by_metric.values())


def read_note(raw: Any) -> SessionNote | None:
    """The note, or None for a value that is none of ours: the file comes from outside."""
    if not isinstance(raw, dict):
        return None
    case_id, trial, scores = raw.get("case"), raw.get("trial"), raw.get("scores")
    if not isinstance(case_id, str) or isinstance(trial, bool) or not isinstance(trial, int) or trial < 0:
        return None
    score_values = [read_score(score) for score in scores] if isinstance(scores, list) else []
    error = _read_error(raw.get("error"))
    verdict = next((each for each in get_args(Verdict) if each == raw.get("verdict")), None)
    spoke = raw.get("asked_by")
    asked_by = tuple(who if who in get_args(AskedBy) else None for who in spoke) if isinstance(spoke, list) else ()
    ends = raw.get("ends")
    turn_ends = tuple(ends) if isinstance(ends, list) else ()
    known_scores = tuple(score for score in score_values if score)
    return SessionNote(case_id, trial, known_scores, error, verdict, asked_by, turn_ends, read_plan(raw.get("plan")))


def _read_error(raw: Any) -> ErrorRecord | None:
    return ErrorRecord(str(raw.get("kind")), str(raw.get("message"))) if isinstance(raw, dict) else None


def read_score(raw: Any) -> Score | None:
    """The score of a note; None for a value that is none of ours."""
    if not isinstance(raw, dict) or not isinstance(raw.get("metric"), str):
        return None
    passed, turn = raw.get("passed"), raw.get("turn")
    return Score(
        raw["metric"],
        read_number(raw.get("value")),
        turn if isinstance(turn, int) and not isinstance(turn, bool) and turn >= 0 else None,
        read_number(raw.get("threshold")),
        passed if isinstance(passed, bool) else None,
        text_of(raw.get("reason")),
        error=_read_error(raw.get("error")),
        is_applicable=raw.get("is_applicable") is not False,
    )
