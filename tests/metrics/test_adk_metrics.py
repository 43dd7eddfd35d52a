"""The two metrics of ADK against ADK's own answers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.errors import UsageError
from evaldesk.metrics import build_metric, rouge1, score_trial
from evaldesk.metrics.responses.rouge import rouge_tokens, score_rouge1
from evaldesk.model import Case, Criterion, Event, Expected, Score, ToolCall, Transcript, Turn, TurnRecord, adk_verdict

TABLE: dict[str, Any] = golden("adk_metrics")
Row = dict[str, Any]
Calls = list[list[Any]]

TRAJECTORY, RESPONSE = "tool_trajectory_avg_score", "response_match_score"


def rows(key: str) -> list[Any]:
    """The known answers under `key`."""
    return [pytest.param(row, id=str(row.get("id", index))) for index, row in enumerate(TABLE[key])]


def tool_calls(calls: Calls) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name, args) for name, args in calls)


def played(calls: Calls = (), answer: str | None = None) -> TurnRecord:  # type: ignore[assignment]
    events = [Event("tool_call", call=call) for call in tool_calls(calls)]
    return TurnRecord("q", (*events, *([] if answer is None else [Event("agent_message", text=answer)])))


def asked(calls: Calls | None = None, reference: str | None = None) -> Turn:
    return Turn("q", Expected(None if calls is None else tool_calls(calls), reference=reference))


def scored(turns: list[Turn], records: list[TurnRecord], criterion: Criterion) -> tuple[list[Score], Score]:
    *by_turn, whole = score_trial(Transcript(tuple(records)), Case("c", tuple(turns)), [criterion])
    return by_turn, whole


def status(score: Score) -> str:
    return {True: "PASSED", False: "FAILED", None: "NOT_EVALUATED"}[score.passed]


@pytest.mark.parametrize("row", rows(TRAJECTORY))
def test_trajectory_of_one_turn_is_that_of_adk(row: Row) -> None:
    for mode, answer in row["adk"].items():
        match_type, _, ignore_args = mode.partition("+")
        options = {"match_type": match_type, "ignore_args": bool(ignore_args)}
        criterion = Criterion(TRAJECTORY, row["threshold"], options)

        _, whole = scored([asked(row["expected"])], [played(row["actual"])], criterion)

        assert [whole.value, status(whole)] == answer, mode
        assert whole.details["adk_value"] == answer[0]


@pytest.mark.parametrize("row", rows("tool_trajectory_turns"))
def test_trajectory_over_turns_is_that_of_adk(row: Row) -> None:
    turns, records = [asked(calls) for calls in row["expected"]], [played(calls) for calls in row["actual"]]

    by_turn, whole = scored(turns, records, Criterion(TRAJECTORY, row["threshold"]))

    assert whole.value == row["adk"]["overall_score"]
    assert status(whole) == row["adk"]["overall_status"]
    assert [[score.value, status(score)] for score in by_turn] == row["adk"]["per_invocation"]


@pytest.mark.parametrize("row", rows("tool_trajectory_shapes"))
def test_adk_takes_absent_calls_for_no_calls(row: Row) -> None:
    calls: Calls = [["a", {"x": 1}]]
    turn = asked(None if row["expected_shape"] == "absent" else calls)
    record = played([] if row["actual_shape"] == "absent" else calls)

    scores = build_metric(Criterion(TRAJECTORY)).score(Transcript((record,)), Case("c", (turn,)))

    assert isinstance(scores, list)
    whole = scores[-1]
    assert whole.details["adk_value"] == row["adk"]["overall_score"]
    assert whole.value == (None if row["expected_shape"] == "absent" else row["adk"]["overall_score"])


@pytest.mark.parametrize("row", rows("match_type_spellings"))
def test_match_type_is_spelled_as_in_adk(row: Row) -> None:
    criterion = Criterion(TRAJECTORY, 1.0, {"match_type": row["match_type"]})

    if isinstance(row["adk"], dict):
        with pytest.raises(UsageError, match="no match_type named"):
            build_metric(criterion)
    else:
        assert build_metric(criterion).match_type == row["adk"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("row", rows(RESPONSE))
def test_rouge_is_that_of_adk(row: Row) -> None:
    found = score_rouge1(row["reference"], row["candidate"])

    assert list(rouge_tokens(row["candidate"])) == row["adk"]["candidate_tokens"]
    assert list(rouge_tokens(row["reference"])) == row["adk"]["reference_tokens"]
    assert found.fmeasure == rouge1(row["reference"], row["candidate"]) == row["adk"]["score"]
    assert (found.precision, found.recall) == (row["adk"]["precision"], row["adk"]["recall"])


@pytest.mark.parametrize("row", rows("response_match_score_turns"))
def test_response_match_over_turns_is_that_of_adk(row: Row) -> None:
    turns = [asked(reference=reference) for reference in row["expected"]]
    records = [played(answer=answer) for answer in row["actual"]]

    by_turn, whole = scored(turns, records, Criterion(RESPONSE, row["threshold"]))

    if "error" in row["adk"]:
        assert [score.value for score in by_turn] == [1.0]  # ADK ends the whole run here
    elif None in row["expected"]:
        assert whole.value is None
        assert "reference" in whole.reason
    else:
        assert [whole.value, status(whole)] == [row["adk"]["overall_score"], row["adk"]["overall_status"]]
        assert [[score.value, status(score)] for score in by_turn] == row["adk"]["per_invocation"]
        assert whole.details["adk_value"] == row["adk"]["overall_score"]


@pytest.mark.parametrize("row", rows("final_eval_status"))
def test_adk_verdict_follows_from_what_was_evaluated(row: Row) -> None:
    passed = {"PASSED": True, "FAILED": False}
    scores = [Score(f"m{index}", passed=passed.get(name)) for index, name in enumerate(row["metric_statuses"])]

    assert adk_verdict(scores) == {"NOT_EVALUATED": "unscored"}.get(row["adk"], row["adk"].lower())


@pytest.mark.parametrize(
    ("expected", "actual", "match_type", "value", "reason"),
    [
        pytest.param([], [], "EXACT", 1.0, "No call was expected and none was made.", id="none"),
        pytest.param(
            [["roll", {"sides": 20}], ["check", {"nums": [7, 12, 17]}]],
            [["roll", {"sides": 20}], ["check", {"nums": [17]}]],
            "EXACT",
            0.0,
            "Call 2 of 2 has other arguments: nums lacks 7 and 12. Exact order, exact arguments.",
            id="list-lacks",
        ),
        pytest.param(
            [["roll", {"sides": 6}]],
            [["roll", {"sides": 8, "unit": "m"}]],
            "EXACT",
            0.0,
            "Call 1 of 1 has other arguments: sides is 8, expected 6; unit is not expected. "
            "Exact order, exact arguments.",
            id="values",
        ),
        pytest.param(
            [["a", {}], ["b", {}]],
            [["a", {}]],
            "IN_ORDER",
            0.0,
            "Call 2 of 2, b, was not made. In order, extra calls allowed, exact arguments.",
            id="missing",
        ),
        pytest.param(
            [["a", {}]],
            [["a", {}], ["b", {}]],
            "EXACT",
            0.0,
            "Call 2 of 2, b, was not expected. Exact order, exact arguments.",
            id="extra",
        ),
        pytest.param(
            [["a", {}], ["b", {}], ["c", {}]],
            [["b", {}], ["a", {}], ["d", {}]],
            "EXACT",
            0.0,
            "Of the calls, 1 missing, 1 extra, 1 moved. Exact order, exact arguments.",
            id="several",
        ),
        pytest.param(
            [["a", {"x": True}]],
            [["a", {"x": 1}]],
            "EXACT",
            1.0,
            "The one expected call was made. ADK takes 1 and true for the same; strictly they differ. "
            "Exact order, exact arguments.",
            id="python-equality",
        ),
        pytest.param(
            [["a", {}], ["b", {}]],
            [],
            "ANY_ORDER",
            0.0,
            "None of the 2 expected calls was made. Any order, extra calls allowed, exact arguments.",
            id="nothing",
        ),
    ],
)
def test_trajectory_says_why(expected: Calls, actual: Calls, match_type: str, value: float, reason: str) -> None:
    criterion = Criterion(TRAJECTORY, 1.0, {"match_type": match_type})

    (turn,), whole = scored([asked(expected)], [played(actual)], criterion)

    assert (turn.value, turn.reason) == (value, reason)
    assert whole.reason == reason


def test_turns_that_assert_no_calls_are_left_out_of_the_mean() -> None:
    turns = [asked([["a", {}]]), asked(None)]

    by_turn, whole = scored(turns, [played([["a", {}]]), played([["b", {}]])], Criterion(TRAJECTORY, 1.0))

    assert [(score.turn, score.is_applicable) for score in by_turn] == [(0, True), (1, False)]
    assert (whole.value, whole.passed) == (1.0, True)
    assert whole.details == {"n_turns": 1, "adk_value": 0.5, "adk_turns": [1.0, 0.0]}


def test_turns_that_were_never_played_score_zero() -> None:
    by_turn, whole = scored([asked([["a", {}]]), asked([])], [played([["a", {}]])], Criterion(TRAJECTORY, 1.0))

    assert [score.value for score in by_turn] == [1.0, 0.0]
    assert whole.value == 0.5
    assert whole.reason == "Mean of 2 turns; lowest is turn 2 with 0.00: This turn was never played."
    assert whole.details["adk_value"] is None


def test_response_match_says_how_many_words_agree() -> None:
    reference = "You rolled a 17. Of your last three rolls, 7 and 17 are prime; 12 is not."
    answer = "You rolled a 17. Of your last three rolls, 17 is prime."

    (turn,), _ = scored([asked(reference=reference)], [played(answer=answer)], Criterion(RESPONSE, 0.7))

    assert turn.reason == "12 of 17 expected words, 12 of 12 given, after stemming."
    assert turn.details["n_shared"] == 12


@pytest.mark.parametrize(
    ("reference", "answer", "reason"),
    [
        ("hello", None, "The agent gave no answer."),
        ("", "hello", "The reference has no words to compare with."),
        ("hello", "🎲", "The answer has no words to compare."),
    ],
)
def test_response_match_of_nothing_is_zero_with_a_reason(reference: str, answer: str | None, reason: str) -> None:
    (turn,), whole = scored([asked(reference=reference)], [played(answer=answer)], Criterion(RESPONSE, 0.8))

    assert (turn.value, turn.passed, turn.reason) == (0.0, False, reason)
    assert whole.value == 0.0


def test_means_are_added_up_as_adk_does() -> None:
    turns = [asked([["a", {}]])] * 10
    records = [played([["a", {}]])] * 3 + [played()] * 7

    _, whole = scored(turns, records, Criterion(TRAJECTORY, 0.3))

    assert (whole.value, whole.passed) == (0.3, True)
