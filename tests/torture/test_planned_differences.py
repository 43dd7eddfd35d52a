"""The differences that the planner names are found about 4 times in 5, over shapes, rates and both ways."""

from __future__ import annotations

from random import Random

import pytest
from tests.report.test_experiment_power import EVEN_RATES, MIXED_RATES, share_found

pytestmark = pytest.mark.torture

N_BUILDS = 500
LOW_RATES = [0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.2, 0.3, 0.25]


@pytest.mark.parametrize("sign", [-1, 1], ids=["loss", "gain"])
@pytest.mark.parametrize("case_rates", [EVEN_RATES, MIXED_RATES, LOW_RATES], ids=["even", "mixed", "low"])
@pytest.mark.parametrize("n_variants", [2, 3, 9])
@pytest.mark.parametrize(("n_cases", "n"), [(8, 5), (12, 3), (20, 1), (20, 10), (30, 3), (100, 5)])
def test_a_planned_difference_is_found_about_4_times_in_5(
    n_cases: int, n: int, n_variants: int, case_rates: list[float], sign: int
) -> None:
    random = Random(20261129)

    share = share_found(random, case_rates, n_cases=n_cases, n=n, n_variants=n_variants, sign=sign, n_builds=N_BUILDS)

    if share is not None:
        least = 0.75 if n_cases >= 30 else 0.65
        assert least <= share, share
