"""Draws of conversations to read, and the share of failures that their labels tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.desk.inbox.inbox import InboxDesk
from evaldesk.desk.inbox.sampling import draw_strata, parse_strata
from evaldesk.desk.labels import Person
from evaldesk.errors import UsageError
from evaldesk.model.conversation_filter import ConversationFilter
from evaldesk.model.inbox import Draw, DrawStratum
from evaldesk.statistics.weighted_share import ReadStratum, WeightedShare, weighted_share
from evaldesk.store import Store

MAX_SEED = 2**31


@dataclass(frozen=True, slots=True)
class DrawnShare:
    """The read conversations of a draw by stratum, and the weighted share of failures; None while a part is unread."""

    strata: tuple[tuple[str, ReadStratum], ...]
    share: WeightedShare | None

    @property
    def n_read(self) -> int:
        """Labelled conversations."""
        return sum(stratum.n_read for _, stratum in self.strata)

    @property
    def n_failed(self) -> int:
        """Conversations labelled as failures."""
        return sum(stratum.n_failed for _, stratum in self.strata)


class DrawDesk:
    """The draws of a workspace."""

    def __init__(self, store: Store, inbox: InboxDesk, person: Person) -> None:
        self._store = store
        self._inbox = inbox
        self._person = person

    def draw(
        self, strata: Sequence[str], *, line: str = "", seed: int | None = None, is_one_per_twin_group: bool = True
    ) -> Draw:
        """Draw conversations of each stratum among those that the filter line finds, and store the draw.

        Without a seed it is the number of the draw. Raises UsageError for wrong strata, and where nothing is drawn.
        """
        plans, conditions = parse_strata(strata), parse_filter(line)
        newest = self.newest()
        seed = (newest.id if newest else 0) + 1 if seed is None else seed
        if not 0 <= seed <= MAX_SEED:
            raise UsageError(f"a seed is 0 to {MAX_SEED:,}, got {seed}", field="seed")
        candidates = [
            [(each.id, each.twin_group) for each in self._inbox.candidates(_both(conditions, plan.filter))]
            for plan in plans
        ]
        drawn_strata = draw_strata(plans, candidates, seed, is_one_per_twin_group=is_one_per_twin_group)
        items = [(number, stratum.name) for stratum in drawn_strata for number in stratum.ids]
        if not items:
            raise UsageError("no conversation meets the filters of the strata, so none was drawn", field="strata")
        sizes = [DrawStratum(stratum.name, stratum.size, len(stratum.ids)) for stratum in drawn_strata]
        draw_id = self._store.inbox_draws.create(str(conditions), sizes, items, seed, self._person.name())
        return self.get(draw_id)

    def get(self, draw_id: int) -> Draw:
        """A draw with the labels of this person. Raises NotFoundError."""
        return self._store.inbox_draws.get(draw_id, self._person.name())

    def newest(self) -> Draw | None:
        """The newest draw with the labels of this person; None without any."""
        return self._store.inbox_draws.newest(self._person.name())


def share_of(draw: Draw) -> DrawnShare:
    """The share of failures among all conversations of a draw's strata, from the labelled ones."""
    n_read = Counter(item.stratum for item in draw.items if item.verdict)
    n_failed = Counter(item.stratum for item in draw.items if item.verdict == "failed")
    strata = tuple((each.name, ReadStratum(each.n, n_read[each.name], n_failed[each.name])) for each in draw.strata)
    return DrawnShare(strata, weighted_share([stratum for _, stratum in strata]))


def _both(one: ConversationFilter, other: ConversationFilter) -> ConversationFilter:
    return ConversationFilter((*one.terms, *other.terms))
