"""Experiments of equal variants: a word in at most 5 % of them, and no front, factor or "best" more often."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from tests.report.test_experiments import equal_variants, has_word

from evaldesk.model.experiment import Factor, Grid
from evaldesk.statistics.experiment import analyse

pytestmark = pytest.mark.torture

N_BUILDS = 2_000


@pytest.mark.parametrize(("n_cases", "n"), [(20, 5), (10, 10), (40, 3), (6, 5)])
def test_experiments_of_2_to_12_equal_variants_have_a_word_in_at_most_5_of_100(n_cases: int, n: int) -> None:
    random = Random(20261129)
    n_words = n_beaten = n_effects = 0
    for at in range(N_BUILDS):
        n_variants = 2 + at % 11
        names = [f"v{each}" for each in range(n_variants)]
        grid = None
        if n_variants in (4, 6, 8, 10, 12):
            levels = [str(each) for each in range(n_variants // 2)]
            combinations = list(product(levels, "ab"))
            grid = Grid(
                (Factor("model", tuple(levels)), Factor("prompt", ("a", "b"))),
                dict(zip(combinations, names, strict=True)),
            )
        found = analyse(equal_variants(random, n_variants, n_cases, n), "v0", grid=grid)
        n_words += has_word(found)
        n_beaten += any(each.beaten_by for each in found.rates)
        n_effects += any(each.word in ("better", "worse") for each in found.effects)

    most = N_BUILDS * 0.05 + 3 * (N_BUILDS * 0.05 * 0.95) ** 0.5
    assert max(n_words, n_beaten, n_effects) <= most, (n_words, n_beaten, n_effects)
