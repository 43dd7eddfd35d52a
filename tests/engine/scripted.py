"""Agents whose reply is written in the test that plays them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Event,
    Session,
)

REF = AgentRef("scripted", "scripted:agent")


class Scripted:
    """An agent whose reply is a function."""

    def __init__(self, reply: Callable[[Session, str], Any]) -> None:
        self._reply = reply

    def describe(self) -> AgentDescription:
        return AgentDescription("scripted", "test")

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        answer: AsyncIterator[Event] = self._reply(session, message)
        return answer


async def echo(session: Session, message: str) -> AsyncIterator[Event]:
    yield Event("agent_message", text=message)


def yielding(*items: object) -> Scripted:
    async def reply(session: Session, message: str) -> AsyncIterator[Any]:
        for item in items:
            yield item

    return Scripted(reply)


def raising(error: BaseException) -> Scripted:
    async def reply(session: Session, message: str) -> AsyncIterator[Event]:
        yield Event("agent_message", text="before")
        raise error

    return Scripted(reply)
