"""The decisive turn of a failed trial: profile, search and confirmation. (reference/fork.md 3, 6)"""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from tests.report.decisive_trajectories import answers

from evaldesk.model.decisive_turn import Answer, Batch, Count, Outcome
from evaldesk.statistics.decisive_turn import (
    MOST_OF_TURN,
    N_CONFIRM,
    answer_from,
    chance_of_higher_rate,
    chances_of_largest_drop,
    confirm,
    fewest_forks,
    forks_of_turn,
    is_unscored,
    method_of,
    next_forks,
    posterior_after,
    profile,
    search_rate,
    turn_to_fork,
)
from evaldesk.statistics.exact_tests import fisher, fisher_drop
from evaldesk.statistics.intervals import newcombe

OPEN_CASE = Count(9, 10)
"""A case that passes often enough for a search."""


def counts(*passes: int, n: int = 20) -> list[Count]:
    return [Count(each, n) for each in passes]


def answered(n_turns: int, turn: int, *, own: Count = OPEN_CASE, budget: int = 60) -> tuple[Answer, list[Outcome]]:
    """The answer for an agent without chance: a fork passes up to before the decisive turn, and fails after it."""
    outcomes: list[Outcome] = []
    while batches := next_forks(n_turns, own, budget, outcomes):
        outcomes += [Outcome(each.stage, each.turn, each.turn <= turn) for each in batches for _ in range(each.n)]
    return answer_from(n_turns, own, outcomes), outcomes


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (counts(18, 17, 18, 2, 1), [0.0, 0.0, 0.999, 0.001]),
        (counts(18, 14, 10, 6, 2), [0.21, 0.289, 0.291, 0.21]),
        (counts(4, 4, 1, 0, n=5), [0.086, 0.73, 0.184]),
        (counts(3, 2, 3, 2), [0.415, 0.192, 0.394]),
    ],
    ids=["clear", "gradual", "few", "no drop"],
)
def test_chances_of_the_largest_drop_are_the_known_ones(values: list[Count], expected: list[float]) -> None:
    between, with_end = chances_of_largest_drop(values)

    assert between == pytest.approx(expected, abs=0.003)
    assert sum(with_end) == pytest.approx(1.0)
    assert chances_of_largest_drop(values) == (between, with_end)


@pytest.mark.parametrize(
    ("values", "finding", "turn"),
    [
        (counts(18, 17, 18, 2, 1), "located", 3),
        (counts(18, 14, 10, 6, 2), "not located", None),
        (counts(4, 4, 1, 0, n=5), "not located", None),
        (counts(3, 2, 3, 2), "already lost at the start", None),
        (counts(0, 0, 0, 0), "already lost at the start", None),
        (counts(18, 17, 18, 17, 18), "bad luck", 5),
        (counts(17), "bad luck", 1),
        (counts(0), "already lost at the start", None),
        (counts(18, 17, 12, 12), "located", 4),
        (counts(9, 9, 9, 9), "not located", None),
        (counts(0, 0, n=0), "not located", None),
        (counts(2, 2, n=2), "not located", None),
    ],
)
def test_a_profile_has_one_of_four_findings(values: list[Count], finding: str, turn: int | None) -> None:
    answer = profile(values, n_draws=40_000)

    assert (answer.finding, answer.turn) == (finding, turn)


def test_drops_count_the_recorded_failure_in_the_family_of_holm() -> None:
    drops = profile(counts(18, 17, 18, 2, 1)).drops

    assert [each.turn for each in drops] == [1, 2, 3, 4, 5]
    assert drops[2].p == pytest.approx(float(stats.fisher_exact([[18, 2], [2, 18]], alternative="greater").pvalue))
    assert drops[2].holm_p == pytest.approx(5 * drops[2].p)
    assert drops[4].after == Count(0, 20)
    assert drops[4].p_between is None
    assert fisher(18, 20, 2, 20) < 1e-5


def test_a_higher_rate_has_the_chance_of_closed_form_and_quadrature() -> None:
    chance = chance_of_higher_rate(Count(17, 20), Count(2, 20))

    by_quadrature, _ = integrate.quad(lambda x: stats.beta.pdf(x, 18, 4) * stats.beta.cdf(x, 3, 19), 0, 1)
    assert chance == pytest.approx(0.999999447770272, abs=1e-12)
    assert chance == pytest.approx(by_quadrature, abs=1e-10)
    assert chance_of_higher_rate(Count(), Count()) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [
        (Count(5, 5), Count(0, 5), 0.007936507936507938),
        (Count(4, 5), Count(0, 5), 0.04761904761904762),
        (Count(4, 5), Count(1, 5), 0.2063492063492064),
        (Count(17, 20), Count(2, 20), 3.3579518030840765e-06),
        (Count(9, 10), Count(4, 10), 0.05727554179566563),
    ],
)
def test_fishers_two_sided_test_has_the_known_values(before: Count, after: Count, p: float) -> None:
    assert fisher(before.passes, before.n, after.passes, after.n) == pytest.approx(p, rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(*[st.integers(0, 30)] * 4)
def test_fishers_one_sided_test_is_that_of_scipy(a: int, b: int, c: int, d: int) -> None:
    expected = float(stats.fisher_exact([[a, b], [c, d]], alternative="greater").pvalue)

    assert fisher_drop(a, a + b, c, c + d) == pytest.approx(expected, rel=1e-9)


def test_differences_have_newcombes_interval() -> None:
    # Newcombe 1998, table II, method 10: 56/70 - 48/80, 9/10 - 3/10, 10/10 - 0/10.
    for (c, n, other, n_other), expected in {
        (56, 70, 48, 80): (0.0524, 0.3339),
        (9, 10, 3, 10): (0.1705, 0.8090),
        (10, 10, 0, 10): (0.6075, 1.0),
    }.items():
        interval = newcombe(c, n, other, n_other)
        assert (interval.low, interval.high) == pytest.approx(expected, abs=5e-5)
    repaired = newcombe(16, 20, 2, 20)
    assert [round(100 * each) for each in (repaired.low, repaired.high)] == [40, 84]


def forks_of_search(turn: int, a: float, b: float, stop: float, n_turns: int = 8) -> tuple[list[int], list[float]]:
    posterior, turns = [1 / n_turns] * n_turns, []
    while max(posterior) < stop:
        turns.append(turn_to_fork(posterior, a, b))
        posterior = posterior_after(posterior, turns[-1], turns[-1] <= turn, a, b)
    return turns, posterior


def test_a_search_forks_where_a_fork_tells_most() -> None:
    turns, posterior = forks_of_search(5, 0.9, 0.1, 0.98)

    assert turns == [5, 7, 6, 5, 6, 5, 6]
    assert posterior[4] == pytest.approx(0.9928874, abs=1e-7)
    assert [len(forks_of_search(turn, 0.9, 0.1, 0.98)[0]) for turn in range(1, 9)] == [4, 6, 7, 7, 7, 7, 6, 4]


def test_a_search_without_chance_is_a_binary_search() -> None:
    assert [len(forks_of_search(turn, 0.99, 0.01, 0.95)[0]) for turn in range(1, 9)] == [3] * 8


@pytest.mark.parametrize(("n_turns", "turn"), [*product([8], range(1, 9)), (5, 5), (20, 20), (200, 137)])
def test_a_decisive_turn_without_chance_is_named(n_turns: int, turn: int) -> None:
    answer, outcomes = answered(n_turns, turn)

    assert (answer.finding, answer.turn) == ("located", turn)
    assert answer.before == Count(N_CONFIRM, N_CONFIRM)
    assert answer.after == (None if turn == n_turns else Count(0, N_CONFIRM))
    assert len(outcomes) <= 60


@pytest.mark.parametrize(("n_turns", "turn"), [(n, turn) for n in (2, 3, 4) for turn in range(1, n)])
def test_few_turns_are_profiled_with_the_trials_of_the_case_before_the_first(n_turns: int, turn: int) -> None:
    answer, outcomes = answered(n_turns, turn, own=Count(18, 20))

    assert (answer.finding, answer.turn) == ("located", turn)
    assert {each.turn for each in outcomes} == set(range(2, n_turns + 1))


def test_a_confirmation_counts_fresh_forks_only() -> None:
    search = [Outcome("search", 5, True)] * 9 + [Outcome("search", 6, False)] * 9
    fresh = [Outcome("confirmation", 5, at < 4) for at in range(8)] + [Outcome("confirmation", 6, True)] * 8

    answer = answer_from(8, OPEN_CASE, [*search, *fresh])

    assert (answer.finding, answer.turn) == ("not located", None)
    assert answer.confirmation == confirm(5, Count(4, 8), Count(8, 8))
    assert answer.counts[4] == Count(13, 17)


def test_a_search_without_a_confirmation_names_no_turn() -> None:
    outcomes = [Outcome("search", 5, True)] * 9 + [Outcome("search", 6, False)] * 9

    assert answer_from(8, OPEN_CASE, outcomes).finding == "not located"


def test_a_search_keeps_forks_for_its_confirmation() -> None:
    outcomes = [Outcome("search", each % 8 + 1, each % 2 == 0) for each in range(44)]

    batches = next_forks(8, OPEN_CASE, 60, outcomes)

    assert {each.stage for each in batches} == {"confirmation"}
    assert sum(each.n for each in batches) <= 16


@pytest.mark.parametrize(
    ("n_turns", "own", "method"),
    [
        (4, OPEN_CASE, "profile"),
        (5, OPEN_CASE, "search"),
        (5, Count(3, 10), "profile"),
        (5, Count(), "search"),
        (1, OPEN_CASE, "profile"),
    ],
)
def test_the_method_follows_from_turns_and_pass_rate(n_turns: int, own: Count, method: str) -> None:
    assert method_of(n_turns, own) == method


@pytest.mark.parametrize(
    ("own", "rate"), [(Count(8, 10), 0.75), (Count(), 0.5), (Count(98, 98), 0.95), (Count(0, 9), 0.5)]
)
def test_a_search_takes_its_rate_from_the_case(own: Count, rate: float) -> None:
    assert search_rate(own) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("n_turns", "budget", "n"), [(4, 60, 20), (4, 59, 19), (8, 60, 8), (8, 34, 0), (1, 60, 20), (3, 10_000, 20)]
)
def test_a_profile_shares_its_budget_between_turns(n_turns: int, budget: int, n: int) -> None:
    own = Count(2, 20)

    assert forks_of_turn(n_turns, own, budget) == n
    assert n <= MOST_OF_TURN
    assert bool(n) == (fewest_forks(n_turns, own) <= budget)


def test_an_interrupted_inquiry_goes_on_with_the_forks_that_are_missing() -> None:
    own = Count(2, 20)
    played = [Outcome("profile", 2, True)] * 3

    assert next_forks(3, own, 60, played) == (Batch("profile", 2, 17), Batch("profile", 3, 20))
    assert next_forks(3, own, 60, [*played, *played, *played, *played, *played, *played]) == (
        Batch("profile", 2, 2),
        Batch("profile", 3, 20),
    )
    assert next_forks(3, own, 60, [*played, *played, *played, *played, *[Outcome("profile", 2, None)] * 8]) == (
        Batch("profile", 3, 20),
    )


def test_forks_without_a_verdict_end_an_inquiry() -> None:
    errors = [Outcome("search", 5, None)] * 6

    assert not is_unscored(errors[:5])
    assert is_unscored(errors)
    assert next_forks(8, OPEN_CASE, 60, errors) == ()
    assert answer_from(8, OPEN_CASE, errors).finding == "not located"


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(0, 12), st.integers(0, 12), st.integers(16, 90), st.integers(0, 2**32))
def test_no_inquiry_takes_more_forks_than_its_budget(n_turns: int, n: int, passes: int, budget: int, seed: int) -> None:
    random, own = Random(seed), Count(min(n, passes), n)
    outcomes: list[Outcome] = []

    while batches := next_forks(n_turns, own, budget, outcomes):
        batch = batches[random.randrange(len(batches))]
        outcomes.append(Outcome(batch.stage, batch.turn, random.choice([True, False, None])))

    assert len(outcomes) <= budget
    answer = answer_from(n_turns, own, outcomes, n_draws=200)
    assert (answer.turn is None) == (answer.finding in ("not located", "already lost at the start"))


@pytest.mark.parametrize(("a", "b", "fewest_named"), [(0.9, 0.1, 80), (0.8, 0.2, 45), (0.7, 0.1, 50), (0.3, 0.3, 0)])
def test_a_hundred_trajectories_name_seldom_another_turn(a: float, b: float, fewest_named: int) -> None:
    """`make torture` plays 1,000 of each: at least 88 % named in the first row, at most 3 % wrong in all."""
    times = answers(a, b, 100, seed=44)

    assert times["named"] >= fewest_named, times
    assert times["wrong"] <= 5, times
