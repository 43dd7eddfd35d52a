"""Chat sessions and their turns: each method is one transaction."""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, tuple_, update

from evaldesk.errors import NotFoundError
from evaldesk.model import JsonObject, TurnRecord
from evaldesk.model.stored import AddedCase, SessionSummary, StoredSession
from evaldesk.store.database import Database, upsert
from evaldesk.store.runs.recording import Values
from evaldesk.store.tables import SESSION, SESSION_CASE, SESSION_TURN, pack, unpack_all
from evaldesk.wire import from_json, to_json


class SessionStore:
    """Chat sessions. Methods that name one raise NotFoundError when there is none, or it was deleted."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def create(self, agent_id: str, title: str = "", initial_state: JsonObject | None = None) -> StoredSession:
        """Begin a session whose state is `initial_state`."""
        now = self._clock()
        state = to_json(initial_state or {}).decode()
        session_id = secrets.token_hex(8)
        times = {"created_at": now, "updated_at": now}
        row = {"id": session_id, "agent_id": agent_id, "title": title, "initial_state": state, "state": state} | times
        with self._database.writing() as connection:
            connection.execute(insert(SESSION), row)
            return _stored(connection, session_id)

    def get(self, session_id: str) -> StoredSession:
        """A session with its turns."""
        with self._database.reading() as connection:
            return _stored(connection, session_id)

    def list(self, *, before: str = "", limit: int = 50) -> builtins.list[SessionSummary]:
        """Sessions, the last one used first; `before` is the id of the last one of the page before."""
        names = SessionSummary.__dataclass_fields__
        rows = select(*(SESSION.c[name] for name in names)).where(SESSION.c.deleted_at.is_(None))
        rows = rows.order_by(SESSION.c.updated_at.desc(), SESSION.c.id.desc()).limit(limit)
        with self._database.reading() as connection:
            if before:
                last = _row(connection, before)
                rows = rows.where((last.updated_at, last.id) > _PLACE)
            return [SessionSummary(**row._mapping) for row in connection.execute(rows)]

    def rename(self, session_id: str, title: str) -> None:
        """Give a session another title; it keeps its place in the list."""
        with self._database.writing() as connection:
            _change(connection, session_id, {"title": title})

    def delete(self, session_id: str) -> None:
        """Put a session away; `restore` brings it back."""
        with self._database.writing() as connection:
            _change(connection, session_id, {"deleted_at": self._clock()})

    def restore(self, session_id: str) -> None:
        """Bring a deleted session back. Raises NotFoundError when there never was one."""
        with self._database.writing() as connection:
            changed = connection.execute(update(SESSION).where(SESSION.c.id == session_id).values(deleted_at=None))
        if not changed.rowcount:
            raise _not_found(session_id)

    def append_turn(self, session_id: str, turn: TurnRecord, *, title: str = "") -> int:
        """Add a turn, which also sets the state to the one it ended with; return its index.

        `title` is for a session that has none by then.
        """
        codec, data = pack(turn)
        state = to_json(turn.state_after).decode()
        with self._database.writing() as connection:
            session = _row(connection, session_id)
            index: int = session.n_turns
            place = {"session_id": session_id, "turn_index": index}
            connection.execute(insert(SESSION_TURN), place | {"codec": codec, "data": data})
            end = {"state": state, "n_turns": index + 1, "ended_in_error": turn.error is not None}
            _change(connection, session_id, end | {"title": session.title or title, "updated_at": self._clock()})
        return index

    def set_state(self, session_id: str, state: JsonObject) -> None:
        """Replace the state; before the first turn this is also the state the session starts from."""
        text = to_json(state).decode()
        with self._database.writing() as connection:
            is_new = _row(connection, session_id).n_turns == 0
            states = {"state": text} | ({"initial_state": text} if is_new else {})
            _change(connection, session_id, states | {"updated_at": self._clock()})

    def has_case(self, session_id: str) -> bool:
        """Whether a case was ever made from the session."""
        made = select(SESSION_CASE.c.case_id).where(SESSION_CASE.c.session_id == session_id)
        with self._database.reading() as connection:
            return connection.execute(made.limit(1)).first() is not None

    def last_added(self, agent_id: str) -> dict[str, datetime]:
        """When a case was last made from a session with the agent, by eval set."""
        when = func.max(SESSION_CASE.c.added_at)
        rows = select(SESSION_CASE.c.evalset_id, when).join(SESSION, SESSION.c.id == SESSION_CASE.c.session_id)
        rows = rows.where(SESSION.c.agent_id == agent_id).group_by(SESSION_CASE.c.evalset_id)
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(rows)}

    def note_case(self, session_id: str, evalset_id: str, case_id: str) -> None:
        """Remember that a case was made from the session."""
        case = {"session_id": session_id, "evalset_id": evalset_id, "case_id": case_id, "added_at": self._clock()}
        with self._database.writing() as connection:
            _row(connection, session_id)
            statement = upsert(connection.dialect.name, SESSION_CASE)
            again = {"added_at": statement.excluded.added_at}
            key = builtins.list(SESSION_CASE.primary_key)
            connection.execute(statement.on_conflict_do_update(index_elements=key, set_=again), case)


_PLACE = tuple_(SESSION.c.updated_at, SESSION.c.id)


def _row(connection: Connection, session_id: str) -> Row[Any]:
    row = connection.execute(select(SESSION).where(SESSION.c.id == session_id, SESSION.c.deleted_at.is_(None))).first()
    if row is None:
        raise _not_found(session_id)
    return row


def _change(connection: Connection, session_id: str, values: Values) -> None:
    _row(connection, session_id)
    connection.execute(update(SESSION).where(SESSION.c.id == session_id).values(values))


def _stored(connection: Connection, session_id: str) -> StoredSession:
    row = _row(connection, session_id)
    turns = select(SESSION_TURN.c.codec, SESSION_TURN.c.data).where(SESSION_TURN.c.session_id == session_id)
    cases = select(SESSION_CASE.c.evalset_id, SESSION_CASE.c.case_id, SESSION_CASE.c.added_at)
    cases = cases.where(SESSION_CASE.c.session_id == session_id).order_by(SESSION_CASE.c.added_at)
    rows = [(codec, data) for codec, data in connection.execute(turns.order_by(SESSION_TURN.c.turn_index))]
    return StoredSession(
        id=row.id,
        agent_id=row.agent_id,
        title=row.title,
        initial_state=from_json(row.initial_state, dict),
        state=from_json(row.state, dict),
        turns=unpack_all(rows, TurnRecord),
        added_to=tuple(AddedCase(*case) for case in connection.execute(cases)),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _not_found(session_id: str) -> NotFoundError:
    return NotFoundError(f"there is no session {session_id!r}; it was deleted, or belongs to another workspace")
