"""The database in which `adk web` keeps its sessions."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.adk import session_database
from evaldesk.formats.files import read_file

SAMPLE = Path(__file__).parent / "exchange_samples" / "adk-session-db.db"


def test_each_session_is_a_case_with_calls_answers_and_state() -> None:
    evalset = read_file(SAMPLE.read_bytes(), "session.db").evalset
    assert evalset is not None

    first, second, other = evalset.cases
    (turn,) = first.turns

    assert (first.id, second.id, other.id) == ("first", "second", "second (2)")
    assert (turn.query, turn.expected.reference) == ("Roll.", "You rolled 4.")
    (call,) = turn.expected.tool_calls or ()
    assert (call.name, call.args) == ("roll_die", {"sides": 6})
    assert first.initial_session is not None
    assert (first.initial_session.app_name, first.initial_session.user_id) == ("dice", "user")
    assert first.initial_state == {"app:theme": "dark", "user:name": "Ada", "sides": 6}
    assert first.final_state == {"rolls": [4]}


def test_sessions_without_turns_and_sessions_of_evaluations_are_named() -> None:
    imported = read_file(SAMPLE.read_bytes(), "session.db")

    assert imported.refused == (
        "Left out: a session without a turn, at session empty.",
        "Left out: a session of an evaluation, at session ___eval___session___1.",
    )


def changed(folder: Path, *statements: str) -> bytes:
    path = folder / "session.db"
    path.write_bytes(SAMPLE.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["DROP TABLE events"], "the table events has no app_name, event_data"),
        (["ALTER TABLE events RENAME event_data TO actions"], "pickled actions; `adk migrate session`"),
        (["DELETE FROM events"], "no session with a turn"),
        (["UPDATE sessions SET state = '[1]'"], "session.db!session first, state:1:1: expected an object, got a list"),
        (["UPDATE events SET event_data = '{'"], "session.db!session first, event 1:1:2: this is not JSON"),
    ],
    ids=["no events", "pickled", "no turns", "a list as state", "broken JSON"],
)
def test_a_database_that_cannot_be_read_says_why(tmp_path: Path, statements: list[str], words: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_file(changed(tmp_path, *statements), "session.db")

    assert words in str(caught.value)


def test_no_bytes_by_chance_break_the_reading(tmp_path: Path) -> None:
    sample, chance, path = SAMPLE.read_bytes(), random.Random(3), tmp_path / "session.db"
    n_read = 0

    for _ in range(600):
        data = bytearray(sample)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        with suppress(FormatError):
            read_file(bytes(data), "session.db")
        with suppress(FormatError), session_database.opened_file(path) as connection:
            names = session_database.session_names(connection)
            session_database.list_sessions(connection, names, "session.db")
            for name, _ in names:
                session_database.read_session(connection, name, "session.db")
            n_read += 1

    assert 0 < n_read < 600


def test_a_database_with_a_write_ahead_log_is_read(tmp_path: Path) -> None:
    data = changed(tmp_path, "PRAGMA journal_mode = WAL")

    assert data[18:20] == b"\x02\x02"
    assert read_file(data, "session.db").evalset is not None


def test_a_query_without_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_database, "MAX_STEPS", 0)
    monkeypatch.setattr(session_database, "_STEPS_AT_ONCE", 10)

    with pytest.raises(FormatError, match="cannot be read: interrupted"):
        read_file(SAMPLE.read_bytes(), "session.db")


def _written_by_adk(path: Path) -> None:
    events = pytest.importorskip("google.adk.events")
    sessions = pytest.importorskip("google.adk.sessions.sqlite_session_service")
    types = pytest.importorskip("google.genai.types")

    async def write() -> None:
        service = sessions.SqliteSessionService(db_path=str(path))
        session = await service.create_session(
            app_name="dice", user_id="user", session_id="talk", state={"sides": 6, "app:theme": "dark"}
        )
        call = types.FunctionCall(id="c", name="roll_die", args={"sides": 6})
        for author, part in (
            ("user", types.Part(text="Roll.")),
            ("dice", types.Part(function_call=call)),
            ("dice", types.Part(text="4.")),
        ):
            content = types.Content(role="user" if author == "user" else "model", parts=[part])
            await service.append_event(session, events.Event(invocation_id="i", author=author, content=content))

    asyncio.run(write())


def test_the_database_that_adk_itself_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "session.db"
    _written_by_adk(path)

    evalset = read_file(path.read_bytes(), "session.db").evalset

    assert evalset is not None
    (case,) = evalset.cases
    assert (case.id, case.turns[0].query, case.turns[0].expected.reference) == ("talk", "Roll.", "4.")
    (call,) = case.turns[0].expected.tool_calls or ()
    assert (call.name, call.args) == ("roll_die", {"sides": 6})
    assert case.initial_state == {"app:theme": "dark", "sides": 6}
