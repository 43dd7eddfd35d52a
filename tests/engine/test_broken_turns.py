"""A turn that dies leaves the same record, whoever played it and whatever of it died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.test_host import played

from evaldesk.desk.chat.running_turn import RunningTurn
from evaldesk.engine import ChatPlayers, LocalExecutor
from evaldesk.engine.driver.chat_players import _broken_off, _Turn
from evaldesk.model import AgentRef, Change, ErrorRecord, Event, TrialSpec, TurnRecord, TurnSpec
from evaldesk.model.transcript import broken_turn

pytestmark = pytest.mark.anyio

DYING = """
import asyncio, time
from evaldesk.model import ErrorRecord, Event

async def agent(message, state):
    state["seen"] = 1
    yield Event("log", text="began")
    yield Event("agent_message", text="on the way")
    state["late"] = 2
    if message == "raise":
        raise ValueError("broken")
    if message == "exit":
        raise SystemExit(3)
    if message == "tell":
        yield Event("error", error=ErrorRecord("refused", "no"))
    if message == "wait":
        await asyncio.sleep(3600)
    if message == "block":
        state.pop("late")
        time.sleep(3600)
"""


def shape(record: TurnRecord) -> tuple[Any, ...]:
    """What must be the same of two records of one death."""
    kinds = [event.kind for event in record.events]
    error = record.error and record.error.kind
    return record.query, kinds, record.state_before, record.state_after, record.stop_reason, error


@pytest.mark.parametrize(
    ("message", "reason", "error"),
    [
        ("raise", "error", "agent_raised"),
        ("exit", "error", "agent_raised"),
        ("tell", "error", "refused"),
        ("wait", "timed_out", "timed_out"),
        ("block", "timed_out", "timed_out"),
    ],
)
async def test_a_chat_and_a_trial_keep_the_same_record(
    message: str,
    reason: str,
    error: str,
    write_agent: Callable[..., AgentRef],
    trial: Any,
    play: Any,
    host: ChatPlayers,
    local: LocalExecutor,
) -> None:
    agent = write_agent(DYING)
    timeout_s = 0.6 if reason == "timed_out" else 30.0
    spec: TrialSpec = trial(agent, queries=(message,), timeout_s=timeout_s, state={"start": 0})

    asked = TurnSpec("s", agent, message, {"start": 0}, timeout_s=timeout_s)
    (told, chatted), results = await asyncio.gather(played(host, asked), play(local, [spec]))

    [tried] = results[0].transcript.turns
    late = {} if message == "block" else {"late": 2}
    assert shape(tried) == shape(chatted)
    assert chatted.state_after == {"start": 0, "seen": 1, **late}
    assert (chatted.stop_reason, chatted.error and chatted.error.kind) == (reason, error)
    assert tuple(event for event in told if not event.is_partial) == chatted.events


EVENTS = (
    Event("user_message", author="user", text="hi"),
    Event("state_delta", at_ms=2, changes=(Change("a", None, 1, was_present=False), Change("b", 2, is_present=False))),
    Event("agent_message", at_ms=3, text="pie", is_partial=True),
)


@pytest.mark.parametrize("error", [None, ErrorRecord("worker_died", "gone")], ids=["stopped", "died"])
async def test_a_worker_that_is_gone_and_a_desk_that_closes_keep_the_same_record(error: ErrorRecord | None) -> None:
    state, agent = {"b": 2, "c": 3}, AgentRef("a", "a:b")
    running = RunningTurn("s", 0, "hi", state, clock=lambda: 0.0)
    for event in EVENTS:
        running.add(event)

    hosted = _broken_off(
        TurnSpec("s", agent, "hi", state),
        list(EVENTS),
        _Turn(1, is_stopped=error is None),
        error or ErrorRecord("x", ""),
    )[-1]
    desk = running.broken_off(error)

    assert isinstance(hosted, TurnRecord)
    assert shape(hosted) == shape(desk)
    assert desk.state_after == {"a": 1, "c": 3}
    assert desk.stop_reason == ("error" if error else "cancelled")


def test_an_error_that_the_agent_named_last_is_the_only_one() -> None:
    named = Event("error", at_ms=5, error=ErrorRecord("refused", "no"))

    record = broken_turn("hi", (*EVENTS, named), {}, "error", ErrorRecord("agent_raised", "later"))

    assert [event.error for event in record.events if event.error] == [named.error]


def test_a_turn_of_which_nothing_was_seen_has_its_question() -> None:
    record = broken_turn("hi", (), {"a": 1}, "cancelled")

    assert [event.text for event in record.events] == ["hi"]
    assert (record.state_after, record.duration_ms) == ({"a": 1}, 0.0)
