"""A metric that takes the whole conversation as one is drawn as one, with calls of other turns named."""

from __future__ import annotations

from typing import Any

from evaldesk.diff.conversation_diff import turn_diffs
from evaldesk.diff.divergence import first_divergence
from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, Event, Expected, Score, ToolCall, Transcript, TrialResult, Turn, TurnRecord
from evaldesk.wording.trial_text import trial_text

FIND, BOOK, PAY = ToolCall("find", {"q": "rome"}), ToolCall("book", {"id": 7}), ToolCall("pay", {"sum": 3})
CASE = Case("c", (Turn("q", Expected((FIND, BOOK))), Turn("open"), Turn("q", Expected((PAY,)))))
WHOLE = Criterion("tool_exact", 1.0, {"scope": "conversation"})
LOOSE = Criterion("tool_any_order/loose", 1.0, {"scope": "conversation", "args_by_tool": {"pay": "ignore"}})


def played(*turns: tuple[ToolCall, ...]) -> Transcript:
    return Transcript(
        tuple(
            TurnRecord("q", tuple(Event(kind, call=call) for call in calls for kind in ("tool_call", "tool_result")))
            for calls in turns
        )
    )


def drawn(transcript: Transcript, *criteria: Criterion) -> tuple[list[Score], list[list[tuple[Any, ...]]]]:
    scores = list(score_trial(transcript, CASE, criteria))
    diffs = turn_diffs(CASE, transcript, scores)
    return scores, [
        [
            (
                row.op,
                row.expected and row.expected.name,
                row.actual and row.actual.name,
                row.expected_turn,
                row.actual_turn,
            )
            for row in diff.calls
        ]
        for diff in diffs
    ]


def test_calls_of_the_same_turn_are_drawn_as_ever() -> None:
    transcript = played((FIND, BOOK), (), (PAY,))

    (score,), rows = drawn(transcript, WHOLE)

    assert score.value == 1.0
    assert rows == [
        [("=", "find", "find", None, None), ("=", "book", "book", None, None)],
        [],
        [("=", "pay", "pay", None, None)],
    ]


def test_a_call_of_another_turn_stands_in_both_and_is_no_divergence_to_a_metric_of_the_whole() -> None:
    transcript = played((FIND,), (), (BOOK, PAY))

    (score,), rows = drawn(transcript, WHOLE)

    assert score.value == 1.0
    assert rows == [
        [("=", "find", "find", None, None), ("=", "book", None, None, 3)],
        [],
        [("=", None, "book", 1, None), ("=", "pay", "pay", None, None)],
    ]
    assert first_divergence(CASE, transcript, [score]) is None
    assert str(first_divergence(CASE, transcript)) == "turn 1, call 2: book was expected and not called"


def test_what_the_metric_calls_moved_is_named_with_its_turn() -> None:
    transcript = played((PAY,), (), (FIND, BOOK))

    (score,), rows = drawn(transcript, WHOLE)

    assert score.reason == "pay came as call 1, expected as call 3."
    assert rows[0][0] == ("moved", None, "pay", 3, None)
    assert rows[2][0] == ("moved", "pay", None, None, 1)
    assert str(first_divergence(CASE, transcript, [score])) == "turn 1, call 1: pay was expected as call 1 of turn 3"


def test_calls_that_were_accepted_elsewhere_say_why() -> None:
    transcript = played((FIND, ToolCall("pay", {"sum": 4}), BOOK), (), ())

    (score,) = score_trial(transcript, CASE, [LOOSE])
    rows = [row for diff in turn_diffs(CASE, transcript, [score]) for row in diff.calls if row.because]

    assert score.value == 1.0
    assert [(row.op, row.expected_turn, row.actual_turn) for row in rows] == [("moved", 3, None), ("moved", None, 1)]
    assert {row.because for row in rows} == {("arguments are ignored",)}


def test_results_stand_only_where_the_call_was_made() -> None:
    transcript = played((FIND,), (), (BOOK, PAY))
    scores = score_trial(transcript, CASE, [WHOLE])

    first, _, last = turn_diffs(CASE, transcript, scores)

    assert [row.has_result for row in first.calls] == [True, False]
    assert [row.has_result for row in last.calls] == [True, True]
    assert (first.summary, last.summary) == ("1 call", "2 calls")


def test_a_metric_of_single_turns_has_its_turns_drawn_apart() -> None:
    transcript = played((FIND,), (), (BOOK, PAY))

    _, rows = drawn(transcript, WHOLE, Criterion("tool_exact/turns", 1.0))

    assert rows[0] == [("=", "find", "find", None, None), ("-", "book", None, None, None)]
    assert rows[2] == [("+", None, "book", None, None), ("=", "pay", "pay", None, None)]


def test_the_text_of_a_failed_trial_names_the_other_turn() -> None:
    transcript = played((FIND,), (), (BOOK, PAY))
    scores = score_trial(transcript, CASE, [WHOLE])
    result = TrialResult(1, 0, 0, "finished", "failed", transcript=transcript, scores=scores)

    lines = trial_text(CASE, result, is_whole=True).splitlines()

    assert "    > book(id=7)   made as call 1 of turn 3" in lines
    assert "    > book(id=7)   expected as call 2 of turn 1" in lines


def test_a_value_that_misses_its_threshold_does_not_read_as_if_it_kept_to_it() -> None:
    scores = (
        Score("turn_count", 3.004, threshold=3.0, passed=False),
        Score("response_match_score", 0.799, threshold=0.8, passed=False),
    )

    text = trial_text(Case("c", (Turn("q"),)), TrialResult(1, 0, 0, "finished", "failed", scores=scores))

    assert "turn_count >3.00 (needs at most 3.00)" in text
    assert "response_match_score <0.80 (needs at least 0.80)" in text
