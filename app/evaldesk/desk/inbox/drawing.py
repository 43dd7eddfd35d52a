"""Draws of conversations to read, and the share of failures that their labels tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.desk.inbox.inbox import InboxDesk
from evaldesk.desk.inbox.sampling import StratumPlan, draw_strata, own_rows, parse_strata
from evaldesk.desk.labels import Person
from evaldesk.errors import UsageError
from evaldesk.model.conversation_filter import ConversationFilter
from evaldesk.model.inbox import Draw, DrawStratum
from evaldesk.statistics.weighted_share import WeightedShare, read_stratum, weighted_share
from evaldesk.store import Store

MAX_SEED = 2**31


@dataclass(frozen=True, slots=True)
class StratumReading:
    """A stratum of a draw with its conversations in all, the drawn ones, and the labelled and failed ones of these."""

    name: str
    size: int
    n_drawn: int
    n_read: int
    n_failed: int


@dataclass(frozen=True, slots=True)
class DrawnShare:
    """The read conversations of a draw by stratum, and the share of failures among all conversations of the strata.

    The share is weighted by the sizes of strata and groups of twins; None while a stratum has no label.
    """

    strata: tuple[StratumReading, ...]
    share: WeightedShare | None

    @property
    def size(self) -> int:
        """The conversations of all strata."""
        return sum(stratum.size for stratum in self.strata)

    @property
    def n_drawn(self) -> int:
        """Drawn conversations."""
        return sum(stratum.n_drawn for stratum in self.strata)

    @property
    def n_read(self) -> int:
        """Labelled conversations."""
        return sum(stratum.n_read for stratum in self.strata)

    @property
    def n_failed(self) -> int:
        """Conversations labelled as failures."""
        return sum(stratum.n_failed for stratum in self.strata)


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
        candidates = self._candidates(plans, conditions)
        drawn_strata = draw_strata(plans, candidates, seed, is_one_per_twin_group=is_one_per_twin_group)
        items = [(number, stratum.name) for stratum in drawn_strata for number in stratum.ids]
        if not items:
            raise UsageError("no conversation meets the filters of the strata, so none was drawn", field="strata")
        sizes = [DrawStratum(each.name, each.size, len(each.ids), each.weights) for each in drawn_strata]
        draw_id = self._store.inbox_draws.create(str(conditions), sizes, items, seed, self._person.name())
        return self.get(draw_id)

    def sizes(self, strata: Sequence[str], *, line: str = "") -> tuple[int, ...]:
        """The number of conversations in each stratum, without those of earlier ones. Raises UsageError."""
        candidates = self._candidates(parse_strata(strata), parse_filter(line))
        return tuple(map(len, own_rows(candidates)))

    def _candidates(
        self, plans: Sequence[StratumPlan], conditions: ConversationFilter
    ) -> Sequence[Sequence[tuple[int, str]]]:
        return [
            [(each.id, each.twin_group) for each in self._inbox.candidates(_both(conditions, plan.filter))]
            for plan in plans
        ]

    def get(self, draw_id: int) -> Draw:
        """A draw with the labels of this person. Raises NotFoundError."""
        return self._store.inbox_draws.get(draw_id, self._person.name())

    def newest(self) -> Draw | None:
        """The newest draw with the labels of this person; None without any."""
        return self._store.inbox_draws.newest(self._person.name())


def share_of(draw: Draw) -> DrawnShare:
    """The share of failures among all conversations of a draw's strata, from the labelled ones."""
    strata, weighted_strata, first_place = [], [], 1
    for each in draw.strata:
        readings = [
            (each.weights[item.place - first_place] if each.weights else 1, item.verdict == "failed")
            for item in draw.items
            if item.stratum == each.name and item.verdict
        ]
        n_failed = sum(is_failed for _, is_failed in readings)
        strata.append(StratumReading(each.name, each.n, each.n_drawn, len(readings), n_failed))
        weighted_strata.append(read_stratum(each.n, readings))
        first_place += each.n_drawn
    return DrawnShare(tuple(strata), weighted_share(weighted_strata))


def _both(one: ConversationFilter, other: ConversationFilter) -> ConversationFilter:
    return ConversationFilter((*one.terms, *other.terms))
