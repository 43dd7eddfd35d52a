"""Sentences about the places where the trials of a run are played, and about trials that were lost with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaldesk.model import TrialResult
from evaldesk.model.conclusion import counted
from evaldesk.model.run import Place, PlaceKind

NOUNS: Mapping[PlaceKind, str] = {"process": "worker", "container": "container", "host": "worker"}
PAID = "may have been paid for, too"


def place_words(place: Place) -> str:
    """`4 workers, 8 trials under way`, or `lost: its node is gone`."""
    if place.state == "up":
        return work_words(place)
    return f"{place.state}: {place.note}" if place.note else place.state


def work_words(place: Place) -> str:
    """As `place_words`, beside the state."""
    if place.state != "up":
        return place.note or "–"
    words = f"{counted(place.n_workers, NOUNS[place.kind])}, {counted(place.n_under_way, 'trial')} under way"
    return f"{words}; {place.note}" if place.note else words


def places_words(places: Sequence[Place]) -> str:
    """`3 hosts, 12 workers`; empty without places."""
    if not places:
        return ""
    up = [place for place in places if place.state == "up"]
    hosts = f"{counted(len(up), 'host')}, " if any(place.kind == "host" for place in places) else ""
    return f"{hosts}{counted(sum(place.n_workers for place in up), NOUNS[places[0].kind])}"


def is_telling(places: Sequence[Place]) -> bool:
    """Whether the places say more than that the trials are played on one machine."""
    return len(places) > 1 or any(place.note or place.kind == "host" for place in places)


def again_sentence(n: int) -> str:
    """How many trials of a run were played again because they were lost; empty for none."""
    if n == 1:
        return f"1 trial was played again, because its worker or host was lost; model calls of the lost attempt {PAID}."
    many = f"{n:,} trials were played again, because their workers or hosts were lost"
    return f"{many}; model calls of the lost attempts {PAID}." if n else ""


def losses_sentence(result: TrialResult) -> str:
    """Why earlier attempts at a trial gave no result; empty where none was lost."""
    if not result.losses:
        return ""
    first = result.attempt - len(result.losses)
    lost = (f"Attempt {number} was lost: {why}" for number, why in enumerate(result.losses, first))
    return f"{'. '.join(lost)}. Its model calls {PAID}."
