"""Eval sets in ADK's new form, for tests."""

from __future__ import annotations

import json
from typing import Any

from evaldesk.formats import (
    read_evalset,
    write_evalset,
)
from evaldesk.model import Case, EvalSet, Turn

EVENTS = {
    "invocation_events": [
        {
            "author": "agent",
            "content": {
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "let me roll"},
                    {"function_call": {"id": "c1", "args": {"sides": 6}, "name": "roll"}},
                    {"function_call": {"id": "c2", "args": {}, "name": "check"}},
                ],
                "role": "model",
            },
            "usage_metadata": {"prompt_token_count": 3},
        },
        {
            "author": "agent",
            "content": {
                "parts": [
                    {"function_response": {"id": "c1", "name": "roll", "response": {"result": 4}}},
                    {"function_response": {"id": "c2", "name": "check", "response": {"result": "no"}}},
                ],
                "role": "user",
            },
        },
        {"author": "agent", "model_version": "m"},
    ]
}


def set_of(turn: dict[str, Any], **case: Any) -> dict[str, Any]:
    conversation = [{"user_content": {"parts": [{"text": "hi"}], "role": "user"}, **turn}]
    return {"eval_set_id": "s", "eval_cases": [{"eval_id": "c", "conversation": conversation, **case}]}


def read(value: Any) -> EvalSet:
    return read_evalset(json.dumps(value).encode(), source="s.evalset.json")


def turn_of(turn: dict[str, Any]) -> Turn:
    return read(set_of(turn)).cases[0].turns[0]


def written_turn(turn: Turn) -> Any:
    written = write_evalset(EvalSet("s", cases=(Case("c", (turn,)),)))
    return json.loads(written)["eval_cases"][0]["conversation"][0]
