"""Judges of rubrics: voted one by one, from criterion, case and turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from evaldesk.metrics import build_metric, missing_reasons
from evaldesk.model import Case, Criterion, Transcript, Turn

from .judged import FINAL, ONE, details, graded, record, rubric, score_of
from .judging import Told

pytestmark = pytest.mark.anyio


def verdicts(**by_id: str) -> str:
    return json.dumps(
        {"rubrics": [{"id": key, "rationale": f"why {key}", "verdict": value} for key, value in by_id.items()]}
    )


async def test_rubrics_are_voted_one_by_one(told: Callable[..., Told]) -> None:
    told(verdicts(a="yes", b="no"), verdicts(a="yes", b="yes"), verdicts(a="no", b="no"))

    turn, whole = (await graded(FINAL, rubrics=[rubric("a", "Short."), rubric("b", "Polite.")], num_samples=3)).scores

    assert (turn.value, whole.value) == (0.5, 0.5)
    assert turn.reason == "1 of 2 rubrics is met; not b: why b."
    rows = details(turn)["rubrics"]
    assert [(row["id"], row["value"], row["votes"]) for row in rows] == [
        ("a", 1.0, {"yes": 2, "no": 1}),
        ("b", 0.0, {"yes": 1, "no": 2}),
    ]


async def test_rubrics_come_from_criterion_case_and_turn(told: Callable[..., Told]) -> None:
    judge = told(verdicts(rubric_1="yes", b="yes", c="yes"))
    turn = Turn(
        "q", rubrics=(rubric("c", "Turn.", "FINAL_RESPONSE_QUALITY"), rubric("d", "Other.", "TOOL_USE_QUALITY"))
    )
    of = Case("c", (turn,), rubrics=(rubric("b", "Untyped."),))

    score = await score_of(FINAL, of=of, rubrics=["Given as text."])

    assert score.value == 1.0
    (_, user) = judge.prompts[0]
    assert "rubric_1: Given as text.\nb: Untyped.\nc: Turn.\n" in user
    assert "Other." not in user


def test_rubrics_of_a_criterion_are_lines_with_their_ids() -> None:
    given: list[Any] = [rubric("a", "Short,\nand good."), "Polite.", "b: Says: yes.", "http://x is named"]

    found: Any = build_metric(Criterion(FINAL, None, {"rubrics": given}))
    again: Any = build_metric(Criterion(FINAL, None, {"rubrics": found.rubrics}))

    assert found.rubrics == ["a: Short, and good.", "Polite.", "b: Says: yes.", "http://x is named"]
    assert again == found


async def test_each_turn_is_judged_by_its_own_rubrics(told: Callable[..., Told]) -> None:
    told(verdicts(a="yes"), verdicts(b="no", c="no"))
    turns = (Turn("q", rubrics=(rubric("a", "A."),)), Turn("q", rubrics=(rubric("b", "B."), rubric("c", "C."))))

    first, second, whole = (
        await graded(FINAL, of=Case("c", turns), played=Transcript((record("x"), record("y"))), num_samples=1)
    ).scores

    assert (first.value, second.value) == (1.0, 0.0)
    assert whole.value == pytest.approx(1 / 3)
    assert whole.details["n_rubrics"] == 3


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (verdicts(a="yes"), "it leaves out rubric 'b'"),
        (verdicts(a="yes", b="no", z="no"), "it judges a rubric 'z' that was not asked for"),
        (
            json.dumps({"rubrics": [{"id": "a", "verdict": "yes"}, {"id": "a", "verdict": "no"}]}),
            "it says both yes and no of rubric 'a'",
        ),
        (verdicts(a="yes", b="not applicable"), "Invalid enum value 'not applicable'"),
    ],
)
async def test_a_partial_or_contradictory_reply_counts_for_nothing(
    told: Callable[..., Told], reply: str, problem: str
) -> None:
    told(reply)

    turn, _ = (await graded(FINAL, rubrics=[rubric("a", "Short."), rubric("b", "Polite.")])).scores

    assert turn.value is None
    assert problem in turn.reason


async def test_a_rubric_that_is_there_twice_is_an_error(told: Callable[..., Told]) -> None:
    told(verdicts(a="yes"))
    of = Case("c", (Turn("q"),), rubrics=(rubric("a", "Again."),))

    score = await score_of(FINAL, of=of, rubrics=[rubric("a", "Short.")])

    assert score.error is not None
    assert "rubric 'a' of the case is there already, in the criterion" in score.error.message


async def test_a_rubric_may_be_named_by_its_text(told: Callable[..., Told]) -> None:
    told(json.dumps({"rubrics": [{"id": "**“Short”.**", "verdict": "yes"}]}))

    assert (await score_of(FINAL, rubrics=[rubric("a", '"Short".')])).value == 1.0


def test_without_rubrics_or_a_scenario_nothing_is_judged() -> None:
    unnamed = missing_reasons(Criterion(FINAL), [ONE])[ONE.id]

    assert unnamed == "Neither the criterion nor the case names a rubric for this metric."
    assert missing_reasons(Criterion("rubric_score", None, {"rubric": "Polite."}), [ONE]).get(ONE.id) is None
    simulated = missing_reasons(Criterion("per_turn_user_simulator_quality_v1"), [ONE]).get(ONE.id)
    assert simulated == "The case has no scenario: its user is not simulated."
