"""The random sample of each verdict that people read: the trials without a gap in the order of drawing.

A trial is its number here (`trial_number`): ten thousand of them are counted for one page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from evaldesk.desk.queues import drawing_order
from evaldesk.model.failures import TRIALS, trial_number
from evaldesk.model.stored import TrialKey
from evaldesk.statistics.failure_modes import Stratum


@dataclass(frozen=True, slots=True)
class Sample:
    """The trials of a verdict that are its sample, of `n_all`; `by_case` counts them by the index of their case."""

    n_all: int
    keys: frozenset[int]
    by_case: Mapping[int, int]

    def stratum(self, found: Set[int]) -> Stratum:
        """The sample with the trials in which something was found."""
        n_found = Counter(number // TRIALS for number in self.keys & found)
        return Stratum(self.n_all, [(n, n_found.get(case, 0)) for case, n in self.by_case.items()])


def samples(orders: Mapping[str, Sequence[int]], read: Set[int]) -> dict[str, Sample]:
    """By the letter of its verdict, how much of each was read without a gap."""
    found = {}
    for letter, numbers in orders.items():
        sample = list(takewhile(read.__contains__, numbers))
        by_case = Counter(number // TRIALS for number in sample)
        found[letter] = Sample(len(numbers), frozenset(sample), by_case)
    return found


@lru_cache(maxsize=16)
def drawing_orders(run_id: int, strips: tuple[str, ...], letters: str) -> Mapping[str, Sequence[int]]:
    """The trials of each verdict, by its letter, in the order in which they are drawn."""
    by_letter: dict[str, list[TrialKey]] = {letter: [] for letter in letters}
    for case_index, strip in enumerate(strips):
        for trial_index, letter in enumerate(strip):
            if letter in by_letter:
                by_letter[letter].append((case_index, trial_index))
    return {letter: [*map(trial_number, drawing_order(run_id, keys))] for letter, keys in by_letter.items()}
