"""The state at the end of a session: as a whole, and at a path."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, Event, Score, ToolCall, Transcript, Turn, TurnRecord, default_criteria
from evaldesk.model.decisions import Decision, Waiting


def ended(metric: str, state: dict[str, Any], final_state: dict[str, Any] | None = None, **options: Any) -> Score:
    transcript = Transcript((TurnRecord("q", state_after=state),))
    case = Case("c", (Turn("q"),), final_state=final_state)
    return score_trial(transcript, case, [Criterion(metric, 1.0, options)])[-1]


WANTED = {"cart": {"n": 2}, "paid": True}
SAME = {"paid": True, "cart": {"n": 2.0}}
MORE_INSIDE = {"cart": {"n": 2, "at": "noon"}, "paid": True}
MORE_BESIDE = {**WANTED, "user": "ann"}


@pytest.mark.parametrize(
    ("state", "keys", "superset", "equal"),
    [
        pytest.param(SAME, 1.0, 1.0, 1.0, id="same"),
        pytest.param(MORE_BESIDE, 1.0, 1.0, 0.0, id="more-beside"),
        pytest.param(MORE_INSIDE, 0.0, 1.0, 0.0, id="more-inside"),
        pytest.param({"cart": {"n": 2}, "paid": 1}, 0.0, 0.0, 0.0, id="true-is-not-one"),
        pytest.param({"cart": {}, "paid": True}, 0.0, 0.0, 0.0, id="less-inside"),
        pytest.param({"paid": True}, 0.0, 0.0, 0.0, id="less"),
    ],
)
def test_how_much_more_may_stand_in_the_state(
    state: dict[str, Any], keys: float, superset: float, equal: float
) -> None:
    found = [ended("final_state_match", state, WANTED, compare=how).value for how in ("keys", "superset", "equal")]

    assert found == [keys, superset, equal]
    assert ended("final_state_match", state, WANTED).value == keys


def test_the_reason_names_what_is_not_expected() -> None:
    score = ended("final_state_match", {**MORE_BESIDE, "paid": False}, WANTED, compare="equal")

    assert score.reason == ("1 of 2 expected keys has its value at the end: paid not as expected; user not expected.")
    assert score.details["extra"] == ["user"]


def test_ignored_keys_play_no_part() -> None:
    score = ended("final_state_match", {**MORE_BESIDE, "paid": False}, WANTED, compare="equal", ignore=["user", "paid"])

    assert score.value == 1.0


STATE = {"orders": [{"id": 1, "status": "paid"}, {"id": 2, "status": "open"}], "total": 3, "note": None}


@pytest.mark.parametrize(
    ("options", "value", "reason"),
    [
        ({"path": "$.total"}, 1.0, "$.total finds one value."),
        ({"path": "$.note"}, 1.0, "$.note finds one value."),
        ({"path": "$.gone"}, 0.0, "$.gone finds nothing."),
        ({"path": "$.gone", "want": "absent"}, 1.0, "$.gone finds nothing."),
        ({"path": "$.total", "want": "every", "value": 3.0}, 1.0, "$.total finds one value, 3, as wanted."),
        ({"path": "$.total", "want": "every", "value": "3"}, 0.0, '$.total finds one value, 3, wanted "3".'),
        ({"path": "$.gone", "want": "every", "value": 3}, 0.0, "$.gone finds nothing."),
        (
            {"path": "$.orders[*].status", "want": "every", "value": "paid"},
            0.0,
            '$.orders[*].status finds 2 values, 1 of them "paid".',
        ),
        (
            {"path": "$.orders[*].status", "want": "some", "value": "paid"},
            1.0,
            '$.orders[*].status finds 2 values, 1 of them "paid".',
        ),
        (
            {"path": "$.orders[?@.id == 2].status", "want": "every", "value": "open"},
            1.0,
            '$.orders[?@.id == 2].status finds one value, "open", as wanted.',
        ),
    ],
    ids=str,
)
def test_what_a_path_finds(options: dict[str, Any], value: float, reason: str) -> None:
    score = ended("state_path", STATE, **options)

    assert (score.value, score.reason) == (value, reason)


def test_a_path_that_finds_too_much_is_an_error() -> None:
    score = ended("state_path", {"all": list(range(10_001))}, path="$.all[*]")

    assert score.verdict == "errored"
    assert "finds more than 10,000 values; name a narrower path" in score.reason


def test_a_path_into_a_state_that_is_too_deep_is_an_error() -> None:
    state: dict[str, Any] = {}
    for _ in range(400):
        state = {"a": state}

    score = ended("state_path", state, path="$..b")

    assert score.verdict == "errored"
    assert "cannot be followed in this state" in score.reason


REFUND = {"turn": 1, "tool": "refund", "decision": "approve"}


def asked_for(*scripted: dict[str, Any], made: tuple[Decision, ...] = (), calls: tuple[str, ...] = ()) -> list[Score]:
    """The scores of a trial of one turn in which these decisions were made and these tools were called."""
    decided = (Event("decision", waiting=Waiting("w", each.tool), decision=each) for each in made)
    called = (Event("tool_call", call=ToolCall(name, {})) for name in calls)
    case = Case("c", (Turn("q"), Turn("q")), extra={"human_decisions": [*scripted]})
    record = TurnRecord("q", (*decided, *called))
    return [*score_trial(Transcript((record,)), case, [Criterion("decisions_asked", 1.0)])]


def test_a_decision_that_was_asked_for_passes_and_one_without_a_turn_asserts_nothing() -> None:
    *_, score = asked_for(REFUND, made=(Decision("approve", "refund"),), calls=("refund",))
    (bare,) = asked_for({"tool": "refund", "decision": "approve"})

    assert (score.value, score.passed) == (1.0, True)
    assert score.reason == "1 of 1 scripted decision was asked for."
    assert (bare.value, bare.reason) == (None, "The case scripts no decision of a turn.")


def test_a_tool_that_runs_without_the_approval_of_the_case_fails_by_name() -> None:
    turn, score = asked_for(REFUND, calls=("refund",))

    assert (turn.turn, turn.value, score.value, score.passed) == (0, 0.0, 0.0, False)
    assert "nobody was asked to approve refund, which was called all the same" in score.reason


def test_each_decision_stands_for_one_and_a_denial_for_no_approval() -> None:
    approved = Decision("approve", "refund")

    *_, one = asked_for(REFUND, REFUND, made=(approved,))
    *_, denied = asked_for(REFUND, made=(Decision("deny", "refund"),))
    *_, other = asked_for({**REFUND, "tool": "pay"}, made=(approved,))
    *_, later = asked_for({**REFUND, "turn": 2}, made=(approved,))

    assert [each.value for each in (one, denied, other, later)] == [0.5, 0.0, 0.0, 0.0]
    assert "turn 2: never played, so nobody was asked to approve refund" in later.reason


@pytest.mark.parametrize(
    ("scripted", "is_strict", "is_judged"), [([REFUND], False, True), ([REFUND], True, False), ([], False, False)]
)
def test_a_scripted_decision_of_a_turn_is_judged_by_default(
    scripted: list[Any], is_strict: bool, is_judged: bool
) -> None:
    case = Case("c", (Turn("q"),), extra={"human_decisions": scripted})

    found = default_criteria([case], strict=is_strict)

    assert ("decisions_asked" in [each.metric for each in found]) is is_judged
