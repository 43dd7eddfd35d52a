"""Event logs of OpenHands: of its SDK, and the trajectories that its page saved before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaldesk.formats.files import read_file

SAMPLE = Path(__file__).parents[2] / "formats/exchange_samples" / "openhands-log.jsonl"


def test_a_log_of_the_sdk_is_a_case_and_its_trial() -> None:
    imported = read_file(SAMPLE.read_bytes(), "events.jsonl")

    [run] = imported.runs
    [trial] = run.results
    [turn] = trial.transcript.turns
    assert (turn.query, turn.answer) == ("List the files.", "a.c is there.")
    assert [(call.name, call.args) for call in turn.tool_calls] == [
        ("terminal", {"command": "ls"}),
        ("finish", {"message": "a.c is there."}),
    ]
    assert [event.result for event in turn.events if event.kind == "tool_result"] == ["a.c"]
    assert (trial.tokens, run.model) == (120, "m")
    assert trial.cost == pytest.approx(0.02)
    assert turn.duration_ms == pytest.approx(3_000)


BROKEN = {"kind": "ConversationErrorEvent", "source": "environment", "timestamp": "2026-01-01T00:00:09"}
ASKED_AGAIN = {
    "kind": "MessageEvent",
    "source": "user",
    "timestamp": "2026-01-01T00:00:10",
    "llm_message": {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
}
STATE = {"kind": "ConversationStateUpdateEvent", "source": "environment", "timestamp": "x", "key": "a", "value": "b"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([{**BROKEN, "code": "LLMAuthenticationError", "detail": "no key"}], "LLMAuthenticationError: no key"),
        ([{**BROKEN, "code": "E", "detail": "x"}, STATE], "E: x"),
        (
            [{**BROKEN, "code": None, "detail": 7}, {"source": "x", "timestamp": "x", "kind": ["MessageEvent"]}],
            "the conversation broke off",
        ),
        ([{**BROKEN, "code": "E", "detail": "x"}, ASKED_AGAIN], None),
        ([{**BROKEN, "code": "MaxIterationsReached", "detail": "Agent reached maximum iterations limit (5)"}], None),
    ],
    ids=["broke off", "and its state after it", "without words", "went on", "reached its limit"],
)
def test_a_conversation_that_broke_off_is_errored_and_no_event_of_it_is_left_out(
    more: list[dict[str, object]], message: str | None
) -> None:
    lines = [SAMPLE.read_text().rstrip("\n"), *map(json.dumps, more)]

    imported = read_file("\n".join(lines).encode(), "events.jsonl")

    [trial] = imported.runs[0].results
    assert (trial.error and trial.error.message) == message
    assert imported.refused == ()
