"""Sentences about the places where the trials of a run are played, and about trials that were lost with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaldesk.model import RunConfig, TrialResult
from evaldesk.model.conclusion import counted
from evaldesk.model.run import Place, PlaceKind, SharedState
from evaldesk.run_options import AUTO

NOUNS: Mapping[PlaceKind, str] = {"process": "worker", "container": "container", "host": "worker"}
MOST_NAMES = 5
MAY_COST = "may have been paid for, too"


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


def again_sentence(n: int, places: Sequence[Place] = ()) -> str:
    """The number of lost trials of a run that were played again, and the lost places; empty for none."""
    if not n:
        return ""
    whose = "its worker or host was" if n == 1 else "their workers or hosts were"
    names = ", ".join(
        f"{place.name} ({place.note})" if place.note else place.name for place in places if is_lost(place)
    )
    reason = f"{whose} lost: {names}" if names else f"{whose} lost, or changed by another trial"
    attempts = "the lost attempt" if n == 1 else "the lost attempts"
    was = "trial was" if n == 1 else "trials were"
    return f"{n:,} {was} played again, because {reason}; model calls of {attempts} {MAY_COST}."


def is_lost(place: Place) -> bool:
    """Whether nothing is played there any more."""
    return place.state == "lost"


def loop_bound_words(state: SharedState, config: RunConfig) -> str:
    """How trials are played whose agent holds an object of one event loop, and which; empty for none."""
    if not state.loop_bound:
        return ""
    if config.isolation == AUTO:
        return f"one for each trial, because {state.loop_bound}"
    return f"shared although {state.loop_bound}; isolation = 'auto' plays one trial a process"


def shared_globals_sentence(state: SharedState) -> str:
    """The module globals that trials changed for each other, and what that means; empty without any."""
    names = state.changed_globals
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    what = "a module global" if len(names) == 1 else "module globals"
    return (
        f"Trials of one process share {what} that they change ({', '.join(names[:MOST_NAMES])}{more}), so they may "
        "depend on each other; with isolation = 'process' each begins anew."
    )


def changes_sentence(result: TrialResult) -> str:
    """The changes of the trial to the process that played or scored it; empty without any."""
    return f"This trial changed {result.changes}. Its process was ended after it." if result.changes else ""


def losses_sentence(result: TrialResult) -> str:
    """Why earlier attempts at a trial gave no result; empty where none was lost."""
    if not result.losses:
        return ""
    first = result.attempt - len(result.losses)
    sentences = (f"Attempt {number} was lost: {why}" for number, why in enumerate(result.losses, first))
    return f"{'. '.join(sentences)}. Its model calls {MAY_COST}."
