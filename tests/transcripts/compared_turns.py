"""Imported cases and played turns in one shape, to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from evaldesk.model import Case, TurnRecord


def turns_of_case(case: Case) -> list[dict[str, Any]]:
    """What an imported case expects of each turn."""
    return [
        {
            "query": turn.query,
            "calls": [(call.name, dict(call.args)) for call in turn.expected.tool_calls or ()],
            "said": [text for _, text in turn.expected.intermediate],
            "answer": turn.expected.reference,
            "results": [each["response"] for each in cast("Any", turn.expected.extra.get("tool_responses", []))],
        }
        for turn in case.turns
    ]


def turns_of_trial(turns: Sequence[TurnRecord]) -> list[dict[str, Any]]:
    """What a trial shows of each turn, in the words of a case; a result that is no object is wrapped as ADK does."""
    return [
        {
            "query": turn.query,
            "calls": [(call.name, dict(call.args)) for call in turn.tool_calls],
            "said": [text for _, text in turn.intermediate],
            "answer": turn.answer,
            "results": [
                event.result if isinstance(event.result, dict) else {"result": event.result}
                for event in turn.events
                if event.kind == "tool_result"
            ],
        }
        for turn in turns
    ]
