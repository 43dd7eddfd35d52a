"""Words for comparisons, noise, rare failures and judges."""

from __future__ import annotations

import pytest

from evaldesk.model.comparison import Comparison, PlayedCase, RunChange
from evaldesk.model.conclusion import Interval
from evaldesk.model.evalset import CaseKey
from evaldesk.statistics.anytime import anytime_interval
from evaldesk.statistics.case_comparison import compare_cases
from evaldesk.statistics.comparison import compare_scores
from evaldesk.statistics.intervals import failure_bound
from evaldesk.statistics.judge_rate import correct_rate
from evaldesk.statistics.noise import Flakiness, smallest_gap, split_pass_noise
from evaldesk.wording.comparison import (
    MILLISECONDS,
    comparison_sentence,
    difference_words,
    flips_words,
    gap_sentence,
    left_out_words,
    p_words,
    points_words,
    stand_out_sentence,
)
from evaldesk.wording.noise import (
    corrected_sentence,
    flakiness_sentence,
    flaky_words,
    g_pass_words,
    no_failure_sentence,
    noise_sentence,
    noise_why,
    stop_sentence,
)
from evaldesk.wording.words import duration_words


def compared(difference: float, low: float, high: float, p: float, n_cases: int = 12) -> Comparison:
    interval = Interval(low, high)
    return Comparison(n_cases, 0, 0, 0, 0, 0.5, 0.5 + difference, difference, 0.1, interval, p, "sign flip")


def changed(n_fixed: int, n_broken: int, n_lost: int = 0, n_same: int = 4) -> RunChange:
    """Cases of one trial that were fixed, broken, lost their verdict, or stayed."""
    pairs = [*["fp"] * n_fixed, *["pf"] * n_broken, *["pu"] * n_lost, *["pp"] * n_same]
    before, after = (
        [PlayedCase(CaseKey("set", str(at), 0, "d"), pair[side]) for at, pair in enumerate(pairs)] for side in (0, 1)
    )
    return compare_cases("run 1", before, after)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (0.004, "under 0.01 ms"),
        (0.43, "0.43 ms"),
        (9.94, "9.9 ms"),
        (9.96, "10 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (59_940, "59.9 s"),
        (59_960, "1 min 0 s"),
        (125_400, "2 min 5 s"),
        (3_599_800, "1 h 0 min"),
        (7_500_000, "2 h 5 min"),
    ],
)
def test_a_time_has_the_unit_a_person_would_use(ms: float, words: str) -> None:
    assert duration_words(ms) == words


def test_a_difference_of_less_than_a_millisecond_is_not_said_to_be_none() -> None:
    found = compare_scores(dict.fromkeys("abcdef", 10.0), dict.fromkeys("abcdef", 10.3))

    assert found is not None
    assert difference_words(found, MILLISECONDS) == "Slower by 0.3 ms in every case"


@pytest.mark.parametrize(
    ("comparison", "said"),
    [
        (compared(0.167, 0.048, 0.286, 0.0273), "Better by 17 points; 95 % CI 5–29. 12 cases, p 0.027"),
        (compared(-0.167, -0.286, -0.048, 0.0273), "Worse by 17 points; 95 % CI 5–29. 12 cases, p 0.027"),
        (compared(0.012, 0.003, 0.021, 0.0001, 1200), "Better by 1 point; 95 % CI 0.3–2.1. 1,200 cases, p < 0.001"),
        (
            compared(0.03, -0.04, 0.1, 0.4),
            "3 points better, could be chance; 95 % CI 4 worse to 10 better. 12 cases, p 0.40",
        ),
        (
            compared(-0.03, -0.06, 0.001, 0.058),
            "3 points worse, could be chance; 95 % CI 6 worse to 0.1 better. 12 cases, p 0.058",
        ),
        (
            compared(0.59, 0.1, 1.08, 0.125, 6),
            "59 points better, could be chance: too few cases changed. 6 cases, p 0.12",
        ),
        (compare_scores({}, {"a": 1.0}), "No case has a score in both runs"),
        (compare_scores({"a": 0.5}, {"a": 0.6}), "10 points better, could be chance. 1 case, p 1.00"),
        (
            compare_scores({"a": 0.5, "b": 0.1}, {"a": 0.5, "b": 0.1}),
            "No difference in the mean. 2 cases, p 1.00",
        ),
        (
            compare_scores(dict.fromkeys("abcdef", 0.1), dict.fromkeys("abcdef", 0.3)),
            "Better by 20 points in every case. 6 cases, p 0.031",
        ),
    ],
)
def test_a_comparison_gives_its_verdict_first(comparison: Comparison | None, said: str) -> None:
    assert comparison_sentence(comparison) == said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed(8, 1), "8 fixed, 1 broken"),
        (changed(0, 2, 1), "0 fixed, 2 broken, 1 lost its verdict"),
        (changed(0, 0, 2), "0 fixed, 0 broken, 2 lost their verdict"),
        (changed(0, 0), "No verdict changed"),
        (changed(0, 0, n_same=0), "No case has a verdict in both runs"),
    ],
)
def test_flips_are_counted_and_judge_nothing(change: RunChange, said: str) -> None:
    assert flips_words(change) == said


def test_a_case_that_is_less_stable_is_no_verdict_without_a_change() -> None:
    before, after = (
        [PlayedCase(CaseKey("set", name, 0, "d"), letters) for name, letters in pairs.items()]
        for pairs in ({"a": "ppff", "b": "pfff", "c": "pppp"}, {"a": "pfff", "b": "pppf", "c": "pppp"})
    )

    change = compare_cases("run 1", before, after)

    assert flips_words(change) == "No case fixed or broken, 1 more stable, 1 less stable"


def test_cases_in_one_run_only_are_counted_with_the_name_of_the_run() -> None:
    assert left_out_words((1, "run 4"), (0, "run 5")) == "Left out: 1 case only in run 4."
    assert left_out_words((2, "run 4"), (1, "run 5")) == "Left out: 2 cases only in run 4, 1 case only in run 5."
    assert left_out_words((0, "run 4"), (0, "run 5")) == ""


def test_changes_beyond_chance_are_counted() -> None:
    keys = [CaseKey("set", name, 0, "d") for name in ("a", "b")]
    before = [PlayedCase(key, "p" * 12) for key in keys]
    after = [PlayedCase(keys[0], "f" * 12), PlayedCase(keys[1], "p" * 12)]

    assert stand_out_sentence(compare_cases("run 1", before, after)) == (
        "1 of 2 cases changed significantly (Benjamini-Hochberg). Read it side by side."
    )
    assert stand_out_sentence(changed(1, 1)) == ""


@pytest.mark.parametrize(
    ("n_cases", "n_trials", "said"),
    [
        (
            20,
            5,
            "Smallest detectable difference: about 26 points, with 20 cases × 5 trials",
        ),
        (
            1000,
            1,
            "Smallest detectable difference: about 6 points, with 1,000 cases × 1 trial",
        ),
        (1, 1, "Smallest detectable difference: none with 1 case × 1 trial; add cases"),
        (0, 1, "Smallest detectable difference: none without cases and trials"),
    ],
)
def test_a_run_says_before_it_starts_what_it_can_see(n_cases: int, n_trials: int, said: str) -> None:
    assert gap_sentence(n_cases, n_trials, smallest_gap(n_cases, n_trials)) == said


def test_small_numbers_keep_a_digit() -> None:
    assert [points_words(rate) for rate in (0.17, -0.01, 0.004, 0.0)] == [
        "17 points",
        "1 point",
        "0.4 points",
        "0 points",
    ]
    assert [p_words(p) for p in (1.0, 0.41, 0.0273, 0.0004)] == ["p 1.00", "p 0.41", "p 0.027", "p < 0.001"]


@pytest.mark.parametrize(
    ("counts", "said", "why"),
    [
        (
            [(2, 2, 6), (2, 1, 6), (2, 0, 3)],
            "80 % between trials of a case, 20 % between cases. Add cases.",
            "Twice the trials would narrow the interval by 18 %, twice the cases by about 29 %.",
        ),
        (
            [(5, 5, 5), (5, 0, 4), (5, 3, 2)],
            "20 % between trials of a case, 80 % between cases. Add cases, not trials.",
            "Twice the trials would narrow the interval by 1 %, twice the cases by about 29 %.",
        ),
        (
            [(4, 2, 5)],
            "100 % between trials of a case, 0 % between cases. Add trials or cases.",
            "Twice the trials would narrow the interval by 29 %, twice the cases by about 29 %.",
        ),
        ([(5, 5, 3)], "3 cases × 5 without a flip: whether cases or trials differ cannot be told yet.", ""),
        ([(1, 1, 3), (1, 0, 3)], "", ""),
    ],
)
def test_noise_says_what_would_help_and_why(counts: list[tuple[int, int, int]], said: str, why: str) -> None:
    split = split_pass_noise(counts)

    assert (noise_sentence(split), noise_why(split)) == (said, why)


def test_noise_advises_only_what_holds_at_both_ends_of_its_range() -> None:
    split = split_pass_noise([(5, 5, 5), (5, 0, 4), (5, 3, 2)])

    assert noise_sentence(split, (0.2, 0.05, 0.15)).endswith("Add cases, not trials.")
    assert noise_sentence(split, (0.2, 0.05, 0.9)).endswith(
        "Too few trials to tell whether trials or cases narrow it more."
    )


@pytest.mark.parametrize(
    ("n", "c", "said"),
    [
        (5, 3, "flaky: 3 of 5 passed"),
        (5, 5, "stable in 5 trials (a 10 % failure rate stays unseen in 59 % of such runs)"),
        (22, 22, "stable in 22 trials"),
        (5, 0, "failed in all 5 trials"),
        (1, 1, "1 trial: flakiness unknown"),
        (0, 0, "not scored"),
    ],
)
def test_one_case_is_flaky_stable_or_unknown(n: int, c: int, said: str) -> None:
    assert flaky_words(n, c) == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Flakiness(3, 12, 0, 0.08), "3 of 12 cases are flaky; two trials of a case disagree 8 % of the time"),
        (Flakiness(0, 12, 2, 0.0), "0 of 12 cases are flaky; 2 unknown, with one trial"),
        (Flakiness(0, 1, 0, 0.0), "0 of 1 case is flaky"),
        (Flakiness(0, 0, 3, None), "Flakiness unknown: no case has two scored trials"),
    ],
)
def test_a_run_says_how_flaky_it_is(found: Flakiness, said: str) -> None:
    assert flakiness_sentence(found) == said


def test_promises_are_rounded_so_that_they_hold() -> None:
    assert no_failure_sentence(30, failure_bound(30)) == "0 of 30 failed; 95 % upper bound 10 %"
    assert no_failure_sentence(0, 1.0) == "No scored trials"


def test_a_watched_run_says_whether_it_may_stop() -> None:
    found = anytime_interval(45, 50)

    assert stop_sentence(found, 0.99) == "Enough to stop: below 99 %, 95 % CI 71–98 %"
    assert stop_sentence(found, 0.7) == "Enough to stop: above 70 %, 95 % CI 71–98 %"
    assert stop_sentence(found, 0.9) == "Too close to 90 % to stop; 95 % CI 71–98 %"


def test_a_corrected_rate_says_what_the_judge_said_first() -> None:
    assert corrected_sentence(correct_rate(0.78, 0.9, 0.85)) == "The judge says 78 %; corrected about 84 %"
    assert corrected_sentence(correct_rate(0.95, 0.9, 0.6)) == (
        "The judge says 95 %; corrected about 100 %, the limit: its error rates do not fit this run"
    )
    assert corrected_sentence(correct_rate(0.5, 0.5, 0.5)) == (
        "Not measurable: the judge is no better than chance on the labelled answers"
    )


def test_g_pass_at_k_says_what_it_counts() -> None:
    assert g_pass_words(4, 0.75) == "at least 3 of 4 trials pass"
