"""The random sample of each verdict that people read: the trials without a gap in the order of drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from evaldesk.desk.queues import drawing_order
from evaldesk.model.stored import TrialKey
from evaldesk.statistics.failure_modes import Stratum


@dataclass(frozen=True, slots=True)
class Sample:
    """The trials of a verdict that are its sample, of `n_all`; `by_case` counts them by the index of their case."""

    n_all: int
    keys: frozenset[TrialKey]
    by_case: Mapping[int, int]

    def stratum(self, found: Collection[TrialKey]) -> Stratum:
        """The sample with the trials in which something was found."""
        n_found = Counter(key[0] for key in found if key in self.keys)
        return Stratum(self.n_all, [(n, n_found[case]) for case, n in self.by_case.items()])


def samples(orders: Mapping[str, Sequence[TrialKey]], read: Collection[TrialKey]) -> dict[str, Sample]:
    """By the letter of its verdict, how much of each was read without a gap."""
    found = {}
    for letter, keys in orders.items():
        sample = list(takewhile(lambda key: key in read, keys))
        found[letter] = Sample(len(keys), frozenset(sample), Counter(key[0] for key in sample))
    return found


@lru_cache(maxsize=16)
def drawing_orders(run_id: int, strips: tuple[str, ...], letters: str) -> Mapping[str, Sequence[TrialKey]]:
    """The trials of each verdict, by its letter, in the order in which they are drawn."""
    by_letter: dict[str, list[TrialKey]] = {letter: [] for letter in letters}
    for case_index, strip in enumerate(strips):
        for trial_index, letter in enumerate(strip):
            if letter in by_letter:
                by_letter[letter].append((case_index, trial_index))
    return {letter: drawing_order(run_id, keys) for letter, keys in by_letter.items()}
