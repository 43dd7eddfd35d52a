"""The next message of a user, scripted or simulated, with what a person decides in its turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evaldesk.model.decisions import ScriptedDecision
from evaldesk.model.evalset import Turn
from evaldesk.model.media import Media
from evaldesk.model.options import UserStop
from evaldesk.model.transcript import ErrorRecord, Event, TurnRecord

MODULE_USER = "module"
"""The name of the functions of the agent's module as the user of a scenario."""


@dataclass(frozen=True, slots=True)
class UserReply:
    """The next message of a user; without a text the conversation ends, with `stop` as the reason.

    `events` are the usage and log of the user's own model. `media` belong to the text. `decisions` are the scripted
    ones that may be made in this turn. After a message that `is_last` the user of a script is not asked again.
    """

    text: str | None = None
    stop: UserStop | None = None
    events: tuple[Event, ...] = ()
    error: ErrorRecord | None = None
    media: tuple[Media, ...] = ()
    decisions: tuple[ScriptedDecision, ...] = ()
    is_last: bool = False


def scripted_reply(turns: Sequence[Turn], index: int) -> UserReply:
    """The message at that place of a script; the end after its last."""
    if index >= len(turns):
        return UserReply()
    return UserReply(turns[index].query, media=turns[index].media, is_last=index == len(turns) - 1)


def with_decisions_of(reply: UserReply, scripted: Sequence[ScriptedDecision], index: int) -> UserReply:
    """The message with the scripted decisions of its turn, and those of every turn."""
    decisions = tuple(each for each in scripted if each.turn in (None, index))
    return replace(reply, decisions=decisions) if decisions and reply.text is not None else reply


def with_last_cost(turns: Sequence[TurnRecord], events: Sequence[Event]) -> list[TurnRecord]:
    """The turns with the cost of the user's last decision in the last one; before the first message there is none."""
    if not (events and turns):
        return list(turns)
    last = turns[-1]
    stamped = tuple(replace(event, at_ms=last.duration_ms) for event in events)
    return [*turns[:-1], replace(last, events=(*last.events, *stamped))]
