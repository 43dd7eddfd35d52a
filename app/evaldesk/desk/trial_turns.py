"""The turns of a trial, each with what was expected, what happened and what the metrics said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from evaldesk.desk.judge_details import JudgePanel, judge_panel
from evaldesk.desk.run_view import is_higher_better, needs_words, short_title
from evaldesk.model import Case, Event, Expected, Score, Transcript, TrialResult, Turn, TurnRecord
from evaldesk.report import StateRow, TurnDiff, score_words, state_rows, turn_diffs
from evaldesk.wire import to_json

MAX_TEXT = 4_000
ROLES = {"user": "simulated user", "judge": "judge"}


@dataclass(frozen=True, slots=True)
class TurnScore:
    """What one metric said of one turn; `verdict` is empty where it only informs, `judge` is None without judges."""

    title: str
    value: str
    needs: str
    verdict: str
    reason: str
    judge: JudgePanel | None


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event: when, what kind, and all that it says, cut at MAX_TEXT characters."""

    at_ms: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class TurnPanel:
    """One turn; `record` is None when it was never played. `status` is empty where no metric judged it."""

    number: int
    query: str
    status: str
    diff: TurnDiff
    expected: Expected
    record: TurnRecord | None
    scores: Sequence[TurnScore]
    state: Sequence[StateRow]
    state_words: str
    events: Sequence[EventLine]

    @property
    def is_open(self) -> bool:
        """Whether the state is worth a look without asking."""
        return any(row.is_as_expected is False for row in self.state)


def turn_panels(case: Case, result: TrialResult | None) -> tuple[TurnPanel, ...]:
    """The turns of the case and those that were played, whichever are more."""
    records = result.transcript.turns if result else ()
    scores = result.scores if result else ()
    diffs = turn_diffs(case, result.transcript if result else Transcript(), scores)
    return tuple(
        _panel(
            case,
            index,
            case.turns[index] if index < len(case.turns) else None,
            records[index] if index < len(records) else None,
            [score for score in scores if score.turn == index],
            diff,
            is_last=index == len(diffs) - 1,
        )
        for index, diff in enumerate(diffs)
    )


def _panel(
    case: Case,
    index: int,
    turn: Turn | None,
    record: TurnRecord | None,
    scores: Sequence[Score],
    diff: TurnDiff,
    *,
    is_last: bool,
) -> TurnPanel:
    expected = turn.expected if turn else Expected()
    final_state = case.final_state if is_last else None
    state = state_rows(record.state_before, record.state_after, final_state) if record else ()
    return TurnPanel(
        number=index + 1,
        query=turn.query if turn else record.query if record else "",
        status=_status(record, scores),
        diff=diff,
        expected=expected,
        record=record,
        scores=[_score(score) for score in scores],
        state=state,
        state_words=_state_words(state),
        events=[EventLine(event.at_ms, event.kind.replace("_", " "), event_text(event)) for event in record.events]
        if record
        else [],
    )


def event_text(event: Event) -> str:
    """All that an event says, as text."""
    if event.error:
        text = f"{event.error.kind}: {event.error.message}"
    elif event.usage:
        used = event.usage
        who = "" if used.role == "agent" else f"{ROLES[used.role]}, "
        text = f"{who}{used.model}: {used.tokens_in:,} tokens in, {used.tokens_out:,} out, {used.duration_ms:.0f} ms"
        text += ", answered from a recording or a cache" if used.is_replayed else ""
        text += f", {used.n_attempts} attempts" if used.n_attempts > 1 else ""
    elif event.kind == "tool_call" and event.call:
        text = f"{event.call.name} {json_line(event.call.args)}"
    elif event.kind == "tool_result":
        text = f"{event.call.name if event.call else ''} {'raised' if event.is_error else 'returned'} "
        text += json_line(event.result)
    elif event.changes:
        values = ((each.key, json_line(each.after) if each.is_present else "gone") for each in event.changes)
        text = ", ".join(f"{key} = {value}" for key, value in values)
    else:
        text = f"{event.author}: {event.text}" if event.author else event.text
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text) - MAX_TEXT:,} more characters)"


def json_line(value: object) -> str:
    """JSON on one line, with a space after each comma and colon."""
    return msgspec.json.format(to_json(value), indent=0).decode()


def _status(record: TurnRecord | None, scores: Sequence[Score]) -> str:
    if record is None:
        return "unscored" if not scores else "failed"
    if record.error or any(score.error for score in scores):
        return "errored"
    judged = [score.passed for score in scores if score.passed is not None]
    if not judged:
        return ""
    return "passed" if all(judged) else "failed"


def _score(score: Score) -> TurnScore:
    return TurnScore(
        title=short_title(score.metric),
        value=shown_value(score),
        needs=needs_words(score.metric, score.threshold),
        verdict=said_verdict(score),
        reason=score.reason,
        judge=judge_panel(score.details),
    )


def said_verdict(score: Score) -> str:
    """The verdict of a score; a value without a threshold informs and judges nothing."""
    return "" if score.threshold is None and score.value is not None else score.verdict


def shown_value(score: Score) -> str:
    """The value with two digits; one that misses its threshold never reads as if it kept to it."""
    if score.value is None:
        return "–"
    return score_words(score.value, score.threshold, is_higher_better=is_higher_better(score.metric))


def _state_words(rows: Sequence[StateRow]) -> str:
    if not rows:
        return ""
    n_changed = sum(row.is_changed for row in rows)
    n_wrong = sum(row.is_as_expected is False for row in rows)
    keys = "key" if len(rows) == 1 else "keys"
    said = f"State: {n_changed or 'none'} of {len(rows)} {keys} changed"
    return f"{said}, {n_wrong} not as expected" if n_wrong else said
