"""The format "adk-session-db": the sessions that `adk web` keeps in `AGENT/.adk/session.db`.

A file is read whole, as an upload; or in its place, one session at a time, while `adk web` may be writing to it.
(google-adk 2.13 sessions/sqlite_session_service.py, and sessions/schemas/v1.py, whose tables have the same columns)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from evaldesk.errors import FormatError
from evaldesk.formats.adk.session import case_of, recorded_at
from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.formats.recorded_cases import repeatable_cases
from evaldesk.model import Case, EvalSet
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES, Document, JsonPosition, parse_recorded_json
from evaldesk.reading.values import read_mapping
from evaldesk.transcripts.adk import message_text, read_parts
from evaldesk.transcripts.recorded import file_stem, free_name

MAGIC = b"SQLite format 3\x00"
OF_EVALUATIONS = ("___eval___session___", "adk-eval-session-")
MAX_STEPS = 200_000_000
"""Steps of SQLite's machine for one file: about ten seconds. A file may hold a view that never ends."""
_STEPS_AT_ONCE = 1_000_000
_JOURNAL = slice(18, 20)
"""The bytes of the header that ask for a write-ahead log, which a file alone does not have."""
_TABLES = {
    "sessions": {"app_name", "user_id", "id", "state"},
    "events": {"app_name", "user_id", "session_id", "timestamp", "event_data"},
}
_WAIT_S = 2.0
"""How long a page waits for `adk web` to end what it writes."""
_SESSIONS = "SELECT app_name, user_id, id, state FROM sessions ORDER BY create_time, id"
_SESSION = "SELECT app_name, user_id, id, state FROM sessions WHERE app_name = ? AND user_id = ? AND id = ?"
_NAMES = "SELECT app_name, user_id, id, update_time FROM sessions ORDER BY update_time DESC, app_name, user_id, id"
_COUNTS = "SELECT app_name, user_id, session_id, COUNT(*) FROM events GROUP BY app_name, user_id, session_id"
_EVENTS = (
    "SELECT event_data FROM events WHERE app_name = ? AND user_id = ? AND session_id = ? ORDER BY timestamp, rowid"
)

SessionName: TypeAlias = tuple[str, str, str]
"""App, user and id, which name a session in its database."""


@dataclass(frozen=True, slots=True)
class ListedSession:
    """The line of a list for one session; `message` is the text of its first event."""

    name: SessionName
    updated_at: datetime | None
    n_events: int
    message: str


class AdkSessionDatabase(ReadOnly):
    """A SQLite file with the tables `sessions` and `events`."""

    title = "ADK session database"
    suffixes = (".db",)
    instead = "a session is a record; write an eval set as adk"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a SQLite file."""
        return data.startswith(MAGIC)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """An eval set with a case for each session that has a turn. Raises FormatError."""
        notes, used_names = Notes(), dict[str, int]()
        cases: list[Case] = []
        ends: dict[str, float | None] = {}
        try:
            with _open_database(data, source) as connection:
                for session in _sessions(connection, source):
                    place = JsonPosition(Document(session, source=f"{source}!session {session['id']}"))
                    if session["id"].startswith(OF_EVALUATIONS):
                        notes.refuse("a session of an evaluation", place)
                    elif (case := case_of(place, session, session["id"], notes)) is not None:
                        cases.append(replace(case, id=free_name(case.id, used_names)))
                        ends[cases[-1].id] = recorded_at(session["events"])
                    else:
                        notes.refuse("a session without a turn", place)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes names that are not UTF-8 in its errors
            raise FormatError(f"this SQLite file cannot be read: {error}", source=source) from None
        if not cases:
            raise FormatError("the database contains no session with a turn", source=source)
        new_cases, sentences = repeatable_cases(cases, ends)
        evalset = EvalSet(file_stem(source), cases=new_cases)
        return Imported("adk-session-db", evalset, understood=sentences, refused=notes.sentences)


@contextmanager
def opened_file(path: Path) -> Iterator[sqlite3.Connection]:
    """The database in its place, read only and bounded in its steps. Raises FormatError when it is not ADK's."""
    try:
        with closing(_connect(path)) as connection:
            _limit_steps(connection)
            _check_tables(connection, path.name)
            yield connection
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        raise FormatError(f"this SQLite file cannot be read now: {error}", source=path.name) from None


def session_names(connection: sqlite3.Connection) -> list[tuple[SessionName, datetime | None]]:
    """The sessions and when each was last used, newest first; those of evaluations are left out."""
    rows = connection.execute(_NAMES)
    names = (((str(app), str(user), str(session)), _parse_time(updated)) for app, user, session, updated in rows)
    return [(name, updated) for name, updated in names if not name[2].startswith(OF_EVALUATIONS)]


def list_sessions(
    connection: sqlite3.Connection, names: Sequence[tuple[SessionName, datetime | None]], source: str
) -> list[ListedSession]:
    """The lines of a list for these sessions. Raises FormatError."""
    counts = {(str(app), str(user), str(session)): n for app, user, session, n in connection.execute(_COUNTS)}
    return [
        ListedSession(name, updated, counts.get(name, 0), _first_message(connection, name, source))
        for name, updated in names
    ]


def read_session(connection: sqlite3.Connection, name: SessionName, source: str) -> dict[str, Any] | None:
    """A session in the form in which `adk web` exports it, None where it is gone. Raises FormatError."""
    row = connection.execute(_SESSION, name).fetchone()
    return _session_object(connection, row, source) if row else None


def _connect(path: Path) -> sqlite3.Connection:
    """A log that nobody writes is left alone: reading it would make files beside the database."""
    with path.open("rb") as file:
        header = file.read(_JOURNAL.stop)
    if not header.startswith(MAGIC):
        raise FormatError("this is not a SQLite file", source=path.name)
    log = path.with_name(f"{path.name}-wal")
    is_at_rest = header[_JOURNAL] == b"\x02\x02" and not (log.exists() and log.stat().st_size)
    # A log that nobody writes is left alone, since reading it makes files: decision 081.
    address = f"{path.as_uri()}?mode=ro{'&immutable=1' if is_at_rest else ''}"
    return sqlite3.connect(address, uri=True, timeout=_WAIT_S)


@contextmanager
def _open_database(data: bytes, source: str) -> Iterator[sqlite3.Connection]:
    """The database in memory, read only, bounded in its steps. Raises FormatError when it is not ADK's."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data[: _JOURNAL.start] + b"\x01\x01" + data[_JOURNAL.stop :])
        _limit_steps(connection)
        _check_tables(connection, source)
        yield connection


def _limit_steps(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_RECORDED_BYTES)
    n_left = MAX_STEPS // _STEPS_AT_ONCE

    def step() -> int:
        nonlocal n_left
        n_left -= 1
        return n_left < 0

    connection.set_progress_handler(step, _STEPS_AT_ONCE)


def _check_tables(connection: sqlite3.Connection, source: str) -> None:
    for table, columns in _TABLES.items():
        _check_table(connection, table, columns, source)


def _check_table(connection: sqlite3.Connection, table: str, columns: set[str], source: str) -> None:
    is_table = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    column_names = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} if is_table else set()
    if "actions" in column_names and "event_data" not in column_names:
        raise FormatError(
            "this session database has the tables of ADK before 1.22, with pickled actions; "
            "`adk migrate session` writes it anew",
            source=source,
        )
    if missing_columns := ", ".join(sorted(columns - column_names)):
        raise FormatError(
            f"this is not a session database of ADK: the table {table} has no {missing_columns}", source=source
        )


def _sessions(connection: sqlite3.Connection, source: str) -> Iterator[dict[str, Any]]:
    for row in connection.execute(_SESSIONS).fetchall():
        yield _session_object(connection, row, source)


def _session_object(connection: sqlite3.Connection, row: Sequence[Any], source: str) -> dict[str, Any]:
    """A session in the form in which `adk web` exports it; state of the app and of the user is part of its state."""
    app_name, user_id, session_id, state = row
    part = f"session {session_id}"
    shared_state = {f"app:{key}": value for key, value in _shared_state(connection, "app", (app_name,), source).items()}
    shared_state |= {
        f"user:{key}": value for key, value in _shared_state(connection, "user", (app_name, user_id), source).items()
    }
    rows = connection.execute(_EVENTS, (app_name, user_id, session_id))
    return {
        "id": str(session_id),
        "app_name": str(app_name),
        "user_id": str(user_id),
        "state": {**shared_state, **_object(state, source, f"{part}, state")},
        "events": [_object(data, source, f"{part}, event {number}") for number, data in _events(rows, source, part)],
    }


def _events(rows: Iterable[Sequence[Any]], source: str, part: str) -> Iterator[tuple[int, Any]]:
    """The events with their numbers. Raises FormatError for a session that is too large."""
    n_bytes = 0
    for number, (data,) in enumerate(rows, 1):
        n_bytes += len(data) if isinstance(data, bytes | str) else 0
        if n_bytes > MAX_RECORDED_BYTES:
            raise FormatError(f"the events are larger than {MAX_RECORDED_BYTES:,} bytes", source=f"{source}!{part}")
        yield number, data


def _first_message(connection: sqlite3.Connection, name: SessionName, source: str) -> str:
    """The text of the first event; empty where it has none, or is no event."""
    row = connection.execute(f"{_EVENTS} LIMIT 1", name).fetchone()
    if not row:
        return ""
    try:
        event = _object(row[0], source, f"session {name[2]}, event 1")
        content = JsonPosition(Document(event, source=source)).at("content")
        return message_text(read_parts(content, event.get("content") or {}))
    except FormatError:  # the session itself says what is wrong, when it is opened
        return ""


def _parse_time(value: Any) -> datetime | None:
    """A time in seconds, or as SQLAlchemy writes it; None for anything else."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        time = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _shared_state(connection: sqlite3.Connection, of: str, key: tuple[str, ...], source: str) -> dict[str, Any]:
    """The state of an app or of a user; empty where the database has no such table."""
    table = f"{of}_states"
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone():
        return {}
    where = "app_name = ? AND user_id = ?" if of == "user" else "app_name = ?"
    row = connection.execute(f"SELECT state FROM {table} WHERE {where}", key).fetchone()  # noqa: S608 - two fixed names
    return _object(row[0], source, table) if row else {}


def _object(value: Any, source: str, part: str) -> dict[str, Any]:
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    document = parse_recorded_json(data, source=f"{source}!{part}")
    return read_mapping(JsonPosition(document), document.value)
