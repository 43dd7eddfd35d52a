"""Chat turns in a warm worker: streamed, stopped, broken, and played by the code as it is on disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evaldesk.engine import ChatPlayers
from evaldesk.errors import ConflictError
from evaldesk.model import AgentRef, Event, TurnRecord, TurnSpec

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]

CHATTY = '''
    import asyncio, os, time
    from evaldesk.model import Event

    class agent:
        """Talks."""

        def __init__(self):
            self.heard = []

        async def reply(self, session, message):
            self.heard.append(message)
            if message == "raise":
                raise ValueError("no dice")
            if message == "exit":
                yield Event("agent_message", text="going")
                session.state["left"] = True
                yield Event("log", text="left")
                await asyncio.sleep(0.05)
                os._exit(9)
            if message == "print":
                print("a print")
            if message == "wait":
                yield Event("agent_message", text="let me think")
                await asyncio.Event().wait()
            if message == "block":
                yield Event("agent_message", text="let me block")
                time.sleep(60)
            for piece in ("He", "llo"):
                yield Event("agent_message", text=piece, is_partial=session.is_streaming)
            session.state["n"] = session.state.get("n", 0) + 1
            yield Event("agent_message", text=f"{len(session.turns)} {' '.join(self.heard)}")
'''


def turn(agent: AgentRef, message: str, session_id: str = "s1", *, timeout_s: float = 30.0) -> TurnSpec:
    return TurnSpec(session_id, agent, message, timeout_s=timeout_s)


async def played(host: ChatPlayers, spec: TurnSpec) -> tuple[list[Event], TurnRecord]:
    """The events of a turn and its record, within a minute."""
    async with asyncio.timeout(300):
        items = [item async for item in host.play_turn(spec)]
    *events, record = items
    assert isinstance(record, TurnRecord)
    return [event for event in events if isinstance(event, Event)], record


async def test_a_turn_streams_its_events_and_ends_with_its_record(host: ChatPlayers, write_agent: Write) -> None:
    events, record = await played(host, replace(turn(write_agent(CHATTY), "hi"), state={"n": 4}))

    assert "".join(event.text for event in events if event.is_partial) == "Hello"
    assert tuple(event for event in events if not event.is_partial) == record.events
    assert (record.answer, record.stop_reason) == ("0 hi", "answered")
    assert (record.state_before, record.state_after) == ({"n": 4}, {"n": 5})


async def test_the_agent_remembers_the_session_while_its_worker_lives(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent(CHATTY)
    _, first = await played(host, turn(agent, "one"))

    _, second = await played(host, replace(turn(agent, "two"), turns=(first,), state={"n": 10}))
    _, other = await played(host, turn(agent, "three", "s2"))

    assert second.answer == "1 one two"
    assert second.state_after == {"n": 11}
    assert other.answer == "0 three"


async def test_an_edit_of_the_agent_is_in_the_next_turn(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent("def agent(message):\n    return 'old'\n")
    _, old = await played(host, turn(agent, "hi"))

    write_agent("def agent(message):\n    return 'brand new'\n")
    _, new = await played(host, turn(agent, "hi"))

    assert (old.answer, new.answer) == ("old", "brand new")


async def test_a_broken_import_is_an_error_and_the_session_goes_on(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent("import no_such_module_at_all\n")
    events, broken = await played(host, turn(agent, "hi"))

    write_agent("def agent(message):\n    return 'mended'\n")
    _, mended = await played(host, turn(agent, "hi"))

    assert broken.error is not None
    assert broken.error == events[-1].error
    assert (broken.error.kind, broken.stop_reason) == ("agent_import", "error")
    assert "scripted_agent.py" in broken.error.trace
    assert mended.answer == "mended"


async def test_an_agent_that_raises_keeps_its_worker(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent(CHATTY)

    _, raised = await played(host, turn(agent, "raise"))
    _, after = await played(host, turn(agent, "hi"))

    assert raised.error is not None
    assert (raised.error.kind, raised.error.message) == ("agent_raised", "ValueError: no dice")
    assert after.answer == "0 raise hi"


async def test_an_agent_that_exits_keeps_what_it_did(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent(CHATTY)

    events, died = await played(host, turn(agent, "exit"))
    _, after = await played(host, turn(agent, "hi"))

    assert died.error is not None
    assert (died.error.kind, died.error.message) == ("worker_died", "the worker process ended with exit code 9")
    assert tuple(events) == died.events
    assert (died.answer, died.state_after) == ("going", {"left": True})
    assert after.answer == "0 hi"


@pytest.mark.parametrize("message", ["wait", "block"])
async def test_a_turn_can_be_stopped_and_the_session_goes_on(
    host: ChatPlayers, write_agent: Write, message: str
) -> None:
    agent = write_agent(CHATTY)
    record: TurnRecord | None = None

    async with asyncio.timeout(300):
        async for item in host.play_turn(turn(agent, message)):
            if isinstance(item, TurnRecord):
                record = item
            elif isinstance(item, Event) and item.kind == "agent_message":
                await host.stop_turn("s1")
    _, after = await played(host, turn(agent, "hi"))

    assert record is not None
    assert (record.stop_reason, record.error) == ("cancelled", None)
    assert record.answer.startswith("let me")
    assert after.stop_reason == "answered"


async def test_a_turn_can_be_stopped_while_the_agent_is_imported(
    host: ChatPlayers, write_agent: Write, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agent = write_agent(f"open({str(gate)!r}, 'w').write('importing'); open({str(gate)!r}).read()")
    playing = asyncio.create_task(played(host, turn(agent, "hi")))
    await asyncio.to_thread(gate.read_text)

    await host.stop_turn("s1")
    _, record = await playing

    assert (record.stop_reason, record.error, record.query) == ("cancelled", None, "hi")


@pytest.mark.parametrize("message", ["wait", "block"])
async def test_a_turn_that_hangs_times_out_with_the_place(host: ChatPlayers, write_agent: Write, message: str) -> None:
    events, record = await played(host, turn(write_agent(CHATTY), message, timeout_s=0.5))

    assert record.error is not None
    assert (record.stop_reason, record.error.kind) == ("timed_out", "timed_out")
    assert "scripted_agent.py" in record.error.trace
    assert events[-1].error == record.error
    assert record.answer.startswith("let me")


async def test_prints_are_a_log_event_of_the_turn(host: ChatPlayers, write_agent: Write) -> None:
    _, record = await played(host, turn(write_agent(CHATTY), "print"))

    assert [event.text for event in record.events if event.kind == "log"] == ["a print\n"]


async def test_a_second_turn_of_a_session_waits_for_the_first(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent(CHATTY)
    first = host.play_turn(turn(agent, "wait"))
    await anext(first)

    with pytest.raises(ConflictError, match="under way"):
        await anext(host.play_turn(turn(agent, "hi")))

    await first.aclose()


async def test_leaving_a_turn_stops_it(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent(CHATTY)
    left = host.play_turn(turn(agent, "wait"))
    for _ in ("user_message", "agent_message"):
        await anext(left)

    await left.aclose()
    _, after = await played(host, turn(agent, "hi"))

    assert after.answer == "0 wait hi"


async def test_sessions_of_one_agent_are_played_at_once(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent(CHATTY)
    waiting = host.play_turn(turn(agent, "block", "s1"))
    await anext(waiting)

    _, record = await played(host, turn(agent, "hi", "s2"))

    assert record.answer == "0 hi"
    await waiting.aclose()
