"""What a trial took, against ADK's own answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.metrics import score_trial
from evaldesk.model import (
    Case,
    Criterion,
    Event,
    Role,
    Score,
    ToolCall,
    Transcript,
    Turn,
    TurnRecord,
    Usage,
    trial_verdict,
)
from evaldesk.model.transcript import UNKNOWN

ROWS: list[Any] = [pytest.param(row, id=row["id"]) for row in golden("adk_metrics")["efficiency"]]
CASE = Case("c", (Turn("q"), Turn("q")))
CALL = ToolCall("f")


def used(tokens_in: int = 0, tokens_out: int = 0, ms: float = 0.0, role: Role = "agent") -> Event:
    usage = Usage("m", role=role, tokens_in=tokens_in, tokens_out=tokens_out, duration_ms=ms)
    return Event("usage", usage=usage)


def called(ms: float | None = None) -> tuple[Event, Event]:
    return Event("tool_call", call=CALL), Event("tool_result", call=CALL, duration_ms=ms)


def scored(metric: str, *records: TurnRecord, threshold: float | None = None) -> tuple[list[Score], Score]:
    *turns, whole = score_trial(Transcript(records), CASE, [Criterion(metric, threshold)])
    return turns, whole


def adk_record(invocation: dict[str, Any]) -> TurnRecord:
    """The turn of an ADK invocation; its times become those of one model call and one tool result."""
    data = invocation.get("intermediate_data", {})
    events = [Event("tool_call", call=ToolCall(use["name"])) for use in data.get("tool_uses", [])]
    model_ms = 1000 * invocation.get("model_duration", 0.0)
    for step in data.get("invocation_events", []):
        parts = step.get("content", {}).get("parts", [])
        events += [Event("tool_call", call=ToolCall(part["function_call"]["name"])) for part in parts]
        counts = step.get("usage_metadata", {})
        n_in = counts.get("prompt_token_count", 0) + counts.get("tool_use_prompt_token_count", 0)
        n_out = counts.get("candidates_token_count", 0) + counts.get("thoughts_token_count", 0)
        events.append(used(n_in, n_out, model_ms))
        model_ms = 0.0
    if "tool_duration" in invocation:
        events.append(Event("tool_result", call=CALL, duration_ms=1000 * invocation["tool_duration"]))
    return TurnRecord("u", tuple(events), duration_ms=1000 * invocation.get("duration", 0.0))


@pytest.mark.parametrize("row", ROWS)
def test_efficiency_is_that_of_adk(row: dict[str, Any]) -> None:
    records = [adk_record(invocation) for invocation in row["invocations"]]

    for metric, answer in row["adk"].items():
        turns, whole = scored(metric, *records)

        assert [score.value for score in turns] == answer["turns"], metric
        assert (whole.value, whole.passed) == (answer["overall"], None), metric
        for key, value in (answer["details"] or {}).items():
            if key.startswith(("total", "input", "output")) or key.endswith("seconds"):
                assert whole.details[key] == pytest.approx(value), key


@pytest.mark.parametrize(
    ("metric", "value", "reasons"),
    [
        ("tool_call_count_v1", 1.0, ["2 tool calls.", "0 tool calls.", "1 tool call per turn."]),
        (
            "inference_call_count_v1",
            1.0,
            [
                "1 model call.",
                "The agent reports no model call.",
                "1 model call per turn; 1 of 2 turns says nothing and is left out.",
            ],
        ),
        (
            "token_usage_v1",
            3.5,
            [
                "7 tokens.",
                "The agent reports no tokens.",
                "3.5 tokens per turn; 1 of 2 turns says nothing and counts as 0.",
            ],
        ),
        (
            "invocation_duration_v1",
            1.5,
            [
                "1.50 s.",
                "This turn has no time.",
                "1.50 s per turn; 1 of 2 turns says nothing and is left out. "
                "Of it 0.00 s model, 0.00 s tools, 1.50 s the rest.",
            ],
        ),
    ],
)
def test_efficiency_says_what_was_counted(metric: str, value: float, reasons: list[str]) -> None:
    first = TurnRecord("q", (used(4, 3), used(50, 50, role="judge"), *called(), *called()), duration_ms=1500)

    turns, whole = scored(metric, first, TurnRecord("q"))

    assert whole.value == value
    assert [score.reason for score in (*turns, whole)] == reasons


def test_tokens_that_are_not_whole_pass_no_limit() -> None:
    some = used(4, 3)
    assert some.usage
    cut = replace(some, usage=replace(some.usage, is_least=True))

    turns, whole = scored("token_usage_v1", TurnRecord("q", (used(4, 3),)), TurnRecord("q", (cut,)), threshold=100.0)

    assert [(score.value, score.passed) for score in (*turns, whole)] == [(7.0, True), (None, None), (None, None)]
    assert whole.reason == "A model call did not tell its tokens; known are: 7 tokens per turn."
    assert not whole.details.keys() & {"total_tokens", "input_tokens", "output_tokens"}


def test_calls_made_at_the_same_time_leave_no_negative_rest() -> None:
    _, whole = scored("invocation_duration_v1", TurnRecord("q", (*called(800), *called(800)), duration_ms=1000))

    assert whole.details["tool_seconds"] == 1.6
    assert whole.details["framework_seconds"] == 0.0


@pytest.mark.parametrize("threshold", [None, 1.0, 2.0])
def test_efficiency_gates_only_with_a_threshold(threshold: float | None) -> None:
    criteria = [Criterion("tool_call_count_v1", threshold), Criterion("token_usage_v1")]
    record = TurnRecord("q", (*called(), *called()))

    scores = score_trial(Transcript((record,)), CASE, criteria)

    assert trial_verdict(scores, criteria, None) == {None: "unscored", 1.0: "failed", 2.0: "passed"}[threshold]


def test_a_trial_without_turns_has_no_efficiency() -> None:
    assert scored("tool_call_count_v1", threshold=3.0) == (
        [],
        Score("tool_call_count_v1", threshold=3.0, reason="No turn was played."),
    )


def priced(*costs: float | None, role: Role = "agent") -> TurnRecord:
    return TurnRecord("q", tuple(Event("usage", usage=Usage("some/model", role=role, cost=cost)) for cost in costs))


def test_the_cost_is_that_of_the_trial_and_of_the_agent_alone() -> None:
    with_judge = TurnRecord("q", (*priced(0.002).events, *priced(9.0, role="judge").events))

    turns, whole = scored("cost", priced(0.001, 0.002), with_judge)

    assert [score.value for score in turns] == [0.003, 0.002]
    assert (whole.value, whole.reason) == (0.005, "$0.0050 for 3 model calls.")


def test_an_unknown_price_is_never_taken_for_nothing() -> None:
    turns, whole = scored("cost", priced(0.001), priced(0.001, None))

    assert [score.value for score in turns] == [0.001, None]
    assert (whole.value, whole.reason) == (None, "The price of some/model is not known.")
    assert scored("cost", priced())[1].reason == "The agent reports no model call."
    assert scored("cost", priced(0.0))[1].value == 0.0


def test_turns_are_counted() -> None:
    assert scored("turn_count", TurnRecord("q"))[1].reason == "1 of 2 turns."
    assert scored("turn_count", TurnRecord("q"), TurnRecord("q"))[1].value == 2.0


def calls(*args: object) -> TurnRecord:
    return TurnRecord("q", tuple(Event("tool_call", call=ToolCall("f", {"x": arg})) for arg in args))  # type: ignore[dict-item]


def test_calls_made_again_are_counted_turn_by_turn() -> None:
    turns, whole = scored("repeated_call_count", calls(1, 1.0, 2, 1), calls(1, True))

    assert [score.value for score in turns] == [2.0, 0.0]
    assert (whole.value, whole.reason) == (2.0, "2 calls made again: f 2 times.")
    assert turns[1].reason == "No call was made again."


def test_calls_made_again_may_be_those_of_an_earlier_turn() -> None:
    transcript = Transcript((calls(1), calls(1, 2)))
    criterion = Criterion("repeated_call_count", None, {"scope": "conversation"})

    *turns, whole = score_trial(transcript, CASE, [criterion])

    assert [score.value for score in turns] == [0.0, 1.0]
    assert (whole.value, whole.reason) == (1.0, "1 call made again: f.")


@pytest.mark.parametrize(
    ("last", "value"),
    [(UNKNOWN, None), (Usage("small", is_least=True), 2.0)],
    ids=["a call that was not seen", "a call that was seen without its tokens"],
)
def test_a_number_of_model_calls_that_were_not_all_seen_is_unscored(last: Usage, value: float | None) -> None:
    record = TurnRecord("q", (used(4, 3), Event("usage", usage=last)))

    *_, score = scored("inference_call_count_v1", record, threshold=5.0)

    assert score.value == value
    assert ("not all of them were seen" in score.reason) is (value is None)
