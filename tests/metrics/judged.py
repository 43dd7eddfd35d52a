"""A conversation that judges look at, for tests."""

from __future__ import annotations

from typing import Any

from evaldesk.metrics import METRICS, Grading, grade_trial, metric_info
from evaldesk.model import Case, Criterion, Event, Expected, Score, ToolCall, Transcript, Turn, TurnRecord
from evaldesk.wire import from_json, to_json

JUDGES = [name for name in METRICS if metric_info(name).has_judge]


def record(answer: str, *, query: str = "q", calls: tuple[ToolCall, ...] = ()) -> TurnRecord:
    events = [Event("user_message", text=query), *(Event("tool_call", call=call) for call in calls)]
    events += [Event("tool_result", call=call, result={"total": 12}) for call in calls]
    return TurnRecord(query, (*events, Event("agent_message", text=answer)))


def case(*references: str | None, **fields: Any) -> Case:
    return Case("c", tuple(Turn("q", Expected(reference=reference)) for reference in references), **fields)


ONE = case("You rolled 12.")


PLAYED = Transcript((record("You rolled a 12.", calls=(ToolCall("roll", {"sides": 20}),)),))


async def graded(metric: str, *, played: Transcript = PLAYED, of: Case = ONE, **options: Any) -> Grading:
    grading = await grade_trial(played, of, [Criterion(metric, metric_info(metric).default_threshold, options)])
    assert from_json(to_json(grading.scores), tuple[Score, ...]) == grading.scores
    return grading


async def score_of(metric: str, **given: Any) -> Score:
    return (await graded(metric, **given)).scores[-1]


def details(score: Score) -> dict[str, Any]:
    return dict(score.details)


def rubric(rubric_id: str, text: str, kind: str | None = None) -> dict[str, Any]:
    typed = {"type": kind} if kind else {}
    return {"rubric_id": rubric_id, "rubric_content": {"text_property": text}, **typed}


FINAL = "rubric_based_final_response_quality_v1"
