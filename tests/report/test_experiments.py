"""Variants of an experiment: known answers, few cases, cost against quality, factors, luck, and equal variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import scipy
from tests.golden_values import golden

from evaldesk.model.comparison import Sample
from evaldesk.model.experiment import Analysis, Effect, Factor, Grid
from evaldesk.statistics.experiment import analyse, expected_lead, worse_than_leader
from evaldesk.statistics.intervals import t_quantile
from evaldesk.wording.experiments import best_sentence, effect_sentences, variant_sentences

GOLDEN: dict[str, Any] = golden("experiments")
N = GOLDEN["n"]
GRID = Grid(
    (Factor("model", ("m1", "m2", "m3")), Factor("prompt", ("p1", "p2"))),
    {(name[:2], name[3:]): name for name in GOLDEN["passes"]},
)


def trials(passes: Sequence[int | None], n: int = N) -> dict[int, Sample]:
    """The scored cases, each with `n` trials; None is a case without a scored trial."""
    return {at: Sample.of_sums(n, each, each) for at, each in enumerate(passes) if each is not None}


VARIANTS = {name: trials(passes) for name, passes in GOLDEN["passes"].items()}


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    """The analysis of the known answers."""
    return analyse(VARIANTS, GOLDEN["baseline"], costs=GOLDEN["cost_per_trial"], grid=GRID)


def test_pass_rates_are_means_over_cases(analysis: Analysis) -> None:
    assert {each.variant: each.rate for each in analysis.rates} == {
        name: near(rate) for name, rate in GOLDEN["pass_rate"].items()
    }


@pytest.mark.parametrize("variant", GOLDEN["against_baseline"])
def test_a_difference_from_the_baseline_is_the_known_one(analysis: Analysis, variant: str) -> None:
    row, found = GOLDEN["against_baseline"][variant], analysis.difference_of(variant)

    assert found is not None
    assert found.comparison is not None
    assert found.interval is not None
    assert found.family_interval is not None
    assert (found.value, found.comparison.error) == (near(row["difference"]), near(row["se"]))
    assert (found.interval.low, found.interval.high) == (near(row["low"]), near(row["high"]))
    assert (found.family_interval.low, found.family_interval.high) == (
        near(row["family_low"]),
        near(row["family_high"]),
    )
    assert (found.p, found.holm_p, found.word) == (near(row["sign_flip_p"]), near(row["holm_p"]), row["word"])
    assert found.comparison.n_better + found.comparison.n_worse == row["nonzero"]


def test_all_pairs_are_the_known_ones(analysis: Analysis) -> None:
    found = {f"{each.first} - {each.second}": (each.value, each.p, each.holm_p) for each in analysis.pairs}

    assert found == {
        name: (near(row["difference"]), near(row["p"]), near(row["holm_p"])) for name, row in GOLDEN["pairs"].items()
    }


def test_only_a_variant_that_another_beats_is_not_perhaps_the_best(analysis: Analysis) -> None:
    assert list(analysis.may_be_best) == GOLDEN["may_be_best"]
    assert analysis.best is None


def test_the_front_leaves_out_only_variants_that_a_cheaper_one_beats(analysis: Analysis) -> None:
    by_points = [each.variant for each in analysis.rates if not each.is_dominated_by_points]

    assert {each.variant: list(each.dominated_by) for each in analysis.rates if each.dominated_by} == GOLDEN[
        "dominated"
    ]
    assert (list(analysis.front), by_points) == (GOLDEN["front"], GOLDEN["front_by_points_only"])


def effect_of(analysis: Analysis, name: str) -> Effect:
    """The effect that the known answers call so; levels of models and prompts have different letters."""
    if name.startswith("interaction"):
        level, reference = name.rpartition("(")[2].rstrip(")").split(" - ")
        return next(
            each
            for each in analysis.effects
            if each.is_interaction and (each.level, each.reference) == (level, reference)
        )
    level, reference = name.removeprefix("prompt ").split(" - ")
    return next(
        each
        for each in analysis.effects
        if not each.is_interaction and (each.level, each.reference) == (level, reference)
    )


@pytest.mark.parametrize("name", GOLDEN["factorial"])
def test_an_effect_of_a_full_grid_is_the_known_one(analysis: Analysis, name: str) -> None:
    row, found = GOLDEN["factorial"][name], effect_of(analysis, name)

    assert found.comparison is not None
    assert found.interval is not None
    assert (found.value, found.comparison.error, found.p) == (near(row["difference"]), near(row["se"]), near(row["p"]))
    assert (found.interval.low, found.interval.high) == (near(row["low"]), near(row["high"]))


def test_a_full_grid_has_every_effect_once(analysis: Analysis) -> None:
    assert len(analysis.effects) == len(GOLDEN["factorial"]) == len(set(analysis.effects))


def test_a_factor_that_could_be_chance_has_the_adjusted_p_value_that_gave_its_word(analysis: Analysis) -> None:
    alone, adjusted = 0.03, 0.21
    effect = next(each for each in analysis.effects if not each.is_interaction and each.comparison)
    assert effect.comparison
    unsure = replace(effect, comparison=replace(effect.comparison, p=alone), holm_p=adjusted)

    (sentence,) = effect_sentences([unsure], GRID.factors)

    assert unsure.word == "cannot be told"
    assert sentence.endswith("which could be chance (p 0.21)")


def test_a_case_without_a_score_in_one_variant_is_left_out_of_its_pairs_and_counted() -> None:
    row, passes = GOLDEN["shared_cases_only"], list(GOLDEN["passes"]["m2/p2"])
    passes[4] = passes[9] = None

    found = analyse({"m1/p1": VARIANTS["m1/p1"], "m2/p2": trials(passes)}, "m1/p1").differences[0]

    assert found.comparison is not None
    assert found.interval is not None
    assert (found.n_cases, found.n_unshared_cases) == (row["cases"], len(row["left_out"]))
    assert (found.value, found.comparison.error, found.p) == (near(row["difference"]), near(row["se"]), near(row["p"]))
    assert (found.interval.low, found.interval.high) == (near(row["low"]), near(row["high"]))


@pytest.mark.parametrize(
    ("n_shared", "word"), [(0, "too few shared cases"), (4, "too few shared cases"), (5, "cannot be told")]
)
def test_below_five_shared_cases_there_are_counts_only(n_shared: int, word: str) -> None:
    variants = {"a": trials([0] * 12), "b": trials([*([5] * n_shared), *([None] * (12 - n_shared))])}

    found = analyse(variants, "a").differences[0]

    assert (found.n_cases, found.word) == (n_shared, word)
    assert (found.value is None, found.interval, found.family_interval) == (n_shared < 5, None, None)


def test_a_comparison_of_too_few_cases_counts_among_those_that_are_adjusted() -> None:
    variants = {"m1/p1": VARIANTS["m1/p1"], "m3/p1": VARIANTS["m3/p1"], "few": trials([5] * 3)}

    found = analyse(variants, "m1/p1").difference_of("m3/p1")

    assert found is not None
    assert found.holm_p == near(2 * GOLDEN["against_baseline"]["m3/p1"]["sign_flip_p"])


def test_one_variant_is_the_best_where_it_beats_all_others() -> None:
    variants = {name: VARIANTS[name] for name in ("m1/p2", "m3/p1", "m3/p2")}

    found = analyse(variants, "m3/p1")

    assert (found.best, found.may_be_best) == ("m1/p2", ("m1/p2",))


def test_a_variant_alone_with_scored_trials_beats_nothing() -> None:
    alone = analyse({"a": trials([5] * 12), "b": trials([None] * 12)}, "a")
    beside_imported = analyse({"a": trials([5] * 12), "b": trials([0] * 12)}, "a", unranked={"b"})

    assert [each.best for each in (alone, beside_imported)] == [None, None]
    assert [best_sentence(each) for each in (alone, beside_imported)] == [
        "a is the only variant with a scored trial",
        "a is the only variant that was played here",
    ]


def test_the_best_variant_beats_only_those_that_it_was_compared_with() -> None:
    passes = {"a": [5] * 12, "b": [0] * 12, "imported": [5] * 12}

    found = analyse({name: trials(each) for name, each in passes.items()}, "b", unranked={"imported"})

    assert best_sentence(found) == "a is the best: it beats every other variant that was played here"


def test_a_replayed_or_imported_run_is_compared_and_may_not_be_the_best() -> None:
    found = analyse(VARIANTS, "m1/p1", unranked={"m1/p2"})

    assert found.difference_of("m1/p2") == analyse(VARIANTS, "m1/p1").difference_of("m1/p2")
    assert found.may_be_best == ("m1/p1", "m2/p1", "m2/p2")
    assert not any("m1/p2" in (each.first, each.second) for each in found.pairs)


def test_a_variant_that_is_beaten_at_a_higher_cost_is_dominated() -> None:
    costs = {**GOLDEN["cost_per_trial"], "m3/p1": 0.1}

    found = analyse(VARIANTS, "m1/p1", costs=costs).rate_of("m3/p1")

    assert set(found.dominated_by) == set(found.beaten_by) == {"m1/p1", "m1/p2", "m2/p1", "m2/p2", "m3/p2"}


def test_an_unknown_cost_neither_dominates_nor_is_dominated() -> None:
    found = analyse(VARIANTS, "m1/p1", costs={**GOLDEN["cost_per_trial"], "m3/p1": None, "m1/p2": None})

    assert found.rate_of("m3/p1").dominated_by == ()
    assert not found.rate_of("m1/p2").is_dominated_by_points


COSTS = {
    (0.04, 0.01): "Costs 4 times as much.",
    (0.012, 0.01): "Costs 20 % more.",
    (0.004, 0.01): "Costs 60 % less.",
    (0.0105, 0.01): "",
    (None, 0.01): "",
    (0.01, 0.0): "",
}


@pytest.mark.parametrize("costs", COSTS, ids=str)
def test_a_variant_is_said_beside_its_baseline_with_its_cost(
    analysis: Analysis, costs: tuple[float | None, float]
) -> None:
    worse, unsure = analysis.difference_of("m3/p1"), analysis.difference_of("m2/p1")
    assert worse is not None
    assert worse.interval is not None
    assert unsure is not None
    near, far = sorted(round(100 * abs(end)) for end in (worse.interval.low, worse.interval.high))

    sentences = [variant_sentences(each, "A", *costs) for each in (worse, unsure)]

    assert sentences == [
        f"Worse by {near} to {far} points. {COSTS[costs]}".rstrip(),
        f"Cannot be told from A. {COSTS[costs]}".rstrip(),
    ]


@pytest.mark.parametrize(("n_variants", "lead"), [(int(k), lead) for k, lead in GOLDEN["winners_curse"].items()])
def test_the_lead_of_the_best_of_equal_variants_is_the_known_one(n_variants: int, lead: float) -> None:
    assert expected_lead(n_variants, 100, 0.8) == pytest.approx(lead, abs=1e-12)


@pytest.mark.parametrize("n_trials", [1, 40, 1_000, 1_000_000])
def test_the_lead_of_the_best_is_that_of_the_distribution_of_scipy(n_trials: int) -> None:
    passes = range(n_trials + 1) if n_trials <= 1_000 else range(695_000, 705_000)
    shares = scipy.stats.binom(n_trials, 0.7).cdf(list(passes)) ** 9
    expected = (passes[-1] - shares[:-1].sum()) / n_trials - 0.7

    assert expected_lead(9, n_trials, 0.7) == pytest.approx(float(expected), abs=1e-8)


@pytest.mark.parametrize(("n_trials", "rate"), [(0, 0.5), (10, 0.0), (10, 1.0)])
def test_variants_that_always_end_alike_have_no_lead(n_trials: int, rate: float) -> None:
    assert expected_lead(6, n_trials, rate) == 0.0


def test_the_luck_of_the_leader_is_over_all_variants(analysis: Analysis) -> None:
    luck = analysis.luck

    assert luck is not None
    assert (luck.leader, luck.n_variants, luck.n_trials) == ("m1/p2", 6, 60)
    assert luck.lead == near(expected_lead(6, 60, sum(GOLDEN["pass_rate"].values()) / 6))


@pytest.mark.parametrize(
    ("n_looks", "dropped"), [(1, ("m1/p1", "m2/p1", "m3/p1", "m3/p2")), (6, ("m3/p1",)), (1_000, ())]
)
def test_more_planned_looks_drop_fewer_variants(n_looks: int, dropped: tuple[str, ...]) -> None:
    assert worse_than_leader(VARIANTS, n_looks) == dropped


@pytest.mark.parametrize("level", [0.95, 0.99, 1 - 0.05 / 59])
@pytest.mark.parametrize("df", [1, 2, 11, 200, 201, 5_000])
def test_a_quantile_at_any_level_is_that_of_scipy(df: int, level: float) -> None:
    assert t_quantile(df, level) == pytest.approx(float(scipy.special.stdtrit(df, (1 + level) / 2)), rel=1e-8)


def equal_variants(random: Random, n_variants: int, n_cases: int, n: int) -> dict[str, Mapping[int, Sample]]:
    """Variants of one agent: each case has one pass rate in all of them."""
    rates = [random.betavariate(2, 1) for _ in range(n_cases)]
    return {
        f"v{at}": trials([sum(random.random() < rate for _ in range(n)) for rate in rates], n)
        for at in range(n_variants)
    }


def has_word(found: Analysis) -> bool:
    """Whether a variant is called better or worse than the baseline."""
    return any(each.word in ("better", "worse") for each in found.differences)


def test_equal_variants_seldom_have_a_word() -> None:
    random = Random(20261128)
    builds = [analyse(equal_variants(random, 6, 12, 5), "v0") for _ in range(60)]

    n_naive = sum(any((each.value or 0) > 0 for each in found.differences) for found in builds)

    assert n_naive > 40  # the highest number is above the baseline nearly each time
    assert sum(map(has_word, builds)) <= 60 * 0.05 + 3 * (60 * 0.05 * 0.95) ** 0.5
