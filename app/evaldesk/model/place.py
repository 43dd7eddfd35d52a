"""The places where the trials of a run are played at this moment: a value that pages show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

PlaceKind: TypeAlias = Literal["process", "container", "host"]
PlaceState: TypeAlias = Literal["starting", "up", "lost"]


@dataclass(frozen=True, slots=True)
class Place:
    """A machine, or containers on it, with `n_workers` players that are up and `n_under_way` trials.

    `note` says why it, or a worker of it, was lost, and what differs there from here.
    """

    name: str
    kind: PlaceKind
    n_workers: int = 0
    n_under_way: int = 0
    state: PlaceState = "up"
    note: str = ""


def is_news(told: Sequence[Place], places: Sequence[Place]) -> bool:
    """Whether a place came, changed its state, or says something else; how much it has to do is no news."""
    return [(each.name, each.state, each.note) for each in told] != [
        (each.name, each.state, each.note) for each in places
    ]
