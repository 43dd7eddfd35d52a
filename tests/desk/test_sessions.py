"""Chat sessions on the desk: a turn is played to its end and stored, whoever watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.postgresql_server import ENGINES, place_of

from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.chat.sessions import SessionDesk, parse_state, propose_title
from evaldesk.errors import ConflictError, FormatError, NotFoundError, WorkspaceError
from evaldesk.model import AgentDescription, AgentRef, Event, JsonValue, Prompt, Prompts, TurnRecord, TurnSpec
from evaldesk.model.stored import OpenTurn
from evaldesk.settings import Settings
from evaldesk.store import Store

pytestmark = pytest.mark.anyio

HELLO = Event("agent_message", 5, text="Hello")


class Player:
    """Says hello, waits until it may go on, and ends the turn."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.raises: Exception | None = None
        self.gives_record = True
        self.prompts: Prompts | None = None
        self.specs: list[TurnSpec] = []

    async def describe(self, ref: AgentRef) -> AgentDescription:
        return AgentDescription(name=ref.id, kind="llm")

    async def warm(self, ref: AgentRef) -> None:
        return None

    async def stop_turn(self, session_id: str) -> None:
        self.may_go_on.set()

    async def play_turn(self, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord | Prompts]:
        self.specs.append(spec)
        yield HELLO
        await self.may_go_on.wait()
        if self.raises:
            raise self.raises
        if self.prompts:
            yield self.prompts
        if self.gives_record:
            yield TurnRecord(spec.message, (HELLO,), spec.state, {**spec.state, "n": len(spec.turns)}, 10.0)


@pytest.fixture
def player() -> Player:
    return Player()


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = Store.open(place_of(request, tmp_path / "evaldesk.db"))
    yield store
    store.close()


@pytest.fixture
def desk(tmp_path: Path, store: Store, player: Player) -> SessionDesk:
    (tmp_path / "dice").mkdir()
    (tmp_path / "dice" / "agent.py").write_text("root_agent = None\n")
    return SessionDesk(store, AgentDesk(Settings(workspace=tmp_path, roots=(tmp_path,)), player), player)


async def test_a_turn_is_stored_before_whoever_follows_it_sees_its_end(desk: SessionDesk, player: Player) -> None:
    session = desk.create("dice", '{"a": 1}')

    items = []
    async for item in (await desk.start_turn(session.id, "Hi")).follow():
        items.append((item, len(desk.get(session.id).turns)))
        player.may_go_on.set()

    assert [kind for kind, _ in items] == [HELLO, desk.get(session.id).turns[0]]
    assert [n_stored for _, n_stored in items] == [0, 1]
    assert desk.get(session.id).state == {"a": 1, "n": 0}


async def test_a_turn_that_nobody_follows_any_more_is_played_to_its_end(desk: SessionDesk, player: Player) -> None:
    session = desk.create("dice")
    turn = await desk.start_turn(session.id, "Hi")
    follower = turn.follow()
    await anext(follower)
    await follower.aclose()  # type: ignore[attr-defined]

    player.may_go_on.set()
    late = [item async for item in turn.follow()]

    assert late == [HELLO, desk.get(session.id).turns[0]]
    assert desk.find_running_turn(session.id) is None


async def test_a_title_that_is_given_while_the_first_turn_runs_stays(desk: SessionDesk, player: Player) -> None:
    session = desk.create("dice")
    turn = await desk.start_turn(session.id, "Hi")

    desk.rename(session.id, "My dice")
    player.may_go_on.set()
    async for _ in turn.follow():
        pass

    assert desk.get(session.id).title == "My dice"


async def test_a_second_turn_is_refused_while_one_runs(desk: SessionDesk, player: Player) -> None:
    session = desk.create("dice")
    turn = await desk.start_turn(session.id, "Hi")

    with pytest.raises(ConflictError, match="still answering"):
        await desk.start_turn(session.id, "Hi again")

    player.may_go_on.set()
    assert [item async for item in turn.follow()][-1] == desk.get(session.id).turns[0]


async def test_a_player_that_fails_leaves_a_turn_that_says_so(desk: SessionDesk, player: Player) -> None:
    session = desk.create("dice", '{"a": 1}')
    player.raises = RuntimeError("gone")
    player.may_go_on.set()

    async for _ in (await desk.start_turn(session.id, "Hi")).follow():
        pass

    record = desk.get(session.id).turns[0]
    assert record.error is not None
    assert (record.error.kind, record.error.message, record.stop_reason) == ("RuntimeError", "gone", "error")
    assert record.state_after == {"a": 1}


async def test_a_player_that_ends_without_a_record_is_an_error(desk: SessionDesk, player: Player) -> None:
    session = desk.create("dice")
    player.gives_record = False
    player.may_go_on.set()

    async for _ in (await desk.start_turn(session.id, "Hi")).follow():
        pass

    assert desk.get(session.id).turns[0].stop_reason == "error"


async def test_a_turn_that_cannot_be_stored_tells_its_followers(
    desk: SessionDesk, player: Player, store: Store
) -> None:
    session = desk.create("dice")
    turn = await desk.start_turn(session.id, "Hi")
    store.sessions.delete(session.id)
    player.may_go_on.set()

    with pytest.raises(NotFoundError):
        async for _ in turn.follow():
            pass


async def test_the_turn_of_one_desk_is_stopped_from_another(
    desk: SessionDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.desk.chat.sessions.RENEW_S", 0.01)
    other = SessionDesk(store, desk._agents, Player())
    session = desk.create("dice")
    turn = await desk.start_turn(session.id, "Hi")

    await other.stop(session.id)
    items = [item async for item in turn.follow()]

    assert items[-1] == desk.get(session.id).turns[0]


async def test_a_full_disk_is_said_once_until_the_turn_is_renewed_again(
    desk: SessionDesk, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("evaldesk.desk.chat.sessions.RENEW_S", 0)
    answers: Iterator[bool | Exception] = iter(
        [*[WorkspaceError("full")] * 3, False, *[WorkspaceError("full again")] * 2]
    )

    def renew(*_: str) -> bool:
        answer = next(answers, NotFoundError("over"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(store.sessions, "renew_turn", renew)

    with pytest.raises(NotFoundError):
        await desk._keep("session", "owner")

    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["full", "full again"]


async def test_closing_the_desk_stops_and_stores_the_running_turn(desk: SessionDesk) -> None:
    session = desk.create("dice")
    await desk.start_turn(session.id, "Hi")

    await desk.close()

    assert len(desk.get(session.id).turns) == 1


async def test_a_session_whose_agent_is_gone_takes_no_message(desk: SessionDesk, store: Store) -> None:
    session = store.sessions.create("gone", "", {})

    with pytest.raises(NotFoundError, match="no agent named 'gone'"):
        await desk.start_turn(session.id, "Hi")


async def test_a_title_given_by_hand_is_kept(desk: SessionDesk, player: Player) -> None:
    session = desk.create("dice", title="Mine")
    player.may_go_on.set()

    async for _ in (await desk.start_turn(session.id, "Hi")).follow():
        pass

    assert desk.get(session.id).title == "Mine"


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Hi", "Hi"),
        ("  two\n words ", "two words"),
        ("word " * 20, "word word word word word word word word word word word…"),
        ("x" * 80, "x" * 55 + "…"),
    ],
    ids=["short", "lines", "words", "one long word"],
)
async def test_a_title_is_proposed_from_the_first_message(message: str, title: str) -> None:
    assert propose_title(message) == title


@pytest.mark.parametrize(
    ("text", "line", "column"), [('{"a": }', 1, 7), ('{\n"a" 1}', 2, 5), ("nothing", 1, 1)], ids=["1", "2", "3"]
)
async def test_a_state_that_is_not_json_is_refused_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse_state(text)

    assert (caught.value.line, caught.value.column) == (line, column)


def asked(text: str, turn: int = 0) -> Prompts:
    parts: tuple[JsonValue, ...] = ({"role": "user", "content": text}, {"role": "assistant", "content": "yes"})
    return Prompts(parts, (Prompt(turn, 5.0, 5.0, "small", 11, 5, messages=(0,), answer=1),))


async def test_how_the_models_of_a_chat_were_asked_is_kept_turn_by_turn(
    desk: SessionDesk, player: Player, store: Store
) -> None:
    session = desk.create("dice")
    player.may_go_on.set()
    for at, text in enumerate(("first", "second")):
        player.prompts = asked(text, at)
        async for _ in (await desk.start_turn(session.id, text)).follow():
            pass

    kept = store.sessions.prompts(session.id)

    assert kept
    assert [(call.turn, kept.messages(at)) for at, call in enumerate(kept.calls)] == [
        (0, ({"role": "user", "content": "first"},)),
        (1, ({"role": "user", "content": "second"},)),
    ]
    assert [spec.keeps_prompts for spec in player.specs] == [True, True]
    assert not hasattr(store.sessions.get(session.id).turns[0], "prompts")
    store.sessions.delete(session.id)
    store.sessions.remove_deleted(datetime.now(UTC) + timedelta(days=1))
    assert store.sessions.prompts(session.id) is None


async def test_prompts_of_a_chat_are_without_secrets_and_kept_only_where_the_workspace_keeps_any(
    tmp_path: Path, store: Store, player: Player
) -> None:
    (tmp_path / "dice").mkdir()
    (tmp_path / "dice" / "agent.py").write_text("root_agent = None\n")
    secret = "sk-very-secret-value-123"
    settings = Settings(tmp_path, (tmp_path,), environment={"OPENAI_API_KEY": secret}, prompts="off")
    desk = SessionDesk(store, AgentDesk(settings, player), player)
    session = desk.create("dice")
    player.prompts = asked(f"the key is {secret}")
    player.may_go_on.set()

    async for _ in (await desk.start_turn(session.id, "Hi")).follow():
        pass

    assert player.specs[0].keeps_prompts is False
    assert "the key is" in str(store.sessions.prompts(session.id))
    assert secret not in str(store.sessions.prompts(session.id))


def test_prompts_of_a_turn_that_goes_on_follow_those_before(store: Store) -> None:
    session = store.sessions.create("dice")
    waited = TurnRecord("Hi", stop_reason="awaiting_approval")
    store.sessions.append_turn(session.id, waited, prompts=asked("before"))
    goes_on = OpenTurn(0, "me", "Hi", "", "person", datetime.now(UTC))
    store.sessions.begin_turn(session.id, goes_on, open_record=waited)

    store.sessions.append_turn(session.id, TurnRecord("Hi"), owner="me", prompts=asked("after"))

    kept = store.sessions.prompts(session.id)
    assert kept
    assert [message["content"] for at in range(2) for message in kept.messages(at) if isinstance(message, dict)] == [
        "before",
        "after",
    ]
