"""A run judged by the history of its cases: few false alarms whatever the mixture of rates, and one answer to all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evaldesk.desk.runs.gates.conclusion import CaseNumbers, RunNumbers, conclude, regressions_answer
from evaldesk.model import Counts, Gates
from evaldesk.model.comparison import PlayedCase, RunChange
from evaldesk.model.evalset import CaseKey
from evaldesk.model.history import CaseHistory, RunDays
from evaldesk.statistics.case_comparison import changed_to, compare_cases
from evaldesk.statistics.history.days import SIGMAS
from evaldesk.statistics.history.draws import drawn_rates
from evaldesk.statistics.history.posterior import posterior_of
from evaldesk.statistics.history.proposals import confirm_forecast, likely_forecast
from evaldesk.statistics.history.run_verdicts import missing_trials
from evaldesk.wording.comparison import again_notes, flips_words
from evaldesk.wording.regressions import history_sentences, odds_words

HALF_AND_HALF = np.repeat([1.0, 0.8], 10)
N_BUILDS = 50


def case(name: str, letters: str, **others: Any) -> PlayedCase:
    return PlayedCase(CaseKey(others.pop("evalset", "set"), name, 0, "d"), letters, **others)


def cases(*strips: str, **others: Any) -> list[PlayedCase]:
    return [case(f"c{at}", letters, **others) for at, letters in enumerate(strips)]


def drawn(random: np.random.Generator, rates: Any, n: int) -> list[str]:
    return ["p" * passed + "f" * (n - passed) for passed in random.binomial(n, rates).tolist()]


def answer(rule: Any, random: np.random.Generator, before: Any, now: Any, n: int, **options: Any) -> str:
    """The answer of the gate to one build, with the fresh trials that the rule asks for."""
    old, new = cases(*drawn(random, before, n)), cases(*drawn(random, now, n))
    change = compare_cases("run 1", old, new, rule=rule, **options)
    again = {each.name for each in change.unconfirmed_cases}
    if again:
        fresh = drawn(random, now, change.confirm[1])
        new = [
            replace(each, confirming=own if f"c{at}" in again else "")
            for at, (each, own) in enumerate(zip(new, fresh, strict=True))
        ]
        change = changed_to(change, old, new)
    return regressions_answer(change, 0)


@pytest.mark.parametrize(
    ("rule", "n", "options"),
    [("likely", 5, {}), ("confirm", 1, {}), ("confirm", 5, {})],
    ids=["likely, 5", "confirm, 1", "confirm, 5"],
)
def test_half_of_the_cases_always_and_half_four_in_five_rarely_fail_unchanged(
    rule: str, n: int, options: dict[str, Any]
) -> None:
    """At most 5 % and three standard errors; the fixed bar of 9 of 12 failed about a third of these builds."""
    random = np.random.default_rng(35)
    answers = [answer(rule, random, HALF_AND_HALF, HALF_AND_HALF, n, **options) for _ in range(N_BUILDS)]

    assert answers.count("failed") / N_BUILDS <= 0.05 + 3 * (0.05 * 0.95 / N_BUILDS) ** 0.5


def test_a_fixed_bar_often_fails_the_same_builds() -> None:
    random = np.random.default_rng(35)
    answers = [answer("confirm", random, HALF_AND_HALF, HALF_AND_HALF, 1, confirm=(9, 12)) for _ in range(N_BUILDS)]

    assert answers.count("failed") / N_BUILDS > 0.2


@pytest.mark.parametrize("rule", ["likely", "confirm"])
def test_an_agent_that_is_15_points_worse_fails_mostly(rule: str) -> None:
    random = np.random.default_rng(36)
    worse = HALF_AND_HALF - 0.15
    answers = [answer(rule, random, HALF_AND_HALF, worse, 5) for _ in range(40)]

    assert answers.count("failed") / 40 >= 0.7


def test_the_history_judges_and_not_the_baseline_alone() -> None:
    """A case that passed in the baseline by luck: it passes half of the time."""
    often, lucky = CaseHistory(40, 20), CaseHistory(40, 40)
    old = [case("a", "p", history=often), *(case(f"o{at}", "p", history=lucky) for at in range(9))]
    new = [case("a", "f", confirming="ffpfp"), *(case(f"o{at}", "p") for at in range(9))]

    judged = compare_cases("run 1", old, new, rule="confirm")
    without = compare_cases("run 1", [replace(each, history=None) for each in old], new, rule="confirm")

    assert regressions_answer(judged, 0) == "held"
    assert judged.cases[0].chance is not None
    assert without.cases[0].chance is not None
    assert judged.cases[0].chance > without.cases[0].chance


def test_a_flip_that_fresh_trials_do_not_confirm_is_not_called_broken() -> None:
    old = [*cases("pppppppppp", "pppppppppp"), *(case(f"o{at}", "ppppp") for at in range(18))]
    failed, lucky = case("c0", "f", confirming="fffff"), case("c1", "f", confirming="ppppp")
    new = [failed, lucky, *(case(f"o{at}", "p") for at in range(18))]

    words = [flips_words(compare_cases("run 1", old, new, rule=rule)) for rule in ("any", "confirm")]

    assert words == ["0 fixed, 2 broken", "0 fixed, 1 broken, 1 flipped"]


def test_every_case_is_played_again_where_the_suite_looks_low() -> None:
    old = cases(*["ppppp"] * 6, *["ppppf"] * 4)
    low = cases(*["ppppf"] * 8, *["ppppp"] * 2)

    found = compare_cases("run 1", old, low, rule="confirm")
    one = compare_cases("run 1", old, cases("ppppf", *["ppppp"] * 5, *["ppppf"] * 4), rule="confirm")

    assert len(found.played_again) == len(found.unconfirmed_cases) == 10
    assert [each.name for each in one.played_again] == ["c0"]
    assert regressions_answer(found, 0) == "undecided"


@pytest.mark.parametrize(
    ("again", "answers"),
    [("ppppp", "held"), ("fffff", "failed"), ("ppppe", "held"), ("fffff"[:4] + ".", "failed"), ("", "undecided")],
    ids=["passed", "failed", "held whatever the error", "failed whatever is left", "not played"],
)
def test_missing_fresh_trials_leave_open_only_what_they_can_change(again: str, answers: str) -> None:
    old = cases(*["ppppp"] * 10)
    low = cases(*["ppppf"] * 2, *["ppppp"] * 8)
    whole = [
        replace(each, confirming=again if at == 0 else again.replace("e", "p").replace(".", "f"))
        for at, each in enumerate(low)
    ]

    assert regressions_answer(compare_cases("run 1", old, whole, rule="confirm"), 0) == answers


def test_the_suite_counts_only_where_no_case_may_regress() -> None:
    change = compare_cases("run 1", cases(*["ppppp"] * 10), cases(*["pppff"] * 10), rule="likely")

    assert change.suites[0].is_worse
    assert not change.regressions
    assert [regressions_answer(change, most) for most in (0, 1)] == ["failed", "held"]


def test_a_replayed_trial_starts_a_second_look_and_is_no_evidence() -> None:
    """Recorded failures do not fail a run whose fresh trials pass, and no replayed pass hides fresh failures."""
    old = cases(*["ppppp"] * 10)
    failed, passed = cases(*["fffff"] * 10, confirming="ppppp"), cases("ffppp", *["ppppp"] * 9, confirming="fffff")

    assert regressions_answer(compare_cases("run 1", old, failed, rule="confirm", is_replayed=True), 0) == "held"
    assert regressions_answer(compare_cases("run 1", old, failed, rule="confirm"), 0) == "failed"
    assert regressions_answer(compare_cases("run 1", old, passed, rule="confirm", is_replayed=True), 0) == "failed"


def test_the_sentence_counts_no_replayed_trial_either() -> None:
    old = cases(*["ppppp"] * 10)
    low, usual = cases(*["fffff"] * 10, confirming="ppppp"), cases(*["ppppp"] * 10)

    first, second = (compare_cases("run 1", old, new, rule="confirm", is_replayed=True) for new in (low, usual))

    assert "every case was played again: 50 of 50, as before" in ". ".join(history_sentences(first))
    assert "50 of 50 passed: not low; replayed trials are not new evidence" in list(history_sentences(second))
    assert "every case was played again: 50 of 100" in ". ".join(
        history_sentences(compare_cases("run 1", old, low, rule="confirm"))
    )


def test_days_that_differ_widen_the_bar() -> None:
    old, new = cases(*["pppppppppf"] * 20), cases(*["ppppf"] * 20)
    days = RunDays(8, tuple(float(sigma == 0.5) for sigma in SIGMAS))

    same, apart = (compare_cases("run 1", old, new, rule="likely", days=each) for each in (RunDays(), days))

    assert same.suites[0].chance < apart.suites[0].chance
    assert [regressions_answer(each, 0) for each in (same, apart)] == ["failed", "held"]


def test_each_eval_set_is_a_suite_and_shares_the_level() -> None:
    old = [*cases(*["ppppp"] * 10), *cases(*["ppppp"] * 10, evalset="other")]
    new = [*cases(*["pppff"] * 10), *cases(*["ppppp"] * 10, evalset="other")]

    change = compare_cases("base.json", old, new, rule="likely")

    assert [(suite.evalset, suite.is_worse) for suite in change.suites] == [("set", True), ("other", False)]
    assert regressions_answer(change, 0) == "failed"


def test_an_item_apart_counts_the_cases_of_others_and_judges_no_suite() -> None:
    old, new = cases("ppppp"), cases("fffff", confirming="fffff")
    alone = compare_cases("run 1", old, new, rule="confirm")
    beside = compare_cases("run 1", old, new, rule="confirm", others=[(5, 5)] * 9)

    assert alone.suites
    assert not beside.suites
    assert beside.n_worst >= 1
    assert regressions_answer(beside, 0) == "failed"


def test_a_case_that_only_fails_is_not_called_chance_where_its_history_is_too_short() -> None:
    change = compare_cases("run 1", cases(*["p"] * 20), cases("f", *["p"] * 19, confirming=""), rule="confirm")
    played = changed_to(change, cases(*["p"] * 20), [case("c0", "f", confirming="fffff"), *cases(*["p"] * 20)[1:]])

    assert [each.name for each in played.untold] == ["c0"]
    assert regressions_answer(played, 0) == "undecided"


@pytest.mark.parametrize(
    ("history", "now", "answers"),
    [
        (None, "fffff", "undecided"),
        (None, "ffffp", "held"),
        (CaseHistory(40, 8), "fffff", "held"),
    ],
    ids=["one trial before", "a pass now", "failed often in a long history"],
)
def test_a_case_that_only_fails_is_not_let_through_by_likely(
    history: CaseHistory | None, now: str, answers: str
) -> None:
    old = [case("c0", "p", history=history), *(case(f"o{at}", "p") for at in range(9))]
    change = compare_cases(
        "run 1", old, [case("c0", now), *(case(f"o{at}", "ppppp") for at in range(9))], rule="likely"
    )

    assert regressions_answer(change, 0) == answers
    assert [each.name for each in change.untold] == ["c0"] * (answers == "undecided")


def sentence(change: RunChange, most: int = 0) -> str:
    """The answer of the gate on regressions in words."""
    counts = [(each.name, each.after) for each in change.cases if each.after]
    run = RunNumbers.of_cases(
        CaseNumbers(
            name,
            Counts(len(each.verdicts), each.verdicts.count("p"), each.verdicts.count("f"), each.verdicts.count("e"), 0),
        )
        for name, each in counts
    )
    gates = Gates(max_regressions=most, regression_rule=change.rule)
    return next(each.sentence for each in conclude(gates, run, change).gates if each.name == "--max-regressions")


def test_a_failed_line_leads_with_the_cases_together_and_names_what_flipped() -> None:
    new = cases(*["pppff"] * 10)
    words = sentence(compare_cases("run 1", cases(*["ppppp"] * 10), new, rule="likely"))

    assert words.startswith("All cases together are worse than in run 1; no single case is. 30 of 50 passed; ")
    assert f"Flipped, not worse by itself: {', '.join(f'c{at}' for at in range(10))} passed 3 of 5." in words
    assert len(words) < 300
    assert "could be chance" not in words
    assert "Pass rate" not in words


def test_a_case_without_a_verdict_is_counted_apart() -> None:
    new = [case("c0", "eeeee"), *cases(*["ppppp"] * 10)[1:]]
    words = sentence(compare_cases("run 1", cases(*["ppppp"] * 10), new, rule="likely"))

    assert words.startswith(
        "0 of 10 cases regressed by more than chance against run 1, 0 allowed; 1 case has no verdict now."
    )


def test_errors_of_the_run_are_not_said_of_the_last_case_that_is_named() -> None:
    new = [case("c0", "fffff"), case("c1", "ppppe"), *cases(*["ppppp"] * 10)[2:]]
    words = sentence(compare_cases("run 1", cases(*["ppppp"] * 10), new))

    assert words.endswith("Regressed: c0; and 1 errored in the run")


def test_cases_together_are_not_judged_nor_played_again_where_one_may_regress() -> None:
    low = cases(*["ppppf"] * 8, *["ppppp"] * 2)
    change = compare_cases("run 1", cases(*["ppppp"] * 6, *["ppppf"] * 4), low, rule="confirm", max_regressions=2)

    assert [each.name for each in change.played_again] == [f"c{at}" for at in range(6)]
    assert not change.suites
    assert "All cases together are judged with --max-regressions 0 only" in list(history_sentences(change))


@pytest.mark.parametrize(
    ("first", "history", "words"),
    [
        ("f", None, "c0 failed 5 of 5, too little history to tell"),
        ("f", CaseHistory(40, 8), "c0 failed 5 of 5, but it failed before, too: 8 of 40 passed"),
        ("fp", CaseHistory(40, 8), "c0 failed 5 of 5, but it failed before, too: 8 of 40 passed"),
    ],
    ids=["short", "often failed", "a pass at first"],
)
def test_a_case_that_only_fails_is_never_chance(first: str, history: CaseHistory | None, words: str) -> None:
    old = [case("c0", "p", history=history), *cases(*["p"] * 20)[1:]]
    new = [case("c0", first, confirming="fffff"), *cases(*["p"] * 20)[1:]]
    change = compare_cases("run 1", old, new, rule="confirm")

    assert (regressions_answer(change, 0) == "undecided") == ("p" not in first)
    assert words in " ".join(history_sentences(change))
    assert "chance" not in again_notes(change)["c0"]


def test_a_flip_is_not_called_chance_where_all_cases_together_are_worse() -> None:
    new = cases(*["pppff"] * 10, confirming="pppff")
    words = list(history_sentences(compare_cases("run 1", cases(*["ppppp"] * 10), new, rule="confirm")))

    assert "c9 passed 3 of 5 (not worse by itself)" in words[0]
    assert "(chance)" not in words[0]


def test_more_passes_than_before_are_said_to_be_more() -> None:
    old = [case(f"c{at}", "p", history=CaseHistory(40, 36)) for at in range(20)]
    words = list(history_sentences(compare_cases("run 1", old, cases(*["ppppp"] * 20), rule="likely")))

    assert words[0].startswith("100 of 100 passed: more than before (")


@pytest.mark.parametrize(
    ("old", "new", "rule", "sentences"),
    [
        (
            cases(*["ppppp"] * 10),
            cases(*["pppff"] * 10),
            "likely",
            [
                "30 of 50 passed; with this history an unchanged agent gets so few in fewer than 1 of 1,000,000 builds",
                f"Flipped, not worse by itself: {', '.join(f'c{at}' for at in range(10))} passed 3 of 5",
            ],
        ),
        (
            cases(*["ppppp"] * 20),
            cases(*["ppppp"] * 20),
            "likely",
            ["100 of 100 passed: within what this agent did before (97–100)"],
        ),
        (
            cases(*["ppppp"] * 20),
            [case("c0", "fffff"), *cases(*["ppppp"] * 20)[1:]],
            "likely",
            [
                "95 of 100 passed; with this history an unchanged agent gets so few in 5 of 1,000 builds",
                "c0: 0 of 5 passed, 5 of 5 before, by chance in 1 of 80,000 builds",
            ],
        ),
        (
            cases(*["pppppppppp"] * 10, *["ppppppppff"] * 10, pass_threshold=0.8),
            [
                case("c0", "ffffp", confirming="ffffp", pass_threshold=0.8),
                case("c1", "pppff", confirming="ppppp", pass_threshold=0.8),
                *cases(*["ppppp"] * 20, pass_threshold=0.8)[2:],
            ],
            "confirm",
            [
                "2 cases flipped; played again: "
                "c0 failed 4 of 5 (worse, 10 of 10 before, by chance in 1 of 70,000 builds); c1 passed 5 of 5 (chance)",
                "94 of 100 passed: within what this agent did before (81–96)",
            ],
        ),
        (
            cases(*["ppppp"] * 10),
            cases(*["ppppf"] * 2, *["ppppp"] * 8, confirming="ppppp"),
            "confirm",
            [
                "2 cases flipped; played again: c0, c1 passed 5 of 5 (chance)",
                "Looked low, so every case was played again: 98 of 100, as before",
            ],
        ),
    ],
    ids=["suite worse", "as before", "case worse", "flips", "looked low"],
)
def test_the_verdict_is_said_in_one_line_each(
    old: list[PlayedCase], new: list[PlayedCase], rule: Any, sentences: list[str]
) -> None:
    assert list(history_sentences(compare_cases("run 1", old, new, rule=rule))) == sentences


@pytest.mark.parametrize(
    ("chance", "words"),
    [
        (0.3, "30 of 100"),
        (0.01, "1 of 100"),
        (0.0043, "4 of 1,000"),
        (0.000052, "1 of 20,000"),
        (0.0, "fewer than 1 of 1,000,000"),
    ],
)
def test_chances_are_odds(chance: float, words: str) -> None:
    assert odds_words(chance) == words


@pytest.mark.parametrize("fresh", [0, 5], ids=["likely", "confirm"])
def test_the_trials_that_are_advised_suffice_and_who_has_them_is_not_advised(fresh: int) -> None:
    random = np.random.default_rng(7)
    n_advised = 0
    for n_cases, before in ((10, 10), (20, 5), (20, 10), (50, 3)):
        for rates in (np.full(n_cases, 0.9), np.repeat([1.0, 0.8], n_cases // 2)):
            history = [(before, int(passed)) for passed in random.binomial(before, rates)]
            found = missing_trials(history, [1] * n_cases, fresh)
            if found is None or not found.now:
                continue
            n_advised += 1
            n_each = [1 + found.now] * n_cases
            draws = drawn_rates(posterior_of(history)).thin(64)
            forecast = (confirm_forecast if fresh else likely_forecast)(draws, n_each)
            assert forecast.finds.mean >= 0.8, (n_cases, before, found)
            assert missing_trials(history, n_each, fresh) is None

    assert n_advised >= 3


def test_no_change_without_a_rule_of_history_is_judged_by_one() -> None:
    found: RunChange = compare_cases("run 1", cases("ppppp"), cases("fffff"))

    assert not found.suites
    assert found.cases[0].chance is None
