"""The state at the end of a session: as a whole, and at a path."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, Score, Transcript, Turn, TurnRecord


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
