"""The verdicts of trials and turns, over all combinations of what their scores may be."""

from __future__ import annotations

from itertools import product

import pytest

from evaldesk.model import Counts, Criterion, ErrorRecord, Event, Score, TurnRecord, adk_verdict, trial_verdict
from evaldesk.model.conclusion import turn_verdict

ERROR = ErrorRecord("agent_raised", "It raised.")
KINDS = {
    "passed": Score("m", 1.0, passed=True),
    "failed": Score("m", 0.0, passed=False),
    "errored": Score("m", error=ERROR),
    "unscored": Score("m"),
    "not_applicable": Score("m", is_applicable=False),
    "missing": None,
}


def score(kind: str, metric: str, turn: int | None = None) -> list[Score]:
    found = KINDS[kind]
    return (
        []
        if found is None
        else [
            Score(metric, found.value, turn, passed=found.passed, error=found.error, is_applicable=found.is_applicable)
        ]
    )


@pytest.mark.parametrize("kinds", [*product(KINDS, repeat=2)], ids="-".join)
def test_a_trial_passes_where_every_gate_that_applies_has_passed(kinds: tuple[str, str]) -> None:
    criteria = [Criterion("a", 0.5), Criterion("b", 0.5), Criterion("shown", None)]
    scores = [*score(kinds[0], "a"), *score(kinds[1], "b")]
    beside = [*score("failed", "a", turn=0), *score("errored", "b", turn=1), *score("failed", "shown")]
    applicable = [kind for kind in kinds if kind != "not_applicable"]
    if "errored" in kinds:
        verdict = "errored"
    elif not applicable or {"unscored", "missing"} & {*applicable}:
        verdict = "unscored"
    else:
        verdict = "failed" if "failed" in applicable else "passed"

    assert trial_verdict(scores, criteria, None) == verdict
    assert trial_verdict([*scores, *beside], criteria, None) == verdict
    assert trial_verdict(scores, criteria, ERROR) == "errored"
    assert trial_verdict(scores, criteria[2:], None) == "unscored"


@pytest.mark.parametrize("kinds", [*product(KINDS, repeat=2)], ids="-".join)
def test_a_turn_passes_where_all_that_judges_it_does(kinds: tuple[str, str]) -> None:
    scores = [*score(kinds[0], "a", 0), *score(kinds[1], "b", 0)]
    judged = {"passed", "failed"} & {*kinds}
    verdict = "unscored" if not judged else "failed" if "failed" in judged else "passed"

    assert turn_verdict(TurnRecord("q"), scores) == ("errored" if "errored" in kinds else verdict)
    assert turn_verdict(TurnRecord("q", (Event("error", error=ERROR),)), scores) == "errored"
    assert turn_verdict(None, scores) == "unplayed"
    whole = [*score(kinds[0], "a"), *score(kinds[1], "b"), *score("failed", "a", 0)]
    assert adk_verdict(whole) == verdict


def test_all_have_passed_where_one_was_planned_and_passed() -> None:
    assert Counts(1, 1).all_passed
    assert not Counts(2, 1).all_passed
    assert not Counts().all_passed


def test_the_rate_of_one_case_is_kept_beside_cases_without_a_planned_trial() -> None:
    case = Counts(4, 2, 2, case_rate=0.25)

    assert (case + Counts()).case_rate == (Counts() + case).case_rate == 0.25
    assert (case + case).case_rate is None
