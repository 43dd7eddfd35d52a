"""A turn is stored before it is played and while it is: what a killed desk leaves, and how it goes on."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.bound_processes import bound_python
from tests.desk.test_sessions import Player

from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.chat.recording import record_session
from evaldesk.desk.chat.sessions import SessionDesk
from evaldesk.desk.process_owner import current_owner
from evaldesk.errors import ConflictError, WorkspaceError
from evaldesk.model import Change, Event, TurnRecord, TurnSpec
from evaldesk.model.stored import OpenTurn
from evaldesk.settings import Settings
from evaldesk.store import SessionStore, Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def player() -> Player:
    return Player()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evaldesk.db") as store:
        yield store


@pytest.fixture
def desk(tmp_path: Path, store: Store, player: Player) -> SessionDesk:
    return open_desk(tmp_path, store, player)


def open_desk(folder: Path, store: Store, player: Player) -> SessionDesk:
    (folder / "dice").mkdir(exist_ok=True)
    (folder / "dice" / "agent.py").write_text("root_agent = None\n")
    return SessionDesk(store, AgentDesk(Settings(workspace=folder, roots=(folder,)), player), player)


def leave_turn(store: Store, session_id: str, *events: Event, message: str = "Roll", index: int = 0) -> None:
    """Store a turn as a desk that was killed leaves it."""
    owner = f"mark 999999999 {current_owner().split(' ')[1]} 1"
    store.sessions.begin_turn(session_id, OpenTurn(index, owner, message, "", "person", datetime.now(UTC)))
    if events:
        store.sessions.append_events(session_id, owner, 0, events)


async def test_a_turn_is_a_row_before_the_agent_starts(desk: SessionDesk, store: Store, player: Player) -> None:
    session = desk.create("dice")
    seen = []

    async def look(spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        seen.append(store.sessions.get(session.id).open_turn)
        yield TurnRecord(spec.message)

    player.play_turn = look  # type: ignore[method-assign]
    async for _ in (await desk.start_turn(session.id, "Roll")).follow():
        pass

    assert [(turn.message, turn.turn_index) for turn in seen if turn] == [("Roll", 0)]
    assert store.sessions.get(session.id).open_turn is None


@pytest.mark.parametrize("look", ["get", "recent"])
async def test_a_turn_that_ends_while_its_session_is_read_is_not_interrupted(
    desk: SessionDesk, store: Store, player: Player, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    session = desk.create("dice")
    earlier = []

    async def note(spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        earlier.append(getattr(store.sessions, look)(session.id, *((9, 9) if look == "recent" else ())))
        yield TurnRecord(spec.message, (Event("agent_message", author="dice", text="4"),))

    player.play_turn = note  # type: ignore[method-assign]
    async for _ in (await desk.start_turn(session.id, "Roll")).follow():
        pass
    read = getattr(store.sessions, look)
    monkeypatch.setattr(store.sessions, look, lambda *places: earlier.pop() if earlier else read(*places))

    found = getattr(desk, look)(session.id)

    assert earlier == []
    assert found.open_turn is None
    assert [(turn.stop_reason, turn.events[-1].text) for turn in found.turns] == [("answered", "4")]


async def test_an_event_is_stored_before_it_is_shown(desk: SessionDesk, store: Store, player: Player) -> None:
    session = desk.create("dice")
    turn = await desk.start_turn(session.id, "Roll")

    shown = await anext(turn.follow())

    left = store.sessions.get(session.id).open_turn
    assert left is not None
    assert left.events == (shown,)
    player.may_go_on.set()
    async for _ in turn.follow():
        pass


async def test_events_are_shown_when_they_cannot_be_stored(
    desk: SessionDesk, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise WorkspaceError("the disk is full")

    monkeypatch.setattr(SessionStore, "append_events", refuse)
    session = desk.create("dice")
    turn = await desk.start_turn(session.id, "Roll")

    shown = await anext(turn.follow())

    assert shown.text == "Hello"  # type: ignore[union-attr]
    player.may_go_on.set()
    async for _ in turn.follow():
        pass
    assert len(desk.get(session.id).turns) == 1


async def test_an_agent_that_cannot_be_asked_leaves_no_turn(
    desk: SessionDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise WorkspaceError("the disk is full")

    session = desk.create("dice")
    monkeypatch.setattr(SessionStore, "begin_turn", refuse)

    with pytest.raises(WorkspaceError, match="full"):
        await desk.start_turn(session.id, "Roll")

    assert desk.find_running_turn(session.id) is None
    assert store.sessions.get(session.id).open_turn is None


async def test_a_left_turn_is_shown_as_interrupted_with_the_pieces_of_its_answer(
    desk: SessionDesk, store: Store
) -> None:
    session = desk.create("dice", '{"a": 1}')
    pieces = [Event("agent_message", at, text=text, is_partial=True) for at, text in ((1, "It "), (2, "is"))]
    changed = Event("state_delta", 1, changes=(Change("a", 1, 2),))
    leave_turn(store, session.id, changed, *pieces)

    (turn,) = desk.get(session.id).turns

    assert (turn.query, turn.stop_reason) == ("Roll", "interrupted")
    assert [event.text for event in turn.events if event.kind == "agent_message"] == ["It is"]
    assert turn.state_before == turn.state_after == {"a": 1}


async def test_asking_again_replaces_the_left_turn(desk: SessionDesk, store: Store, player: Player) -> None:
    session = desk.create("dice", '{"a": 1}')
    leave_turn(store, session.id, Event("agent_message", 1, text="It ", is_partial=True))
    player.may_go_on.set()

    async for _ in (await desk.ask_again(session.id)).follow():
        pass

    (turn,) = desk.get(session.id).turns
    assert (turn.query, turn.stop_reason) == ("Roll", "answered")
    assert turn.state_before == {"a": 1}


async def test_another_message_keeps_the_left_turn_before_it(desk: SessionDesk, store: Store, player: Player) -> None:
    session = desk.create("dice")
    leave_turn(store, session.id)
    player.may_go_on.set()

    async for _ in (await desk.start_turn(session.id, "And now?")).follow():
        pass

    turns = desk.get(session.id).turns
    assert [(turn.query, turn.stop_reason) for turn in turns] == [("Roll", "interrupted"), ("And now?", "answered")]
    with pytest.raises(ConflictError, match="not interrupted"):
        await desk.ask_again(session.id)


async def test_a_turn_that_another_living_desk_plays_is_not_interrupted(
    tmp_path: Path, desk: SessionDesk, player: Player
) -> None:
    session = desk.create("dice")
    turn = await desk.start_turn(session.id, "Roll")
    with Store.open(tmp_path / "evaldesk.db") as other_store:
        other = open_desk(tmp_path, other_store, Player())

        found = other.get(session.id)
        with pytest.raises(ConflictError, match="still answering"):
            await other.start_turn(session.id, "Hi")
        with pytest.raises(ConflictError, match="not interrupted"):
            await other.ask_again(session.id)
        with pytest.raises(ConflictError, match="still answering"):
            other.delete(session.id)

    assert found.turns == ()
    assert found.open_turn is not None
    player.may_go_on.set()
    async for _ in turn.follow():
        pass


async def test_two_that_ask_again_at_once_play_one_turn(tmp_path: Path, desk: SessionDesk, store: Store) -> None:
    session = desk.create("dice")
    leave_turn(store, session.id)
    left = store.sessions.get(session.id).open_turn
    assert left is not None

    store.sessions.begin_turn(session.id, OpenTurn(0, "first", "Roll", "", "person", NOW), orphan_owner=left.owner)
    with pytest.raises(ConflictError, match="still answering"):
        store.sessions.begin_turn(session.id, OpenTurn(0, "second", "Roll", "", "person", NOW), orphan_owner=left.owner)


async def test_a_turn_that_was_taken_over_cannot_be_written_any_more(desk: SessionDesk, store: Store) -> None:
    session = desk.create("dice")
    store.sessions.begin_turn(session.id, OpenTurn(0, "first", "Roll", "", "person", NOW))
    store.sessions.begin_turn(session.id, OpenTurn(0, "second", "Roll", "", "person", NOW), orphan_owner="first")

    with pytest.raises(ConflictError, match="took this turn over"):
        store.sessions.append_events(session.id, "first", 0, [Event("agent_message", text="late")])
    with pytest.raises(ConflictError, match="took this turn over"):
        store.sessions.append_turn(session.id, TurnRecord("Roll"), owner="first")


async def test_an_interrupted_turn_is_left_out_of_a_case(desk: SessionDesk, store: Store) -> None:
    session = desk.create("dice")
    store.sessions.append_turn(session.id, TurnRecord("Hi", (Event("agent_message", text="Hello"),)))
    leave_turn(store, session.id, Event("agent_message", 1, text="It is", is_partial=True), index=1)

    recording = record_session(desk.get(session.id), app_name="dice")

    assert [turn.why_left_out for turn in recording.turns] == ["", "Evaldesk ended before the agent had answered"]


NOW = datetime(2026, 11, 23, tzinfo=UTC)
DESK = """
import asyncio, itertools, sys
from pathlib import Path
from tests.desk.test_open_turns import open_desk
from tests.desk.test_sessions import Player
from evaldesk.model import Event
from evaldesk.store import Store

class Talker(Player):
    async def play_turn(self, spec):
        for number in range(100_000):
            yield Event("agent_message", number, text=f"{number} ", is_partial=True)
            await asyncio.sleep(0.001)

async def chat():
    folder = Path(sys.argv[1])
    desk = open_desk(folder, Store.open(folder / "evaldesk.db"), Talker())
    turn = await desk.start_turn(sys.argv[2], "Count")
    print("begun", flush=True)
    async for event in turn.follow():
        print(event.text, flush=True)

asyncio.run(chat())
"""


@pytest.mark.server
@pytest.mark.parametrize("n_shown", [0, 40])
async def test_a_killed_desk_loses_neither_the_message_nor_what_was_shown(
    n_shown: int, tmp_path: Path, desk: SessionDesk
) -> None:
    session = desk.create("dice")
    command = [*bound_python("-c", DESK), str(tmp_path), session.id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout
        lines = [process.stdout.readline().strip() for _ in range(n_shown + 1)]
        process.kill()
        lines += [line.strip() for line in process.stdout]

    (turn,) = desk.get(session.id).turns

    said = "".join(event.text for event in turn.events if event.kind == "agent_message").split()
    assert lines[0] == "begun"
    assert (turn.query, turn.stop_reason) == ("Count", "interrupted")
    assert said[: len(lines) - 1] == lines[1:]
