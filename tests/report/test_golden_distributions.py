"""The golden values that need a distribution follow from it, by integration, exact draws or the delta method."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from statistics import NormalDist, fmean, pvariance, variance
from typing import Any

import numpy as np
import pytest
from tests.golden_values import golden

DECISIONS, STATS = golden("decisions"), golden("stats")
NORMAL = NormalDist()
Z95 = 1.959963984540054
Matrix = Sequence[Sequence[Fraction]]


def near(value: float, rel: float = 1e-9) -> Any:
    return pytest.approx(value, rel=rel, abs=1e-12)


def integral(function: Callable[[float], float], low: float, high: float, n_steps: int = 600) -> float:
    """By Simpson's rule."""
    width = (high - low) / n_steps
    weights = [1, *([4, 2] * (n_steps // 2))[:-1], 1]
    return math.fsum(weight * function(low + at * width) for at, weight in enumerate(weights)) * width / 3


def t_between(t: float, df: float) -> float:
    """The chance that |T| is below t: with T = sqrt(df) tan(angle) the density is cos(angle)^(df - 1)."""
    share = integral(lambda angle: math.cos(angle) ** (df - 1), 0, math.atan(t / math.sqrt(df)))
    return share / integral(lambda angle: math.cos(angle) ** (df - 1), 0, math.pi / 2)


def test_each_tail_of_jeffreys_interval_holds_a_fortieth_of_its_beta() -> None:
    """With p = sin(angle)^2 the density of Beta(c + 1/2, n - c + 1/2) is sin^2c cos^2(n-c), a polynomial."""
    for row in STATS["proportion_ci"]["cases"]:
        c, n = row["c"], row["n"]
        peak = math.asin(math.sqrt(c / n))

        def density(angle: float, c: int = c, n: int = n, peak: float = peak) -> float:
            whole = math.sin(peak) ** (2 * c) * math.cos(peak) ** (2 * (n - c))
            return math.sin(angle) ** (2 * c) * math.cos(angle) ** (2 * (n - c)) / whole

        low, high = (math.asin(math.sqrt(end)) for end in row["jeffreys95"])
        whole = integral(density, 0, math.pi / 2, 4_000)
        assert integral(density, 0, low, 2_000) / whole == near(0.025, 1e-6)
        assert integral(density, high, math.pi / 2, 2_000) / whole == near(0.025, 1e-6)


def test_rates_of_uniform_priors_have_the_moments_of_their_likelihood() -> None:
    """The k-th moment of a rate after c of n is the ratio of the integrals of p^(c+k) (1-p)^(n-c)."""
    for row in STATS["bayes_at_n"]["cases"]:
        n, means, variances = row["n"], list[Fraction](), list[Fraction]()
        for c in row["c_per_case"]:
            zeroth, first, second = (
                sum(Fraction((-1) ** i * math.comb(n - c, i), c + k + i + 1) for i in range(n - c + 1))
                for k in range(3)
            )
            means.append(Fraction(first) / zeroth)
            variances.append(Fraction(second) / zeroth - means[-1] ** 2)

        n_cases = len(means)
        assert row["mu"] == near(float(sum(means) / n_cases))
        assert row["sigma"] == near(math.sqrt(sum(variances)) / n_cases)


def test_intervals_and_chances_of_student_are_areas_below_its_density() -> None:
    for row in STATS["clustered_se"]["cases"]:
        low, high = row["ci95_t_cr1"]
        assert (low + high) / 2 == near(row["mean"])
        assert t_between((high - low) / 2 / row["se_cluster_cr1"], row["clusters"] - 1) == near(0.95)
    paired = STATS["paired"]
    low, high = paired["ci95_t"]
    assert (low + high) / 2 == near(paired["mean_diff"])
    assert paired["df"] == len(paired["a"]) - 1
    assert t_between((high - low) / 2 / paired["se_paired"], paired["df"]) == near(0.95)
    assert paired["p_t"] == near(1 - t_between(paired["t"], paired["df"]))


def test_the_bootstrap_interval_is_that_of_all_resamples() -> None:
    """BCa (Efron 1987) over the exact distribution of the mean of draws with replacement, by convolution."""
    known = STATS["paired"]
    steps = [round(10 * (a - b)) for a, b in zip(known["a"], known["b"], strict=True)]
    n = len(steps)
    sums: dict[int, int] = {0: 1}
    for _ in range(n):
        following = defaultdict[int, int](int)
        for total, n_ways in sums.items():
            for step in steps:
                following[total + step] += n_ways
        sums = dict(sorted(following.items()))

    below = sum(n_ways for total, n_ways in sums.items() if total < sum(steps))
    equal = sums[sum(steps)]
    bias = NORMAL.inv_cdf((below + equal / 2) / n**n)
    left_out = [fmean(steps[:at] + steps[at + 1 :]) for at in range(n)]
    deviations = [fmean(left_out) - each for each in left_out]
    skew = sum(each**3 for each in deviations) / 6 / sum(each**2 for each in deviations) ** 1.5
    shares = [NORMAL.cdf(bias + (bias + z) / (1 - skew * (bias + z))) for z in (-Z95, Z95)]
    ends = [next(total for total in sums if at_most(sums, total) >= share * n**n) / 10 / n for share in shares]
    # Another seed, or rounding among equal means, moves an end by one step between means.
    tolerance = 2 / 10 / n + 1e-9
    assert known["bootstrap_bca95"]["value"] == [pytest.approx(end, abs=tolerance) for end in ends]


def at_most(sums: dict[int, int], total: int) -> int:
    return sum(n_ways for each, n_ways in sums.items() if each <= total)


def kappa(shares: Matrix, weights: Matrix) -> Fraction:
    """1 - (observed / expected disagreement), each weighed by how far apart the labels are."""
    rows = [sum(line, Fraction()) for line in shares]
    columns = [sum(line, Fraction()) for line in zip(*shares, strict=True)]
    places = [*product(range(len(shares)), repeat=2)]
    observed = sum((weights[i][j] * shares[i][j] for i, j in places), Fraction())
    return 1 - observed / sum((weights[i][j] * rows[i] * columns[j] for i, j in places), Fraction())


def test_errors_of_kappa_are_those_of_the_delta_method() -> None:
    """The variance of a function of the shares of n items is that of its slopes over the items, divided by n."""
    step = Fraction(1, 10**9)
    for row in STATS["agreement"]["cohen_kappa"]:
        table, total = row["table"], sum(map(sum, row["table"]))
        shares = [[Fraction(each, total) for each in line] for line in table]
        labels = range(len(table))
        weights = {
            name: [[Fraction(abs(i - j) ** power if power else i != j) for j in labels] for i in labels]
            for name, power in (("kappa", 0), ("kappa_linear", 1), ("kappa_quadratic", 2))
        }
        for name in weights.keys() & {key for key, value in row.items() if value is not None}:
            assert row[name] == near(float(kappa(shares, weights[name])))
        if row["kappa"] is None:
            continue

        def moved(i: int, j: int, by: Fraction, shares: Matrix = shares, weights: Any = weights) -> Fraction:
            """Kappa where item (i, j) weighs more; the shares need not add up to 1 after that, and are made to."""
            changed = [
                [each + (by if (i, j) == (r, c) else 0) for c, each in enumerate(line)] for r, line in enumerate(shares)
            ]
            return kappa([[each / (1 + by) for each in line] for line in changed], weights["kappa"])

        slopes = {(i, j): (moved(i, j, step) - moved(i, j, -step)) / (2 * step) for i, j in product(labels, repeat=2)}
        mean = sum(shares[i][j] * slope for (i, j), slope in slopes.items())
        squares = sum(shares[i][j] * (slope - mean) ** 2 for (i, j), slope in slopes.items())

        assert row["se"] == near(math.sqrt(squares / total))
        assert row["ci95"] == [near(float(row["kappa"]) + side * Z95 * row["se"]) for side in (-1, 1)]


def test_alpha_compares_the_pairs_of_a_unit_with_all_pairs() -> None:
    """(Krippendorff 2004, chapter 11) Every ordered pair of values of a unit weighs 1 / (their number - 1)."""
    known = STATS["agreement"]["krippendorff"]
    units = [[value for value in unit if value is not None] for unit in zip(*known["data"], strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    values = [value for unit in units for value in unit]

    def ranks(a: int, b: int) -> float:
        between = sum(min(a, b) <= each <= max(a, b) for each in values)
        return float(between - (values.count(a) + values.count(b)) / 2) if a != b else 0.0

    distances: dict[str, Callable[[int, int], float]] = {
        "nominal": lambda a, b: float(a != b),
        "ordinal": ranks,
        "interval": lambda a, b: a - b,
        "ratio": lambda a, b: (a - b) / (a + b),
    }
    assert distances.keys() == known["alpha"].keys()
    for name, distance in distances.items():
        within = sum(distance(a, b) ** 2 / (len(unit) - 1) for unit in units for a, b in product(unit, repeat=2))
        among_all = sum(distance(a, b) ** 2 for a, b in product(values, repeat=2)) / (len(values) - 1)
        assert known["alpha"][name] == near(1 - within / among_all)
        assert round(known["alpha"][name], 3) == known["published"][name]


def test_fleiss_kappa_counts_agreeing_pairs_of_raters() -> None:
    known = STATS["agreement"]["fleiss"]
    subjects = [[label for label, n in enumerate(row) for _ in range(n)] for row in known["table"]]
    n = len(subjects[0])
    labels = [label for subject in subjects for label in subject]
    pairs = [subject[i] == subject[j] for subject in subjects for i in range(n) for j in range(n) if i != j]

    observed = Fraction(sum(pairs), len(pairs))
    chance = Fraction(sum(a == b for a, b in product(labels, repeat=2)), len(labels) ** 2)

    assert known["kappa"] == near(float((observed - chance) / (1 - chance)))


def test_labels_correct_the_mean_of_a_judge() -> None:
    """Prediction-powered inference (Angelopoulos et al. 2023), and with the tuned weight of the judge (PPI++)."""
    known = STATS["judge_correction"]["ppi_mean"]
    labels, judged = known["labels"], known["judge_on_labeled"]
    n, n_unlabeled, n_passed = len(labels), known["judge_on_unlabeled_n"], known["judge_on_unlabeled_pass"]
    unlabeled = [1] * n_passed + [0] * (n_unlabeled - n_passed)
    products = [label * verdict for label, verdict in zip(labels, judged, strict=True)]
    covariance = fmean(products) - fmean(labels) * fmean(judged)
    weights = {"ppi": 1.0, "ppi_plus_plus": covariance / ((1 + n / n_unlabeled) * variance(judged + unlabeled))}

    assert (known["naive_judge_mean"], known["human_only_mean"]) == (near(fmean(unlabeled)), near(fmean(labels)))
    for name, weight in weights.items():
        corrections = [label - weight * verdict for label, verdict in zip(labels, judged, strict=True)]
        estimate = weight * fmean(unlabeled) + fmean(corrections)
        half = Z95 * math.sqrt(weight**2 * pvariance(unlabeled) / n_unlabeled + pvariance(corrections) / n)
        assert known[f"{name}_estimate"] == near(estimate)
        assert known[f"{name}_ci95"] == [near(estimate - half), near(estimate + half)]


def test_numbers_of_cases_are_the_fewest_that_reach_the_power() -> None:
    """With Cohen's difference of arcsines for two rates, and with the noncentral t for pairs, both at 80 %."""
    known = STATS["power"]
    assert (known["z_alpha2"], known["z_beta"]) == (near(NORMAL.inv_cdf(0.975)), near(NORMAL.inv_cdf(0.8)))
    for row in known["unpaired_two_proportions"]:
        effect = 2 * (math.asin(math.sqrt(row["p2"])) - math.asin(math.sqrt(row["p1"])))
        powers = [NORMAL.cdf(effect * math.sqrt(n / 2) - Z95) for n in (row["n_per_side"] - 1, row["n_per_side"])]
        assert powers[0] < 0.8 <= powers[1]
    for row in known["paired_t"]:
        assert power_of_t(row["n"] - 1, row["d"]) < 0.8 <= power_of_t(row["n"], row["d"])


def power_of_t(n: int, effect: float) -> float:
    """The chance that |T| of n pairs is significant at 5 %: a normal over the root of a chi-squared, integrated."""
    df = n - 1
    low, high = 1.9, 5.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if t_between(middle, df) < 0.95 else (low, middle)
    scale = math.lgamma(df / 2) + (df / 2 - 1) * math.log(2)

    def significant(s: float) -> float:
        """For a standard deviation that is s times the true one."""
        if s <= 0:
            return 0.0
        density = math.exp((df / 2) * math.log(df) + (df - 1) * math.log(s) - df * s * s / 2 - scale)
        shift = effect * math.sqrt(n)
        return density * (1 - NORMAL.cdf(low * s - shift) + NORMAL.cdf(-low * s - shift))

    return integral(significant, 0, 4)


def test_looking_again_raises_false_alarms_as_a_walk_that_stays_inside_says() -> None:
    """The sum of k steps of a standard normal, carried on a grid as long as |sum| < 1.96 sqrt(k). (Armitage 1969)"""
    known = STATS["sequential"]["false_alarm_rate_when_peeking_at_p_005"]
    grid, width = np.linspace(-9, 9, 601, retstep=True)
    steps = np.exp(-(np.subtract.outer(grid, grid) ** 2) / 2) * width / math.sqrt(2 * math.pi)
    inside = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    found: dict[str, float] = {}
    for k in range(1, 21):
        inside = np.where(np.abs(grid) < Z95 * math.sqrt(k), inside if k == 1 else steps @ inside, 0)
        found[str(k)] = 1 - float(inside.sum()) * float(width)

    for k, alarms in known["looks"].items():
        assert alarms == pytest.approx(found[k], abs=known["tolerance"])
        assert known["published"][k] == pytest.approx(found[k], abs=known["tolerance"])


def test_differences_that_a_bet_refutes_are_outside_of_the_interval() -> None:
    """The hedged capital of Waudby-Smith and Ramdas (2024, theorem 3) at each mean of a grid, bet by bet."""
    suites = {
        "eight clean wins of n=1": [1.0] * 8,
        "40 cases: +1 +0.2 0 -0.2 in turn": [1.0, 0.2, 0.0, -0.2] * 10,
    }
    for row in DECISIONS["betting_difference"]:
        ends = [*betting(suites[row["name"]])]
        excluded = next((n for n, (low, high) in enumerate(ends, 1) if low > 0 or high < 0), None)

        assert (len(ends), excluded) == (row["n"], row["first_excludes_zero"])
        for known in (row["own"], row["ville"]):
            assert known == [pytest.approx(end, abs=0.001) for end in ends[-1]]


def betting(differences: Sequence[float]) -> Iterator[tuple[float, float]]:
    """The interval after each difference."""
    means = np.linspace(0, 1, 2001)[1:-1]
    up, down, is_open = np.zeros_like(means), np.zeros_like(means), np.ones_like(means, bool)
    total, squares = 0.5, 0.25
    for n, share in enumerate(((1 + each) / 2 for each in differences), 1):
        stake = math.sqrt(2 * math.log(2 / 0.05) / (squares / n * n * math.log(1 + n)))
        up += np.log1p(np.minimum(stake, 0.5 / means) * (share - means))
        down += np.log1p(np.minimum(stake, 0.5 / (1 - means)) * (means - share))
        total += share
        squares += (share - total / (n + 1)) ** 2
        is_open &= np.maximum(up, down) < math.log(2 / 0.05)
        yield 2 * means[is_open].min() - 1, 2 * means[is_open].max() - 1
