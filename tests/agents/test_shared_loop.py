"""Events of agents on the shared loop: who takes them, in which order, and none after the listener has left."""

from __future__ import annotations

import asyncio
import threading

import pytest

from evaldesk.agents.shared_loop import EventStream, SendEvent, on_shared_loop
from evaldesk.errors import AgentError
from evaldesk.model import Event

pytestmark = pytest.mark.anyio


def _said(text: str) -> Event:
    return Event("agent_message", text=text)


async def test_the_work_continues_only_after_its_event_was_taken() -> None:
    order: list[str] = []

    async def work(send: SendEvent) -> None:
        for name in ("a", "b"):
            await send(_said(name))
            order.append(f"after {name}")

    def take(event: Event) -> bool:
        order.append(event.text)
        return False

    assert await EventStream(work).consume(take) is False
    assert [event.text async for event in EventStream(work)] == ["a", "b"]
    assert order == ["a", "after a", "b", "after b", "after a", "after b"]


async def test_an_error_of_the_listener_is_its_own_and_ends_the_work() -> None:
    seen: list[BaseException] = []
    ended = threading.Event()

    async def work(send: SendEvent) -> None:
        try:
            await send(_said("a"))
        except BaseException as error:
            seen.append(error)
            raise
        finally:
            ended.set()

    def take(_: Event) -> bool:
        raise AgentError("too many events")

    with pytest.raises(AgentError, match="too many"):
        await EventStream(work).consume(take)

    await asyncio.to_thread(ended.wait)
    assert [type(error) for error in seen] == [asyncio.CancelledError]


async def test_a_listener_may_end_the_work() -> None:
    ended = threading.Event()
    taken: list[str] = []

    async def work(send: SendEvent) -> None:
        try:
            for name in "abc":
                await send(_said(name))
        finally:
            ended.set()

    def take(event: Event) -> bool:
        taken.append(event.text)
        return event.text == "b"

    assert await EventStream(work).consume(take) is True
    await asyncio.to_thread(ended.wait)
    assert taken == ["a", "b"]


async def test_no_event_is_taken_after_the_listener_left() -> None:
    taken: list[str] = []
    began, goes_on, tried = threading.Event(), threading.Event(), threading.Event()

    async def work(send: SendEvent) -> None:
        began.set()
        try:
            await asyncio.to_thread(goes_on.wait)
        except asyncio.CancelledError:
            await asyncio.to_thread(goes_on.wait)  # as a framework does that catches everything
        tried.set()
        await send(_said("late"))

    def take(event: Event) -> bool:
        taken.append(event.text)
        return False

    listening = asyncio.ensure_future(EventStream(work).consume(take))
    await asyncio.to_thread(began.wait)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    goes_on.set()
    await asyncio.to_thread(tried.wait)
    assert await EventStream(_nothing).consume(take) is False  # the loop has gone round since then
    assert taken == []


async def test_work_without_a_listener_at_its_start_does_not_run() -> None:
    done: list[str] = []
    holding, goes_on = threading.Event(), threading.Event()

    async def hold() -> None:
        holding.set()
        goes_on.wait()

    async def work(send: SendEvent) -> None:
        done.append("begun")

    held = asyncio.ensure_future(on_shared_loop(hold()))
    await asyncio.to_thread(holding.wait)
    listening = asyncio.ensure_future(EventStream(work).consume(lambda _: False))
    await asyncio.sleep(0)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    goes_on.set()
    await held
    assert await EventStream(_nothing).consume(lambda _: False) is False  # the loop has gone round since then
    assert done == []


async def _nothing(send: SendEvent) -> None:
    """Say nothing."""


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()])
async def test_the_error_of_the_work_is_raised_to_its_listener(error: BaseException) -> None:
    async def work(send: SendEvent) -> None:
        await send(_said("a"))
        raise error

    for listen in (EventStream(work).consume(lambda _: False), _all_of(EventStream(work))):
        with pytest.raises(type(error)):
            await listen


async def _all_of(events: EventStream) -> list[Event]:
    return [event async for event in events]
