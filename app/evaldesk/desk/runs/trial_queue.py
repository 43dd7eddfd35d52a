"""The trials of a run that are to be played, each with its case: read a page at a time, so that memory stays flat."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from evaldesk.model import Case
from evaldesk.model.stored import PendingTrial, TrialKey
from evaldesk.store import RunStore

PAGE = 500
CASES_KEPT = 2 * PAGE
"""Of a run with fewer cases each is read once, however many trials it has."""


class TrialQueue:
    """The pending trials of a run in the order of play. `n_left` counts those that were not taken.

    `on_page` is told the trials of each page before one of them is taken.
    """

    def __init__(
        self, runs: RunStore, run_id: int, on_page: Callable[[Sequence[PendingTrial]], None] = lambda _: None
    ) -> None:
        self.n_left = 0
        self._runs = runs
        self._run_id = run_id
        self._on_page = on_page
        self._page: deque[PendingTrial] = deque()
        self._last: TrialKey | None = None
        self._cases: OrderedDict[int, Case] = OrderedDict()

    def look(self) -> None:
        """Count the trials that are to be played, and begin with the first of them."""
        self.n_left = self._runs.summary(self._run_id).n_todo
        self._page.clear()
        self._last = None

    def read_page(self) -> bool:
        """Read more trials; False when no more are stored yet."""
        found = self._runs.pending(self._run_id, self._last, PAGE)
        if not found:
            return False
        wanted = {trial.case_index for trial in found}
        missing = sorted(wanted - self._cases.keys())
        if missing:
            self._cases |= self._runs.some_cases(self._run_id, missing)
        for index in wanted:
            self._cases.move_to_end(index)
        while len(self._cases) > max(CASES_KEPT, len(wanted)):
            self._cases.popitem(last=False)
        self._on_page(found)
        self._page.extend(found)
        self._last = (found[-1].case_index, found[-1].trial_index)
        return True

    @property
    def is_read(self) -> bool:
        """Whether a trial can be taken at once."""
        return bool(self._page)

    def take(self) -> tuple[PendingTrial, Case]:
        """The next trial and its case."""
        trial = self._page.popleft()
        self.n_left -= 1
        return trial, self._cases[trial.case_index]
