"""1,000 trajectories of 3 to 20 turns a row: the decisive turn is named, and another one in at most 3 of 100."""

from __future__ import annotations

import pytest
from tests.report.decisive_trajectories import answers

pytestmark = pytest.mark.torture


@pytest.mark.parametrize(("a", "b", "fewest_named"), [(0.9, 0.1, 880), (0.8, 0.2, 560), (0.7, 0.1, 600), (0.3, 0.3, 0)])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_decisive_turn_is_named_and_seldom_another(a: float, b: float, fewest_named: int, seed: int) -> None:
    times = answers(a, b, 1_000, seed)

    assert times["named"] >= fewest_named, times
    assert times["wrong"] <= 30, times
