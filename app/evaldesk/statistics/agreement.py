"""The agreement of labellers, with one another or with a metric, beyond chance.

(reference/reliability_stats.md C1, judge vs human)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import fsum, sqrt

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import Z_95
from evaldesk.statistics.judge_rate import CorrectedRate, correct_rate, corrected_interval, labels_to_add


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two labellers over the same `n` things. `kappa` is None where one of them used a single label: not measurable.

    `interval` is None, too, where its formula would claim certainty: both agree on all, or there are too few.
    """

    n: int
    n_agreed: int
    kappa: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class JudgeSkill:
    """A metric's verdicts beside a person's, as counts; the person's verdicts are taken for the truth."""

    n_good: int
    n_good_passed: int
    n_bad: int
    n_bad_failed: int

    @property
    def n(self) -> int:
        """Things with both verdicts."""
        return self.n_good + self.n_bad

    @property
    def n_agreed(self) -> int:
        """Things with the same verdict."""
        return self.n_good_passed + self.n_bad_failed

    @property
    def matrix(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """A row for each verdict of the person, passed first: the things that the metric passes, and fails."""
        good_failed, bad_passed = self.n_good - self.n_good_passed, self.n_bad - self.n_bad_failed
        return (self.n_good_passed, good_failed), (bad_passed, self.n_bad_failed)

    def correct(self, judge_rate: float) -> CorrectedRate | None:
        """The pass rate behind the metric's; None where the labels have one verdict only, or it goes by chance."""
        if not self.n_good or not self.n_bad:
            return None
        estimate = correct_rate(judge_rate, self.n_good_passed / self.n_good, self.n_bad_failed / self.n_bad)
        if estimate is None:
            return None
        could = corrected_interval(judge_rate, (self.n_good_passed, self.n_good), (self.n_bad_failed, self.n_bad))
        low, high = min(could.low, estimate.corrected), max(could.high, estimate.corrected)
        return replace(estimate, interval=Interval(low, high))

    def labels_to_add(self, half_width: float, n_by_verdict: tuple[int, int]) -> tuple[int, ...]:
        """The labels that are missing for this half width, 0 to 1, among the things that the metric passed and failed.

        `n_by_verdict` are their numbers, labelled or not.
        """
        bad_passed, good_failed = self.n_bad - self.n_bad_failed, self.n_good - self.n_good_passed
        passed = (n_by_verdict[0], self.n_good_passed + bad_passed, self.n_good_passed)
        return labels_to_add(half_width, (passed, (n_by_verdict[1], good_failed + self.n_bad_failed, good_failed)))


def agreement(pairs: Iterable[tuple[Hashable, Hashable]]) -> Agreement:
    """Cohen's kappa of pairs of labels, or of their counts, with its 95 % interval.

    Where one labeller used a single label it would be 0 whatever the other did: there is none.
    (Cohen 1960; variance after Fleiss, Cohen and Everitt 1969)
    """
    counts = Counter(pairs)
    n, n_agreed = counts.total(), sum(count for (a, b), count in counts.items() if a == b)
    table = {cell: count / n for cell, count in counts.items() if count}
    labels = {label for pair in table for label in pair}
    row = {label: fsum(p for (a, _), p in table.items() if a == label) for label in labels}
    column = {label: fsum(p for (_, b), p in table.items() if b == label) for label in labels}
    by_chance = fsum(row[label] * column[label] for label in labels)
    if any(sum(share > 0 for share in shares.values()) < 2 for shares in (row, column)):
        return Agreement(n, n_agreed, None, None)
    kappa = (n_agreed / n - by_chance) / (1 - by_chance)
    same = fsum(
        table.get((label, label), 0.0) * (1 - (row[label] + column[label]) * (1 - kappa)) ** 2 for label in labels
    )
    crossed = fsum(p * (column[a] + row[b]) ** 2 for (a, b), p in table.items() if a != b)
    variance = same + (1 - kappa) ** 2 * crossed - (kappa - by_chance * (1 - kappa)) ** 2
    if variance < 1e-12:
        return Agreement(n, n_agreed, kappa, None)
    half = Z_95 * sqrt(variance / n) / (1 - by_chance)
    return Agreement(n, n_agreed, kappa, Interval(kappa - half, kappa + half))


def nominal_alpha(units: Iterable[Mapping[str, Hashable]]) -> float | None:
    """Krippendorff's alpha for labels without an order; each unit maps a labeller to the label, gaps allowed.

    1 is full agreement, 0 that of chance. None without two labels on one thing, or where only one label was used.
    """
    pairable = [Counter(unit.values()) for unit in units if len(unit) > 1]
    totals: Counter[Hashable] = Counter()
    for counts in pairable:
        totals.update(counts)
    n = totals.total()
    by_chance = n * n - sum(count * count for count in totals.values())
    if not by_chance:
        return None
    observed = fsum(
        (counts.total() ** 2 - sum(count * count for count in counts.values())) / (counts.total() - 1)
        for counts in pairable
    )
    return 1 - (n - 1) * observed / by_chance


def judge_skill(pairs: Iterable[tuple[bool, bool]]) -> JudgeSkill:
    """Counts from pairs of (whether the metric passes it, whether the person does)."""
    counts = Counter(pairs)
    return JudgeSkill(
        n_good=counts[True, True] + counts[False, True],
        n_good_passed=counts[True, True],
        n_bad=counts[True, False] + counts[False, False],
        n_bad_failed=counts[False, False],
    )
