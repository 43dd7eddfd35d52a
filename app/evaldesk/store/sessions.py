"""Chat sessions and their turns: each method is one transaction, but for a removal."""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    delete,
    false,
    func,
    insert,
    literal,
    select,
    true,
    tuple_,
    update,
)

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model import Event, JsonObject, Prompts, TurnRecord
from evaldesk.model.draft import OWN
from evaldesk.model.media import Media
from evaldesk.model.stored import AddedCase, Draft, OpenTurn, SessionSummary, StoredSession
from evaldesk.store.database import StorePart
from evaldesk.store.media import bytes_of, drop_some, fitting, keep, result_images, turns_apart
from evaldesk.store.runs.planning import NEW_LEASE
from evaldesk.store.runs.recording import Values
from evaldesk.store.runs.trash import BEING_REMOVED
from evaldesk.store.tables.columns import DatabaseSeconds, pack, pack_json, read_packed, replacing, unpack_all
from evaldesk.store.tables.media import SESSION_MEDIA
from evaldesk.store.tables.sessions import (
    OPEN_TURN,
    OPEN_TURN_EVENTS,
    SESSION,
    SESSION_CASE,
    SESSION_TURN,
    TURN_PROMPTS,
)
from evaldesk.wire import from_json, to_json


class SessionStore(StorePart):
    """Chat sessions. Methods that name one raise NotFoundError when there is none, or it was deleted."""

    def create(
        self,
        agent_id: str,
        title: str = "",
        initial_state: JsonObject | None = None,
        draft: Draft = OWN,
    ) -> StoredSession:
        """Begin a session whose state is `initial_state`, with the instructions of `draft`."""
        now = self._clock()
        state = to_json(initial_state or {}).decode()
        session_id = secrets.token_hex(8)
        times = {"created_at": now, "updated_at": now}
        row = {"id": session_id, "agent_id": agent_id, "title": title, "initial_state": state, "state": state} | times
        row |= {"started_by": self._starter.name, "draft": to_json(dict(draft)).decode()}
        with self._database.writing() as connection:
            connection.execute(insert(SESSION), row)
            return _read_session(connection, session_id)

    def branch(self, session_id: str, at: int, title: str) -> StoredSession:
        """A new session with the turns before the index `at` of this one, the state before that turn, and its draft.

        How models were asked and media are copied with the turns. Raises NotFoundError for the turn.
        """
        new_id, now = secrets.token_hex(8), self._clock()
        with self._database.writing() as connection:
            origin, turn = _row(connection, session_id), _turn(connection, session_id, at)
            if turn is None:
                raise NotFoundError(f"session {session_id!r} has no finished turn {at + 1}")
            row = {
                "id": new_id,
                "agent_id": origin.agent_id,
                "title": title,
                "n_turns": at,
                "started_by": self._starter.name,
                "draft": origin.draft,
            }
            states = {"initial_state": origin.initial_state, "state": to_json(turn.state_before).decode()}
            place = {"branch_of": session_id, "branch_turn": at, "created_at": now, "updated_at": now}
            connection.execute(insert(SESSION), row | states | place)
            for table, where in (
                (SESSION_TURN, SESSION_TURN.c.turn_index < at),
                (TURN_PROMPTS, TURN_PROMPTS.c.turn_index < at),
                (SESSION_MEDIA, true()),
            ):
                columns = [literal(new_id) if each.name == "session_id" else each for each in table.c]
                rows = select(*columns).where(table.c.session_id == session_id, where)
                connection.execute(insert(table).from_select([each.name for each in table.c], rows))
            return _read_session(connection, new_id)

    def get(self, session_id: str) -> StoredSession:
        """A session with its turns."""
        with self._database.reading() as connection:
            return _read_session(connection, session_id)

    def recent(self, session_id: str, most: int, n: int) -> StoredSession:
        """A session with its turns; with the last `n`, where there are more than `most`."""
        with self._database.reading() as connection:
            return _read_session(connection, session_id, most, n)

    def turns(self, session_id: str, first: int, end: int) -> tuple[TurnRecord, ...]:
        """The turns from an index up to another."""
        with self._database.reading() as connection:
            _row(connection, session_id)
            return _turns(connection, session_id, SESSION_TURN.c.turn_index.between(first, end - 1))

    def changed_at(self, session_id: str) -> datetime:
        """When a turn of the session began or ended last, or its state was set."""
        session = select(SESSION.c.updated_at).where(SESSION.c.id == session_id, SESSION.c.deleted_at.is_(None))
        with self._database.reading() as connection:
            updated_at: datetime | None = connection.execute(session).scalar()
        if updated_at is None:
            raise _not_found(session_id)
        return updated_at

    def list(self, *, before: str = "", text: str = "", limit: int = 50) -> builtins.list[SessionSummary]:
        """Sessions with `text` in their title, the last one used first; `before` is the last id of the page before.

        An open turn counts as a turn.
        """
        names = SessionSummary.__dataclass_fields__
        is_new = (OPEN_TURN.c.session_id == SESSION.c.id) & (OPEN_TURN.c.turn_index >= SESSION.c.n_turns)
        n_open = select(func.count()).where(is_new).scalar_subquery()
        computed = {"n_turns": SESSION.c.n_turns + n_open, "has_draft": SESSION.c.draft != "{}"}
        columns = [computed[name].label(name) if name in computed else SESSION.c[name] for name in names]
        is_meant = SESSION.c.title.icontains(text, autoescape=True)
        rows = select(*columns).where(SESSION.c.deleted_at.is_(None), *([is_meant] if text else []))
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
        """Bring a deleted session back. Raises NotFoundError when there never was one, or its removal has begun."""
        is_whole = (SESSION.c.id == session_id) & (SESSION.c.n_turns < BEING_REMOVED)
        with self._database.writing() as connection:
            result = connection.execute(update(SESSION).where(is_whole).values(deleted_at=None))
        if not result.rowcount:
            raise _not_found(session_id)

    def deleted(self) -> builtins.list[tuple[str, str, datetime, int]]:
        """Id, title, time of deletion and bytes of each deleted session."""
        own = SESSION_TURN.c.session_id == SESSION.c.id
        of_turns = select(func.coalesce(func.sum(func.length(SESSION_TURN.c.data)), 0)).where(own).scalar_subquery()
        n_bytes = of_turns + func.length(SESSION.c.initial_state) + func.length(SESSION.c.state)
        columns = (SESSION.c.id, SESSION.c.title, SESSION.c.deleted_at, n_bytes.label("n_bytes"))
        is_in_trash = SESSION.c.deleted_at.is_not(None) & (SESSION.c.n_turns < BEING_REMOVED)
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).where(is_in_trash))
            return [(row.id, row.title, row.deleted_at, row.n_bytes) for row in rows]

    def remove_deleted(self, until: datetime | None = None) -> None:
        """Remove the sessions deleted up to `until` for good, with the remains of earlier removals.

        Others write between its steps.
        """
        is_old = SESSION.c.n_turns == BEING_REMOVED
        is_old |= SESSION.c.deleted_at <= until if until else false()
        with self._database.reading() as connection:
            old_sessions = connection.scalars(select(SESSION.c.id).where(is_old)).all()
        for session_id in old_sessions:
            is_left = True
            while is_left:
                with self._database.writing() as connection:
                    is_left = _remove_some(connection, session_id)

    def begin_turn(
        self,
        session_id: str,
        turn: OpenTurn,
        *,
        title: str = "",
        orphan_owner: str = "",
        finished_turn: TurnRecord | None = None,
        open_record: TurnRecord | None = None,
    ) -> None:
        """Store a turn before it is played; `title` is for a session that has none.

        `orphan_owner` is the owner of an open turn that its process left; it goes, or becomes the finished turn
        `finished_turn`. The bytes of its media are kept for the session. The last turn, `open_record`, stays until it
        is over. Raises ConflictError when the session has another open turn, has grown by a turn meanwhile, or that
        turn is not what it was.
        """
        row = {"session_id": session_id} | {name: getattr(turn, name) for name in _TURN_COLUMNS}
        row["media"] = to_json([item.held() for item in turn.media]).decode()
        fresh = {item.digest: item.content() for item in turn.media if item.data and not item.is_held}
        with self._database.writing() as connection:
            session = _row(connection, session_id)
            open_row = _open_turn_row(connection, session_id)
            if open_row and open_row.owner != orphan_owner:
                raise ConflictError("This session is still answering. Wait for the answer, or stop it.")
            index = open_row.turn_index if open_row else None
            following = session.n_turns - bool(open_record) if index is None else index + bool(finished_turn)
            is_other = open_record and _turn(connection, session_id, turn.turn_index) != open_record
            if following != turn.turn_index or is_other:
                raise ConflictError("This session has another turn by now. Reload the page.")
            _close_turn(connection, session_id)
            if index is not None and finished_turn:
                _put_turn(connection, session, finished_turn, index)
            connection.execute(insert(OPEN_TURN).values(row | {"leased_until": NEW_LEASE}))
            keep(connection, {"session_id": session_id}, fresh, self._clock)
            _change(connection, session_id, {"title": session.title or title, "updated_at": self._clock()})

    def renew_turn(self, session_id: str, owner: str) -> bool:
        """Keep the open turn for this owner; True when it was asked to stop. Raises ConflictError as `append_turn`."""
        own = OPEN_TURN.c.session_id == session_id
        with self._database.writing() as connection:
            open_row = _row_of_owner(connection, session_id, owner)
            connection.execute(update(OPEN_TURN).where(own).values(leased_until=NEW_LEASE))
            return bool(open_row.is_stopping)

    def ask_to_stop(self, session_id: str) -> None:
        """Let the process that plays the open turn of a session end it soon, wherever that process is."""
        with self._database.writing() as connection:
            own = OPEN_TURN.c.session_id == session_id
            connection.execute(update(OPEN_TURN).where(own).values(is_stopping=True))

    # A turn is stored before it is played, so a kill loses no message: decision 040.
    def open_turns(self) -> builtins.list[tuple[str, OpenTurn]]:
        """The sessions that have an open turn, each with that turn, without its events."""
        with self._database.reading() as connection:
            rows = connection.execute(_open_turns())
            return [(row.session_id, OpenTurn(**_columns(row), is_leased=row.is_leased)) for row in rows]

    def open_turn(self, session_id: str) -> OpenTurn | None:
        """The open turn of a session with its events so far; None when there is none."""
        with self._database.reading() as connection:
            return _open_turn(connection, session_id)

    def append_events(self, session_id: str, owner: str, batch_index: int, events: Sequence[Event]) -> None:
        """Add events to the open turn. Raises ConflictError when it is another's, or over."""
        codec, data = pack(tuple(events))
        place = {"session_id": session_id, "batch_index": batch_index}
        with self._database.writing() as connection:
            _row_of_owner(connection, session_id, owner)
            connection.execute(insert(OPEN_TURN_EVENTS), place | {"codec": codec, "data": data})

    def append_turn(self, session_id: str, turn: TurnRecord, *, owner: str = "", prompts: Prompts | None = None) -> int:
        """Add a turn, which also sets the state to the one it ended with; return its index.

        `prompts` join those of a turn that went on. It takes the place of the open turn of `owner`; raises
        ConflictError when that one is gone.
        """
        state, bytes_by_digest = to_json(turn.state_after).decode(), bytes_of((*turn.all_media, *result_images([turn])))
        with self._database.writing() as connection:
            session = _row(connection, session_id)
            index = int(session.n_turns)
            if owner:
                index = min(index, _row_of_owner(connection, session_id, owner).turn_index)
                _close_turn(connection, session_id)
            _put_turn(connection, session, turn, index)
            if prompts:
                place = (_P.session_id == session_id) & (_P.turn_index == index)
                codec, data = pack(prompts.after(read_packed(connection, TURN_PROMPTS, Prompts, place)))
                connection.execute(delete(TURN_PROMPTS).where(place))
                row = {"session_id": session_id, "turn_index": index, "codec": codec, "data": data}
                connection.execute(insert(TURN_PROMPTS), row)
            keep(connection, {"session_id": session_id}, bytes_by_digest, self._clock)
            _change(connection, session_id, {"state": state, "updated_at": self._clock()})
        return index

    def prompts(self, session_id: str) -> Prompts | None:
        """How the models of all turns were asked; None where nothing of it was kept."""
        rows = select(_P.codec, _P.data).where(_P.session_id == session_id).order_by(_P.turn_index)
        with self._database.reading() as connection:
            prompts_of_turns = unpack_all([(row.codec, row.data) for row in connection.execute(rows)], Prompts)
        all_prompts: Prompts | None = None
        for each in prompts_of_turns:
            all_prompts = each.after(all_prompts)
        return all_prompts

    def set_state(self, session_id: str, state: JsonObject) -> None:
        """Replace the state; before the first turn this is also the state the session starts from."""
        text = to_json(state).decode()
        with self._database.writing() as connection:
            is_new = _row(connection, session_id).n_turns == 0
            states = {"state": text} | ({"initial_state": text} if is_new else {})
            _change(connection, session_id, states | {"updated_at": self._clock()})

    def has_case(self, session_id: str) -> bool:
        """Whether a case was ever made from the session."""
        cases = select(SESSION_CASE.c.case_id).where(SESSION_CASE.c.session_id == session_id)
        with self._database.reading() as connection:
            return connection.execute(cases.limit(1)).first() is not None

    def last_case(self) -> tuple[str, str] | None:
        """The eval set and the id of the case that was last made from a session; None when none was."""
        cases = select(SESSION_CASE.c.evalset_id, SESSION_CASE.c.case_id).order_by(SESSION_CASE.c.added_at.desc())
        with self._database.reading() as connection:
            row = connection.execute(cases.limit(1)).first()
        return (row[0], row[1]) if row else None

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
            connection.execute(replacing(connection.dialect.name, SESSION_CASE), case)


_P = TURN_PROMPTS.c
_ROWS_REMOVED = 100
_TURN_COLUMNS = ("turn_index", "owner", "message", "model", "asked_by", "started_at")
_PLACE = tuple_(SESSION.c.updated_at, SESSION.c.id)


def _remove_some(connection: Connection, session_id: str) -> bool:
    """Delete some turns or media of a deleted session, or the rest of it; False when done, or when it was restored."""
    own = SESSION.c.id == session_id
    begin_removal = update(SESSION).where(own, SESSION.c.deleted_at.is_not(None)).values(n_turns=BEING_REMOVED)
    if not connection.execute(begin_removal).rowcount:
        return False
    for table in (OPEN_TURN_EVENTS, TURN_PROMPTS, SESSION_TURN):
        _, place = table.primary_key
        of_session = table.c.session_id == session_id
        sizes = select(place, func.length(table.c.data).label("n_bytes")).where(of_session).order_by(place)
        rows = connection.execute(sizes.limit(_ROWS_REMOVED)).all()
        if rows:
            connection.execute(delete(table).where(of_session, place <= fitting(rows)[-1][0]))
            return True
    if drop_some(connection, SESSION_MEDIA, session_id, _ROWS_REMOVED):
        return True
    connection.execute(delete(SESSION).where(own))
    return False


def _row(connection: Connection, session_id: str) -> Row[Any]:
    row = connection.execute(select(SESSION).where(SESSION.c.id == session_id, SESSION.c.deleted_at.is_(None))).first()
    if row is None:
        raise _not_found(session_id)
    return row


def _open_turn_row(connection: Connection, session_id: str) -> Row[Any] | None:
    """The open turn; its index is that of the last turn where it goes on with it."""
    return connection.execute(_open_turns().where(OPEN_TURN.c.session_id == session_id)).first()


def _row_of_owner(connection: Connection, session_id: str, owner: str) -> Row[Any]:
    open_row = _open_turn_row(connection, session_id)
    if open_row is None or open_row.owner != owner:
        raise ConflictError("Another process took this turn over.")
    return open_row


def _close_turn(connection: Connection, session_id: str) -> None:
    for table in (OPEN_TURN_EVENTS, OPEN_TURN):
        connection.execute(delete(table).where(table.c.session_id == session_id))


def _turn(connection: Connection, session_id: str, index: int) -> TurnRecord | None:
    place = (SESSION_TURN.c.session_id == session_id, SESSION_TURN.c.turn_index == index)
    return read_packed(connection, SESSION_TURN, TurnRecord, *place)


def _put_turn(connection: Connection, session: Row[Any], turn: TurnRecord, index: int) -> None:
    """Add the turn, or put it in the place of the last one, with which it went on."""
    codec, data = pack_json(to_json(turns_apart((turn,))[0]))
    place = (SESSION_TURN.c.session_id == session.id) & (SESSION_TURN.c.turn_index == index)
    connection.execute(delete(SESSION_TURN).where(place))
    row = {"session_id": session.id, "turn_index": index, "codec": codec, "data": data}
    connection.execute(insert(SESSION_TURN), row)
    end = {"n_turns": max(session.n_turns, index + 1), "ended_in_error": turn.error is not None}
    _change(connection, session.id, end)


def _open_turns() -> Select[Any]:
    """The open turns, each with whether its process renewed it in time."""
    return select(OPEN_TURN, (OPEN_TURN.c.leased_until > DatabaseSeconds()).label("is_leased"))


def _columns(row: Row[Any]) -> dict[str, Any]:
    return {name: row._mapping[name] for name in _TURN_COLUMNS}


def _open_turn(connection: Connection, session_id: str) -> OpenTurn | None:
    row = _open_turn_row(connection, session_id)
    if row is None:
        return None
    batches = select(OPEN_TURN_EVENTS.c.codec, OPEN_TURN_EVENTS.c.data)
    batches = batches.where(OPEN_TURN_EVENTS.c.session_id == session_id).order_by(OPEN_TURN_EVENTS.c.batch_index)
    event_batches = unpack_all([(codec, data) for codec, data in connection.execute(batches)], tuple[Event, ...])
    media = from_json(row.media, tuple[Media, ...])
    return OpenTurn(
        **_columns(row), events=tuple(chain.from_iterable(event_batches)), media=media, is_leased=row.is_leased
    )


def _change(connection: Connection, session_id: str, values: Values) -> None:
    _row(connection, session_id)
    connection.execute(update(SESSION).where(SESSION.c.id == session_id).values(values))


def _turns(connection: Connection, session_id: str, *where: ColumnElement[bool]) -> tuple[TurnRecord, ...]:
    own = select(SESSION_TURN.c.codec, SESSION_TURN.c.data).where(SESSION_TURN.c.session_id == session_id, *where)
    rows = connection.execute(own.order_by(SESSION_TURN.c.turn_index))
    return unpack_all([(codec, data) for codec, data in rows], TurnRecord)


def _read_session(connection: Connection, session_id: str, most: int | None = None, n: int = 0) -> StoredSession:
    row = _row(connection, session_id)
    first = 0 if most is None or row.n_turns <= most else row.n_turns - n
    cases = select(SESSION_CASE.c.evalset_id, SESSION_CASE.c.case_id, SESSION_CASE.c.added_at)
    cases = cases.where(SESSION_CASE.c.session_id == session_id).order_by(SESSION_CASE.c.added_at)
    return StoredSession(
        id=row.id,
        agent_id=row.agent_id,
        title=row.title,
        initial_state=from_json(row.initial_state, dict),
        state=from_json(row.state, dict),
        turns=_turns(connection, session_id, SESSION_TURN.c.turn_index >= first),
        added_to=tuple(AddedCase(*case) for case in connection.execute(cases)),
        created_at=row.created_at,
        updated_at=row.updated_at,
        open_turn=_open_turn(connection, session_id),
        first=first,
        branch_of=row.branch_of,
        branch_turn=row.branch_turn,
        draft=from_json(row.draft, dict[str, str]),
    )


def _not_found(session_id: str) -> NotFoundError:
    return NotFoundError(f"there is no session {session_id!r}; it was deleted, or belongs to another workspace")
