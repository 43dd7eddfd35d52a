"""Agreement between people, and between people and a metric."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.agreement import Agreement, JudgeSkill, agreement, judge_skill, nominal_alpha
from evaldesk.wording.agreement import alpha_sentence, enough_sentence, kappa_words, skill_sentence
from evaldesk.wording.noise import corrected_sentence

UNITS = st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["passed", "failed"])), max_size=12)


@settings(deadline=None, max_examples=30)
@given(UNITS)
def test_alpha_is_that_of_nltk(units: list[dict[str, str]]) -> None:
    from nltk.metrics.agreement import AnnotationTask

    shared = [unit for unit in units if len(unit) > 1]
    used = {label for unit in shared for label in unit.values()}

    found = nominal_alpha(units)

    if len(used) < 2:
        assert found is None
        return
    task = AnnotationTask([(who, str(at), label) for at, unit in enumerate(shared) for who, label in unit.items()])
    assert found == pytest.approx(task.alpha())


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30))
def test_kappa_lies_in_its_interval_and_below_one(pairs: list[tuple[bool, bool]]) -> None:
    found = agreement(pairs)

    if found.kappa is None:
        assert any(len({pair[side] for pair in pairs}) < 2 for side in (0, 1))
    else:
        assert found.kappa <= 1
    if found.interval and found.kappa is not None:
        assert found.interval.low <= found.kappa <= found.interval.high


def test_a_metric_is_judged_on_good_and_on_bad_answers() -> None:
    skill = judge_skill([(True, True)] * 35 + [(False, True)] * 3 + [(False, False)] * 8 + [(True, False)] * 4)

    assert (skill.n, skill.n_agreed, skill.n_bad) == (50, 43, 12)
    assert skill_sentence("Rubric", skill) == "Rubric agrees with the labels 43 times of 50; on failures 8 of 12"
    corrected = skill.correct(0.78)
    assert corrected is not None
    assert corrected.corrected == pytest.approx((0.78 + 8 / 12 - 1) / (35 / 38 + 8 / 12 - 1))
    assert enough_sentence(skill) == "Too few labels: add 3 more of failures"


def test_a_corrected_rate_says_how_far_the_labels_leave_it_open() -> None:
    few = judge_skill([(True, True)] * 7 + [(False, True)] + [(False, False)] * 2)
    many = judge_skill([(True, True)] * 700 + [(False, True)] * 100 + [(False, False)] * 200)

    assert corrected_sentence(few.correct(0.7), "Rubric") == (
        "Rubric says 70 %; corrected about 80 %, 95 % CI 42–100 %"
    )
    assert corrected_sentence(many.correct(0.7)) == "The judge says 70 %; corrected about 80 %, 95 % CI 78–82 %"
    assert enough_sentence(judge_skill([(True, True)] * 34 + [(False, False)] * 15)).startswith(
        "Too few labels: add 1 more label"
    )


@given(st.integers(0, 20), st.integers(1, 20), st.integers(0, 20), st.integers(1, 20), st.floats(0, 1))
def test_a_corrected_rate_lies_in_its_interval(passed: int, good: int, failed: int, bad: int, judged: float) -> None:
    skill = JudgeSkill(max(passed, good), passed, max(failed, bad), failed)

    found = skill.correct(judged)

    if found:
        assert found.interval
        assert 0 <= found.interval.low <= found.corrected <= found.interval.high <= 1


def test_labels_of_one_kind_correct_nothing() -> None:
    skill = judge_skill([(True, True)] * 60)

    assert skill.correct(0.8) is None
    assert skill_sentence("Rubric", judge_skill([])) == "Rubric has no verdict on a labelled trial"
    assert enough_sentence(judge_skill([(True, True)] * 40 + [(False, False)] * 20)) == ""


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Agreement(50, 43, 0.55, Interval(0.36, 0.74)), "kappa 0.55, 95 % CI 0.36 to 0.74"),
        (Agreement(50, 47, -0.03, Interval(-0.06, 0.0)), "kappa −0.03, 95 % CI −0.06 to 0.00"),
        (Agreement(10, 8, 0.6, Interval(0.15, 1.05)), "kappa 0.60, 95 % CI 0.15 to 1.00"),
        (Agreement(50, 50, None, None), "kappa is not measurable: one side has only one verdict"),
        (Agreement(10, 10, 1.0, None), "kappa 1.00, without an interval: there is no disagreement yet"),
        (Agreement(2, 1, 0.0, None), "kappa 0.00, without an interval: there are too few labels"),
        (agreement([(True, False)]), "kappa is not measurable: one side has only one verdict"),
        (agreement([(True, False), (False, False)]), "kappa is not measurable: one side has only one verdict"),
        (Agreement(0, 0, None, None), "no labels to compare"),
    ],
)
def test_kappa_is_said_with_its_doubt(found: Agreement, said: str) -> None:
    assert kappa_words(found) == said


@pytest.mark.parametrize(
    ("alpha", "said"),
    [
        (0.85, "3 people labelled 12 trials in common: Krippendorff's alpha 0.85, reliable"),
        (0.7, "3 people labelled 12 trials in common: Krippendorff's alpha 0.70, tentative"),
        (0.1, "3 people labelled 12 trials in common: Krippendorff's alpha 0.10, too low to rely on the labels"),
        (None, "3 people labelled 12 trials in common, all equal: Krippendorff's alpha is not measurable"),
    ],
)
def test_alpha_says_what_it_is_good_for(alpha: float | None, said: str) -> None:
    assert alpha_sentence(3, 12, alpha) == said
    assert alpha_sentence(1, 12, alpha) == ""
