"""A chat goes on with a turn that waits for a person, whatever happened in between."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.desk.test_sessions import Player
from tests.postgresql_server import ENGINES, place_of

from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.chat.recording import record_session
from evaldesk.desk.chat.sessions import SessionDesk, asked_of
from evaldesk.desk.process_owner import current_owner
from evaldesk.engine import ChatPlayers
from evaldesk.errors import ConflictError, UsageError
from evaldesk.model import Decision, Event, ToolCall, TurnRecord, TurnSpec, Waiting
from evaldesk.model.decisions import scripted_decisions
from evaldesk.model.stored import OpenTurn
from evaldesk.settings import Settings
from evaldesk.store import Store

pytestmark = pytest.mark.anyio

SHOP = """
def root_agent(message, state, decisions):
    if "refund" not in message:
        return "hello"
    call = {"name": "refund", "args": {"order": 7}, "id": "c1"}
    if not decisions:
        state["asked"] = state.get("asked", 0) + 1
        return told([{"kind": "tool_call", **call}, {"kind": "waiting", **call, "question": "Sure?"}])
    state["refunded"] = decisions[0]["decision"]
    word = decisions[0]["decision"]
    return told([{"kind": "tool_result", **call, "result": word}, "it was " + word])

def told(items):
    yield from items
"""
CALL = ToolCall("refund", {"order": 7}, "c1")
WAITING = Waiting("c1", "refund", {"order": 7})
WAITED = TurnRecord(
    "refund 7",
    (Event("user_message", text="refund 7"), Event("tool_call", call=CALL), Event("waiting", waiting=WAITING)),
    {"n": 1},
    {"n": 2},
    30.0,
    "awaiting_approval",
)
APPROVE = [Decision("approve")]


class Going(Player):
    """Says what it was asked to play and ends the turn with it."""

    def __init__(self) -> None:
        super().__init__()
        self.specs: list[TurnSpec] = []
        self.may_go_on.set()

    async def play_turn(self, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        self.specs.append(spec)
        made = Event("decision", author="user", waiting=WAITING, decision=Decision("approve", "refund"))
        result = Event("tool_result", call=CALL, result="ok")
        yield made
        yield result
        await self.may_go_on.wait()
        waited = spec.resumed.events if spec.resumed else ()
        yield TurnRecord(spec.message, (*waited, made, result), {"n": 1}, {"n": 3}, 50.0)


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = Store.open(place_of(request, tmp_path / "evaldesk.db"))
    yield store
    store.close()


def open_desk(
    folder: Path, store: Store, player: Player | ChatPlayers, source: str = "root_agent = None\n"
) -> SessionDesk:
    (folder / "shop").mkdir(exist_ok=True)
    (folder / "shop" / "agent.py").write_text(source)
    settings = Settings(workspace=folder, roots=(folder,))
    return SessionDesk(store, AgentDesk(settings, player), player)


def waiting_session(store: Store) -> str:
    session = store.sessions.create("shop", initial_state={"n": 1})
    store.sessions.append_turn(session.id, TurnRecord("hi", (), {"n": 1}, {"n": 1}))
    store.sessions.append_turn(session.id, WAITED)
    return session.id


async def said(desk: SessionDesk, session_id: str, message: str) -> TurnRecord:
    turn = await desk.start_turn(session_id, message)
    async for _ in turn.follow():
        pass
    assert turn.record
    return turn.record


async def decided(desk: SessionDesk, session_id: str, *decisions: Decision) -> TurnRecord:
    asked = asked_of(desk.get(session_id).turns[-1])
    turn = await desk.decide(session_id, asked, decisions)
    async for _ in turn.follow():
        pass
    assert turn.record
    return turn.record


@pytest.mark.parametrize(
    "happened", ["nothing", "its process died", "the agent was edited", "the desk was opened anew"]
)
async def test_a_real_agent_goes_on_in_the_same_turn(tmp_path: Path, happened: str) -> None:
    host = ChatPlayers()
    with Store.open(tmp_path / "evaldesk.db") as store:
        desk = open_desk(tmp_path, store, host, SHOP)
        session = desk.create("shop", '{"n": 1}')
        await said(desk, session.id, "hi")
        waited = await said(desk, session.id, "refund 7")
        if happened == "its process died":
            for pid in host.worker_pids:
                os.kill(pid, signal.SIGKILL)
        elif happened == "the agent was edited":
            (tmp_path / "shop" / "agent.py").write_text(SHOP.replace("it was", "now it was"))
        elif happened == "the desk was opened anew":
            await host.close()
            host = ChatPlayers()
            desk = open_desk(tmp_path, store, host, SHOP)

        record = await decided(desk, session.id, Decision("deny", reason="No."))

        found = desk.get(session.id)
    await host.close()
    assert waited.stop_reason == "awaiting_approval"
    assert (record.stop_reason, record.error, record.answer.endswith("it was deny")) == ("answered", None, True)
    assert [turn.query for turn in found.turns] == ["hi", "refund 7"]
    assert [event.kind for event in found.turns[1].events if event.kind not in ("state_delta", "log")] == [
        "user_message",
        "tool_call",
        "waiting",
        "decision",
        "tool_result",
        "agent_message",
    ]
    assert found.turns[1].state_before == {"n": 1}
    assert found.state == {"n": 1, "asked": 1, "refunded": "deny"}
    case = record_session(found, app_name="shop").case
    assert [(each.turn, each.decision) for each in scripted_decisions(case)] == [
        (1, Decision("deny", "refund", reason="No."))
    ]
    assert case.turns[1].expected.tool_calls == (ToolCall("refund", {"order": 7}),)


async def test_the_player_gets_the_turn_that_waits_apart_from_those_before(tmp_path: Path, store: Store) -> None:
    player = Going()
    desk = open_desk(tmp_path, store, player)
    session_id = waiting_session(store)

    await decided(desk, session_id, *APPROVE)

    [spec] = player.specs
    assert (spec.message, len(spec.turns), spec.resumed, spec.decisions) == ("refund 7", 1, WAITED, tuple(APPROVE))
    assert spec.state == {"n": 2}
    [summary] = desk.list()
    assert (summary.n_turns, desk.get(session_id).state) == (2, {"n": 3})


async def test_while_it_goes_on_the_session_has_as_many_turns(tmp_path: Path, store: Store) -> None:
    player = Going()
    player.may_go_on.clear()
    desk = open_desk(tmp_path, store, player)
    session_id = waiting_session(store)
    turn = await desk.decide(session_id, asked_of(WAITED), APPROVE)
    await turn.news(len(WAITED.events))

    [summary] = desk.list()

    assert (summary.n_turns, turn.turn_index) == (2, 1)
    assert turn.events[: len(WAITED.events)] == list(WAITED.events)
    player.may_go_on.set()
    async for _ in turn.follow():
        pass


async def test_a_decision_is_refused_where_something_else_is_asked_by_now(tmp_path: Path, store: Store) -> None:
    player = Going()
    desk = open_desk(tmp_path, store, player)
    session_id = waiting_session(store)

    with pytest.raises(ConflictError, match="does not wait for that decision any more"):
        await desk.decide(session_id, "9-1", APPROVE)
    with pytest.raises(UsageError, match="Decide every waiting call"):
        await desk.decide(session_id, asked_of(WAITED), [])
    await decided(desk, session_id, *APPROVE)
    with pytest.raises(ConflictError, match="does not wait for that decision any more"):
        await desk.decide(session_id, asked_of(WAITED), APPROVE)

    assert len(player.specs) == 1


async def test_of_two_desks_that_decide_at_once_one_is_refused(tmp_path: Path, store: Store) -> None:
    player = Going()
    session_id = waiting_session(store)
    stale = store.sessions.get(session_id)
    desk = open_desk(tmp_path, store, player)
    await decided(desk, session_id, *APPROVE)

    before = replace(stale, turns=stale.turns[:-1])
    with pytest.raises(ConflictError, match="has another turn by now"):
        await desk._start(before, "refund 7", None, "person", (), resumed=(WAITED, APPROVE))

    assert len(player.specs) == 1


async def test_a_decision_that_cannot_be_made_is_refused(tmp_path: Path, store: Store) -> None:
    desk = open_desk(tmp_path, store, Going())
    session = store.sessions.create("shop")
    only = replace(WAITING, choices=("approve", "deny"))
    record = replace(WAITED, events=(Event("waiting", waiting=only),))
    store.sessions.append_turn(session.id, record)

    with pytest.raises(UsageError, match="refund cannot be decided by answer"):
        await desk.decide(session.id, asked_of(record), [Decision("answer", answer=1)])


def leave(store: Store, session_id: str) -> None:
    """Store a turn that goes on as a desk that was killed leaves it."""
    owner = f"mark 999999999 {current_owner().split(' ')[1]} 1"
    row = OpenTurn(1, owner, "refund 7", "", "person", datetime.now(UTC))
    store.sessions.begin_turn(session_id, row, open_record=WAITED)
    store.sessions.append_events(session_id, owner, 0, [Event("tool_result", call=CALL, result="ok")])


async def test_a_turn_whose_desk_was_killed_while_it_went_on_is_interrupted(tmp_path: Path, store: Store) -> None:
    desk = open_desk(tmp_path, store, Going())
    session_id = waiting_session(store)
    leave(store, session_id)

    found = desk.get(session_id)

    assert [turn.stop_reason for turn in found.turns] == ["answered", "interrupted"]
    assert [event.kind for event in found.turns[1].events] == ["user_message", "tool_call", "waiting", "tool_result"]
    assert (found.turns[1].state_before, found.turns[1].open_requests) == ({"n": 1}, ())
    assert desk.list()[0].n_turns == 2


async def test_asking_again_plays_it_from_its_message(tmp_path: Path, store: Store) -> None:
    player = Going()
    desk = open_desk(tmp_path, store, player)
    session_id = waiting_session(store)
    leave(store, session_id)

    turn = await desk.ask_again(session_id)
    async for _ in turn.follow():
        pass

    [spec] = player.specs
    assert (spec.message, spec.resumed, spec.state, len(spec.turns)) == ("refund 7", None, {"n": 1}, 1)
    assert [turn.query for turn in desk.get(session_id).turns] == ["hi", "refund 7"]


async def test_another_message_keeps_what_was_interrupted(tmp_path: Path, store: Store) -> None:
    player = Going()
    desk = open_desk(tmp_path, store, player)
    session_id = waiting_session(store)
    leave(store, session_id)

    await said(desk, session_id, "and now?")

    turns = desk.get(session_id).turns
    assert [turn.query for turn in turns] == ["hi", "refund 7", "and now?"]
    assert [turn.stop_reason for turn in turns] == ["answered", "interrupted", "answered"]


async def test_a_message_in_place_of_a_decision_leaves_the_turn_as_it_is(tmp_path: Path, store: Store) -> None:
    player = Going()
    desk = open_desk(tmp_path, store, player)
    session_id = waiting_session(store)

    await said(desk, session_id, "never mind")

    assert [turn.stop_reason for turn in desk.get(session_id).turns] == ["answered", "awaiting_approval", "answered"]
    assert player.specs[0].resumed is None
