"""ADK's custom metrics: what such a function is given, and its EvaluationResult as scores. (reference/adk.md 2.3)

Where google.adk is installed the function gets ADK's own classes, else plain objects with the same attributes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from evaldesk.errors import MetricError
from evaldesk.model import Case, Event, JsonObject, JsonValue, Score, ToolCall, Transcript, TurnRecord

_MODULES = {
    "EvalMetric": "google.adk.evaluation.eval_metrics",
    "Invocation": "google.adk.evaluation.eval_case",
    "ConversationScenario": "google.adk.evaluation.conversation_scenarios",
}


def adk_arguments(transcript: Transcript, case: Case, name: str, threshold: float | None) -> dict[str, Any]:
    """The arguments of a function whose first parameter is `eval_metric`, by name."""
    asked = [_actual(index, turn) for index, turn in enumerate(transcript.turns)]
    expected = [
        _invocation(index, turn.query, turn.expected.reference, _calls(turn.expected.tool_calls or ()))
        for index, turn in enumerate(case.turns)
    ]
    return {
        "eval_metric": _made("EvalMetric", {"metric_name": name, "threshold": threshold}),
        "actual_invocations": [_made("Invocation", item) for item in asked],
        "expected_invocations": [_made("Invocation", item) for item in expected] or None,
        "conversation_scenario": _made("ConversationScenario", case.scenario) if case.scenario else None,
    }


def adk_scores(name: str, found: object, n_turns: int) -> list[Score]:
    """The scores of an EvaluationResult: one for each turn, and the overall one. Raises MetricError."""
    if not hasattr(found, "overall_score"):
        raise MetricError(f"the function returned {type(found).__name__}; wanted an EvaluationResult")
    by_turn = list(getattr(found, "per_invocation_results", None) or ())
    if by_turn and len(by_turn) != n_turns:
        raise MetricError(f"the function gave {len(by_turn)} results for {n_turns} turns; ADK wants one for each")
    scores = [_score(name, getattr(result, "score", None), index) for index, result in enumerate(by_turn)]
    return [*scores, _score(name, getattr(found, "overall_score", None), None)]


def _score(name: str, value: object, turn: int | None) -> Score:
    if value is None:
        return Score(name, turn=turn, reason="The function evaluated nothing here.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MetricError(f"the function gave a score of {type(value).__name__}; wanted a number")
    return Score(name, float(value), turn, reason=f"The function gave {value:g}.")


def _actual(index: int, turn: TurnRecord) -> JsonObject:
    results: list[JsonValue] = [
        _result(event, event.call) for event in turn.events if event.kind == "tool_result" and event.call
    ]
    said: list[JsonValue] = [[author, [{"text": text}]] for author, text in turn.intermediate]
    steps: JsonObject = {**_calls(turn.tool_calls), "tool_responses": results, "intermediate_responses": said}
    return _invocation(index, turn.query, turn.answer or None, steps)


def _invocation(index: int, query: str, answer: str | None, steps: JsonObject) -> JsonObject:
    return {
        "invocation_id": f"turn-{index + 1}",
        "user_content": {"role": "user", "parts": [{"text": query}]},
        "final_response": None if answer is None else {"role": "model", "parts": [{"text": answer}]},
        "intermediate_data": dict(steps),
    }


def _calls(calls: Sequence[ToolCall]) -> JsonObject:
    return {
        "tool_uses": [{"id": call.id, "name": call.name, "args": dict(call.args)} for call in calls],
        "tool_responses": [],
        "intermediate_responses": [],
    }


def _result(event: Event, call: ToolCall) -> dict[str, JsonValue]:
    response: JsonValue = event.result if isinstance(event.result, dict) else {"result": event.result}
    return {"id": call.id, "name": call.name, "response": response}


def _made(kind: str, value: JsonObject) -> Any:
    """`value` as ADK's class, or as a plain object where ADK is not installed."""
    if not _has_adk():
        return _plain(value)
    module = importlib.import_module(_MODULES[kind])
    return getattr(module, kind).model_validate(dict(value))


def _has_adk() -> bool:
    try:
        return importlib.util.find_spec("google.adk.evaluation.eval_metrics") is not None
    except (ImportError, ValueError):
        return False


def _plain(value: object) -> Any:
    """Objects with the keys as attributes; the arguments and results of calls stay the dicts they are in ADK."""
    if isinstance(value, Mapping):
        found = {key: item if key in ("args", "response") else _plain(item) for key, item in value.items()}
        return SimpleNamespace(**{"text": None, "function_call": None} | found if "text" in found else found)
    return [_plain(item) for item in value] if isinstance(value, list) else value
