"""The random sample of each verdict that people read: the trials without a gap in the order of drawing.

A trial is its number here (`trial_number`): ten thousand of them are counted for one page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, takewhile

from evaldesk.desk.queues import drawing_order
from evaldesk.model.failures import trial_number
from evaldesk.model.stored import TrialKey
from evaldesk.statistics.failure_modes import Stratum
from evaldesk.store import Store


# A start without gaps of a random order is a random sample: decision 109.
@dataclass(frozen=True, slots=True)
class Sample:
    """The trials of a verdict that are its sample, of all in `order`.

    `by_case` counts them by the index of their case, and `of_size` the cases by these counts.
    """

    order: Mapping[int, int]
    keys: frozenset[int]
    by_case: Mapping[int, int]
    of_size: Mapping[int, int]

    @property
    def n_all(self) -> int:
        """The trials with the verdict."""
        return len(self.order)

    def stratum(self, trials_with_finding: Set[int]) -> Stratum:
        """The sample with the trials in which something was found."""
        cases = Counter({(n, 0): n_cases for n, n_cases in self.of_size.items()})
        for case, n_found in Counter(map(self.order.__getitem__, self.keys & trials_with_finding)).items():
            n = self.by_case[case]
            cases[n, 0] -= 1
            cases[n, n_found] += 1
        return Stratum(self.n_all, +cases)


def samples(orders: Mapping[str, Mapping[int, int]], trials_read: Set[int]) -> dict[str, Sample]:
    """The sample of each verdict, by its letter: the trials that were read without a gap."""
    by_letter = {}
    for letter, order in orders.items():
        keys = frozenset(takewhile(trials_read.__contains__, order))
        by_case = Counter(islice(order.values(), len(keys)))
        by_letter[letter] = Sample(order, keys, by_case, Counter(by_case.values()))
    return by_letter


@lru_cache(maxsize=16)
def drawing_orders(run_id: int, strips: tuple[str, ...], letters: str) -> Mapping[str, Mapping[int, int]]:
    """The trials of each verdict, by its letter, in the order in which they are drawn, each with its case."""
    by_letter: dict[str, list[TrialKey]] = {letter: [] for letter in letters}
    for case_index, strip in enumerate(strips):
        for trial_index, letter in enumerate(strip):
            if letter in by_letter:
                by_letter[letter].append((case_index, trial_index))
    orders = ((letter, drawing_order(run_id, keys)) for letter, keys in by_letter.items())
    return {letter: {trial_number(key): key[0] for key in order} for letter, order in orders}


class Draw:
    """The planned trials of a run by verdict, each in the order in which they are drawn to be read.

    The order is a random one that depends on the run alone. The first trials of a stratum that were all read are a
    random sample of it; a trial that was read out of order joins it later.
    """

    def __init__(self, store: Store, run_id: int) -> None:
        self.cases = store.failures.verdicts(run_id)
        self.strata = drawing_orders(run_id, tuple(strip for _, strip in self.cases), "fepu")

    def next(self, trials_read: Set[int]) -> int | None:
        """The next trial to read: failed ones, then errored ones, then a tenth of the passed ones."""
        passed = self.strata["p"]
        for numbers in (self.strata["f"], self.strata["e"], islice(passed, -(-len(passed) // 10))):
            next_number = next((number for number in numbers if number not in trials_read), None)
            if next_number is not None:
                return next_number
        return None

    def samples(self, trials_read: Set[int]) -> Mapping[str, Sample]:
        """The sample of each stratum."""
        return samples(self.strata, trials_read)
