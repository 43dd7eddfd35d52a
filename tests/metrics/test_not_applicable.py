"""A metric judges where the case asserts what it needs; elsewhere its score is not applicable and counts nowhere."""

from __future__ import annotations

from itertools import product

import pytest

from evaldesk.metrics import METRICS, metric_info, score_trial
from evaldesk.model import (
    Case,
    Criterion,
    ErrorRecord,
    Event,
    Expected,
    Score,
    ScoreVerdict,
    ToolCall,
    Transcript,
    Turn,
    TurnRecord,
    Verdict,
    trial_verdict,
)

CRITERIA = (Criterion("a", 0.5), Criterion("b", 0.5), Criterion("informs"))
SCORES: dict[ScoreVerdict, Score] = {
    "passed": Score("", 1.0, passed=True),
    "failed": Score("", 0.0, passed=False),
    "errored": Score("", error=ErrorRecord("metric", "boom")),
    "unscored": Score("", reason="The judge's reply cannot be read."),
    "not_applicable": Score("", reason="No turn of this case has a reference answer.", is_applicable=False),
}
BY_TURN = [name for name in METRICS if metric_info(name).needs in ("tool_calls", "reference", "reference_json")]
CALL = ToolCall("roll_die", {"sides": 6})
PLAYED = Transcript(
    tuple(
        TurnRecord(f"q{index}", (Event("tool_call", call=CALL), Event("agent_message", text='{"n": 4}')))
        for index in range(3)
    )
)
SOME = Case("some", (Turn("q0"), Turn("q1", Expected((CALL,), (), '{"n": 4}')), Turn("q2")))


def score(metric: str, verdict: ScoreVerdict) -> Score:
    found = SCORES[verdict]
    return Score(metric, found.value, None, 0.5, found.passed, found.reason, {}, found.error, found.is_applicable)


@pytest.mark.parametrize(("a", "b"), list(product(SCORES, SCORES)))
def test_the_verdict_of_a_trial_follows_from_the_criteria_that_apply(a: ScoreVerdict, b: ScoreVerdict) -> None:
    applying = {a, b} - {"not_applicable"}
    expected: Verdict = "passed"
    if "errored" in applying:
        expected = "errored"
    elif "unscored" in applying or not applying:
        expected = "unscored"
    elif "failed" in applying:
        expected = "failed"

    assert trial_verdict([score("a", a), score("b", b)], CRITERIA, None) == expected
    assert trial_verdict([score("a", a), score("b", b)], CRITERIA, ErrorRecord("agent", "boom")) == "errored"


def test_a_criterion_without_any_score_leaves_the_trial_unscored() -> None:
    assert trial_verdict([score("a", "passed")], CRITERIA, None) == "unscored"
    assert trial_verdict([score("a", "not_applicable")], CRITERIA, None) == "unscored"


@pytest.mark.parametrize("informs", SCORES)
def test_a_metric_that_only_informs_changes_no_verdict(informs: ScoreVerdict) -> None:
    scores = [score("a", "passed"), score("b", "not_applicable"), score("informs", informs)]

    assert trial_verdict(scores, CRITERIA, None) == "passed"


@pytest.mark.parametrize("name", [name for name in BY_TURN if not metric_info(name).has_judge])
def test_a_turn_that_asserts_nothing_is_not_applicable_and_in_no_mean(name: str) -> None:
    scores = score_trial(PLAYED, SOME, [Criterion(name, 0.5)])

    assert [each.turn for each in scores] == [0, 1, 2, None]
    assert [each.verdict for each in scores][:3] == ["not_applicable", scores[1].verdict, "not_applicable"]
    assert scores[3].value == scores[1].value
    assert scores[0].reason.startswith("This turn ")


@pytest.mark.parametrize("name", [name for name in BY_TURN if not metric_info(name).has_judge])
def test_strict_scoring_says_nothing_of_such_a_turn(name: str) -> None:
    assert [each.turn for each in score_trial(PLAYED, SOME, [Criterion(name, 0.5)], strict=True)] == [1, None]
