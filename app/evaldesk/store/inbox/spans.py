"""Received spans: stored before they are acknowledged, and grouped by the sessions that their traces name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, insert, select, tuple_, update

from evaldesk.model.inbox import InboxSource, ReceivedSpan
from evaldesk.store.database import StorePart, execute_many
from evaldesk.store.tables.columns import MOST_VALUES, pack_json, pieces, replacing, unpack, unpacked_size, upsert
from evaldesk.store.tables.inbox import CONVERSATION, SESSION, SOURCE, SPANS, TRACE
from evaldesk.wire import to_json

MOST_JOINED = 1_000
"""Traces of one step."""
MOST_SPANS = 20_000
"""Spans of the traces of one step, unless a single trace has more."""
MOST_BYTES = 16 * 2**20
"""Bytes of JSON that one step reads, but for a single large group."""
MOST_OF_GROUP = 64 * 2**20
"""Bytes of JSON of one group that are read."""
GONE = "gone"
"""The stage of a trace whose conversation was removed: a pull does not bring it back."""
_AT_ONCE = 2**20
"""Packed bytes of rows that are in memory together."""
_OF_TRACE = (SPANS.c.source == TRACE.c.source) & (SPANS.c.trace_id == TRACE.c.trace_id)
_Unit = TypeVar("_Unit", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """Spans of one trace that one request of a source brought; `data` is the packed list of them."""

    source: str
    trace_id: str
    n_spans: int
    codec: int
    data: bytes


def packed_batch(
    source: str, trace_id: str, spans: Sequence[ReceivedSpan], scrub: Callable[[bytes], bytes] = bytes
) -> SpanBatch:
    """The batch of some spans; `scrub` takes secrets out of their JSON."""
    codec, data = pack_json(scrub(to_json(spans)))
    return SpanBatch(source, trace_id, len(spans), codec, data)


@dataclass(frozen=True, slots=True)
class TraceKey:
    """A trace of a source."""

    source: str
    trace_id: str


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session of a service, as spans of a source name it."""

    source: str
    service: str
    session: str


@dataclass(frozen=True, slots=True)
class TraceSpans:
    """The spans of a trace, in the order of their coming; `is_whole` unless some are above the bounds of a group.

    `n_spans` is the number of spans when they were read, `n_bytes` are the packed ones.
    """

    spans: Sequence[ReceivedSpan]
    n_spans: int
    n_bytes: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class TraceGroup:
    """The traces that sessions connect, with all their spans; `n_spans` is the number of each trace when it was read.

    `n_left_out` spans are above the bound of one group, `n_bytes` are the packed ones. Of very many traces `n_spans`
    has the newest.
    """

    id: int
    source: str
    spans: Sequence[ReceivedSpan]
    n_spans: Mapping[str, int]
    last_at: datetime
    n_bytes: int
    n_left_out: int


@dataclass(slots=True)
class TraceChanges:
    """Traces that were stored: new ones, changed ones and equal ones; those of removed conversations stay away."""

    n_new: int = 0
    n_changed: int = 0
    n_equal: int = 0
    n_removed: int = 0


class SpanStore(StorePart):
    """The spans that came in, and the traces they are of."""

    def receive(self, batches: Sequence[SpanBatch]) -> None:
        """Store spans in one transaction; they are safe when it returns."""
        if not batches:
            return
        with self._database.writing() as connection:
            _add(connection, batches, self._clock())

    def replace(self, batches: Sequence[SpanBatch]) -> TraceChanges:
        """Store whole traces in one transaction, each in place of its stored spans; equal ones stay as they are.

        A trace whose conversation was removed stays away.
        """
        changes = TraceChanges()
        s = SPANS.c
        with self._database.writing() as connection:
            changed: list[SpanBatch] = []
            for batch in batches:
                is_of_trace = (s.source == batch.source) & (s.trace_id == batch.trace_id)
                trace = (TRACE.c.source == batch.source) & (TRACE.c.trace_id == batch.trace_id)
                if connection.scalar(select(TRACE.c.stage).where(trace)) == GONE:
                    changes.n_removed += 1
                    continue
                rows = connection.execute(select(s.codec, s.data).where(is_of_trace).limit(2)).all()
                if [(row.codec, row.data) for row in rows] == [(batch.codec, batch.data)]:
                    changes.n_equal += 1
                    continue
                if rows:
                    connection.execute(delete(SPANS).where(is_of_trace))
                    connection.execute(update(TRACE).where(trace).values(n_spans=0))
                    changes.n_changed += 1
                else:
                    changes.n_new += 1
                changed.append(batch)
            if changed:
                _add(connection, changed, self._clock())
        return changes

    def count_refused(self, source: str, n: int) -> None:
        """Count requests that were turned away in a burst."""
        with self._database.writing() as connection:
            _count(connection, source, self._clock(), n_refused=n)

    def sources(self) -> Sequence[InboxSource]:
        """The senders, by name."""
        with self._database.reading() as connection:
            return [InboxSource(*row) for row in connection.execute(select(SOURCE).order_by(SOURCE.c.name))]

    def unjoined(self, before: datetime, limit: int = MOST_JOINED) -> Sequence[TraceKey]:
        """The traces with spans that no conversation has yet, and none since `before`; oldest first, within a step."""
        t = TRACE.c
        rows = select(t.source, t.trace_id, t.n_spans).where(t.stage == "new", t.last_at <= before)
        keys: list[TraceKey] = []
        n_spans = 0
        with self._database.reading() as connection:
            for row in connection.execute(rows.order_by(t.last_at).limit(limit)).all():
                n_spans += row.n_spans
                if keys and n_spans > MOST_SPANS:
                    break
                keys.append(TraceKey(row.source, row.trace_id))
        return keys

    def has_unjoined(self) -> bool:
        """Whether spans wait to be joined."""
        with self._database.reading() as connection:
            return (
                connection.execute(select(TRACE.c.trace_id).where(TRACE.c.stage == "new").limit(1)).first() is not None
            )

    def spans_of(self, keys: Sequence[TraceKey], most: int) -> dict[TraceKey, TraceSpans]:
        """The spans of the first of some traces, at most `most` of each; traces above the bounds of a step are missing.

        A removed trace has none.
        """
        t, s = TRACE.c, SPANS.c
        values = [(key.source, key.trace_id) for key in keys]
        rows = select(s.id, s.source, s.trace_id, s.n_spans, func.length(s.data).label("n_bytes"))
        rows = rows.where(tuple_(s.source, s.trace_id).in_(values)).order_by(s.id).limit(most + MOST_SPANS)
        traces = select(t.source, t.trace_id, t.n_spans).where(tuple_(t.source, t.trace_id).in_(values))
        with self._database.reading() as connection:
            n_spans = {TraceKey(row.source, row.trace_id): row.n_spans for row in connection.execute(traces)}
            batches: dict[TraceKey, list[_Batch]] = {key: [] for key in keys}
            for row in connection.execute(rows):
                batches[TraceKey(row.source, row.trace_id)].append(_Batch(row.id, row.n_spans, row.n_bytes))
            spans = _read_units(connection, batches, most)
        return {
            key: TraceSpans(
                each, n_spans.get(key, 0), sum(batch.n_bytes for batch in batches[key]), len(each) == n_spans.get(key)
            )
            for key, each in spans.items()
        }

    def connect(self, sessions: Mapping[TraceKey, Sequence[SessionKey]]) -> Sequence[int]:
        """Put each trace into the group of the sessions that it names, which may join groups; gives the groups."""
        t, s = TRACE.c, SESSION.c
        session_values = sorted({_values(key) for keys in sessions.values() for key in keys})
        with self._database.writing() as connection:
            own_groups: dict[TraceKey, int] = {}
            session_groups: dict[tuple[str, str, str], int] = {}
            for some in pieces([(key.source, key.trace_id) for key in sessions]):
                rows = select(t.source, t.trace_id, t.group_id).where(tuple_(t.source, t.trace_id).in_(some))
                own_groups |= {TraceKey(row.source, row.trace_id): row.group_id for row in connection.execute(rows)}
            for names in pieces(session_values):
                of_some = tuple_(s.source, s.service, s.session).in_(names)
                for row in connection.execute(select(s.source, s.service, s.session, s.group_id).where(of_some)):
                    session_groups[row.source, row.service, row.session] = row.group_id
            sets = _DisjointSets()
            for trace, keys in sessions.items():
                own = own_groups.get(trace)
                if own is None:  # it was removed meanwhile
                    continue
                sets.join(own, own)
                for key in keys:
                    sets.join(own, session_groups.setdefault(_values(key), own))
            moves = [{"old": each, "new": root} for each in sets.members if (root := sets.root(each)) != each]
            for table in (TRACE, SESSION, CONVERSATION):
                moving = update(table).where(table.c.group_id == bindparam("old")).values(group_id=bindparam("new"))
                execute_many(connection, moving, moves)
            rows_of_sessions = [
                {"source": key[0], "service": key[1], "session": key[2], "group_id": sets.root(session_groups[key])}
                for key in session_values
                if key in session_groups
            ]
            execute_many(connection, replacing(connection.dialect.name, SESSION), rows_of_sessions)
            return sorted({sets.root(own) for own in own_groups.values()})

    def groups(
        self, ids: Sequence[int], most: int, read_traces: Mapping[TraceKey, TraceSpans] | None = None
    ) -> Iterator[Sequence[TraceGroup]]:
        """Groups with at most `most` spans each, the first received ones, without removed groups; some at a time.

        `read_traces` has spans that were read, so that they are not read again.
        """
        queue = [*ids]
        while queue:
            with self._database.reading() as connection:
                groups = _read_groups(connection, queue[:MOST_JOINED], most, read_traces or {})
            del queue[: len(groups)]
            yield [group for group in groups if group]

    def remove_empty(self, before: datetime, limit: int = 500) -> int:
        """Remove the spans of traces without an agent that got no span since `before`; gives the number of traces."""
        return self._forget("empty", before, limit)

    def forget_gone(self, before: datetime, limit: int = 500) -> int:
        """Forget some traces whose conversations were removed before then; gives their number."""
        return self._forget(GONE, before, limit)

    def _forget(self, stage: str, before: datetime, limit: int) -> int:
        rows = select(TRACE.c.source, TRACE.c.trace_id).where(TRACE.c.stage == stage, TRACE.c.last_at <= before)
        with self._database.writing() as connection:
            keys = [tuple(row) for row in connection.execute(rows.order_by(TRACE.c.last_at).limit(limit))]
            remove_traces(connection, keys)
        return len(keys)


def remove_traces(connection: Connection, keys: Sequence[tuple[str, str]], gone_at: datetime | None = None) -> None:
    """Remove traces with their spans, and sessions that no other trace is of.

    With `gone_at` they are known as removed from then on, so that no pull brings them back.
    """
    if not keys:
        return
    t = TRACE.c
    are_these = tuple_(t.source, t.trace_id).in_(keys)
    groups = set(connection.scalars(select(t.group_id).where(are_these)))
    connection.execute(delete(SPANS).where(tuple_(SPANS.c.source, SPANS.c.trace_id).in_(keys)))
    if gone_at is None:
        connection.execute(delete(TRACE).where(are_these))
    else:
        connection.execute(update(TRACE).where(are_these).values(stage=GONE, n_spans=0, last_at=gone_at))
    groups -= set(connection.scalars(select(t.group_id).where(t.group_id.in_(groups), t.stage != GONE)))
    connection.execute(delete(SESSION).where(SESSION.c.group_id.in_(groups)))


def count_removed(connection: Connection, source: str, now: datetime, n: int) -> None:
    """Count conversations that were removed for age or for room."""
    _count(connection, source, now, n_removed=n)


def _add(connection: Connection, batches: Sequence[SpanBatch], now: datetime) -> None:
    """Add batches of spans, whose traces wait to be joined again."""
    rows = [
        {
            "source": batch.source,
            "trace_id": batch.trace_id,
            "n_spans": batch.n_spans,
            "received_at": now,
            "codec": batch.codec,
            "data": batch.data,
        }
        for batch in batches
    ]
    statement = insert(SPANS).returning(SPANS.c.id, sort_by_parameter_order=True)
    ids = connection.scalars(statement, rows).all()
    traces: dict[tuple[str, str], dict[str, Any]] = {}
    sources: dict[str, int] = {}
    for batch, row_id in zip(batches, ids, strict=True):
        trace = traces.setdefault(
            (batch.source, batch.trace_id),
            {"source": batch.source, "trace_id": batch.trace_id, "group_id": row_id, "n_spans": 0},
        )
        trace["n_spans"] += batch.n_spans
        sources[batch.source] = sources.get(batch.source, 0) + batch.n_spans
    adding = upsert(connection.dialect.name, TRACE)
    values = {
        "n_spans": TRACE.c.n_spans + adding.excluded.n_spans,
        "last_at": adding.excluded.last_at,
        "stage": adding.excluded.stage,
    }
    adding = adding.on_conflict_do_update(index_elements=["source", "trace_id"], set_=values)
    connection.execute(adding, [trace | {"last_at": now, "stage": "new"} for trace in traces.values()])
    for source, n_spans in sources.items():
        _count(connection, source, now, n_spans=n_spans)


def _count(connection: Connection, source: str, now: datetime, **numbers: int) -> None:
    values = {"n_spans": 0, "n_refused": 0, "n_removed": 0} | numbers
    adding = upsert(connection.dialect.name, SOURCE).values({"name": source, "first_at": now, "last_at": now} | values)
    totals: dict[str, Any] = {name: SOURCE.c[name] + adding.excluded[name] for name in numbers}
    totals |= {"last_at": adding.excluded.last_at} if "n_spans" in numbers else {}
    connection.execute(adding.on_conflict_do_update(index_elements=["name"], set_=totals))


@dataclass(frozen=True, slots=True)
class _Batch:
    """A stored batch of spans, without them."""

    id: int
    n_spans: int
    n_bytes: int


@dataclass(slots=True)
class _GroupTraces:
    """The traces of a group, unjoined ones first; `rows` has at most MOST_SPANS of them."""

    n_traces: int = 0
    n_spans: int = 0
    rows: list[Any] = field(default_factory=list)

    def read_spans(self, spans: Mapping[TraceKey, TraceSpans], most: int) -> Sequence[TraceSpans]:
        """The spans of all traces where they are known and within the bounds; empty where they must be read."""
        if len(self.rows) < self.n_traces or self.n_spans > most:
            return ()
        pairs = [(row, spans.get(TraceKey(row.source, row.trace_id))) for row in self.rows]
        usable = [each for row, each in pairs if each and each.is_whole and each.n_spans == row.n_spans]
        return usable if len(usable) == len(self.rows) else ()


def _read_groups(
    connection: Connection, ids: Sequence[int], most: int, read_traces: Mapping[TraceKey, TraceSpans]
) -> Sequence[TraceGroup | None]:
    """The first groups, at least one, within the bounds of a step; None for a removed one."""
    traces = _traces_of_groups(connection, ids)
    spans_in_memory = {group_id: each.read_spans(read_traces, most) for group_id, each in traces.items()}
    unread: dict[int, list[_Batch]] = {}
    n_spans = 0
    for group_id, each in traces.items():
        if each.rows and not spans_in_memory[group_id]:
            n_spans += each.n_spans
            if unread and n_spans > MOST_SPANS:
                break
            unread[group_id] = []
    for row in _batches_of_groups(connection, [*unread], most):
        unread[row.group_id].append(_Batch(row.id, row.n_spans, row.n_bytes))
    spans_of_groups = _read_units(connection, unread, most)
    groups: list[TraceGroup | None] = []
    for group_id, each in traces.items():
        if not each.rows:
            groups.append(None)
            continue
        if group_id not in spans_of_groups and not spans_in_memory[group_id]:
            break
        if spans_in_memory[group_id]:
            spans = [span for of_trace in spans_in_memory[group_id] for span in of_trace.spans]
            n_bytes = sum(of_trace.n_bytes for of_trace in spans_in_memory[group_id])
        else:
            spans = spans_of_groups[group_id]
            is_bounded = each.n_spans > most
            n_bytes = _size(connection, group_id) if is_bounded else sum(batch.n_bytes for batch in unread[group_id])
        n_by_trace = {row.trace_id: row.n_spans for row in each.rows}
        last_at = max(row.last_at for row in each.rows)
        n_left_out = max(each.n_spans - len(spans), 0)
        groups.append(TraceGroup(group_id, each.rows[0].source, spans, n_by_trace, last_at, n_bytes, n_left_out))
    return groups


def _traces_of_groups(connection: Connection, ids: Sequence[int]) -> dict[int, _GroupTraces]:
    """The traces of the first groups within the bounds of a step; no rows for a removed group."""
    t = TRACE.c
    traces = {group_id: _GroupTraces() for group_id in ids}
    for some in pieces([*ids]):
        totals = select(t.group_id, func.count().label("n_traces"), func.sum(t.n_spans).label("n_spans"))
        for row in connection.execute(totals.where(t.group_id.in_(some), t.stage != GONE).group_by(t.group_id)):
            traces[row.group_id] = _GroupTraces(row.n_traces, row.n_spans)
    n_traces = 0
    for place, group_id in enumerate(ids):
        n_traces += traces[group_id].n_traces
        if place and n_traces > MOST_SPANS:
            traces = {each: traces[each] for each in ids[:place]}
            break
    new_first = t.stage.desc(), t.last_at.desc()
    for some in pieces([*traces]):
        rows = select(t.group_id, t.source, t.trace_id, t.n_spans, t.last_at)
        rows = rows.where(t.group_id.in_(some), t.stage != GONE)
        for row in connection.execute(rows.order_by(*new_first).limit(MOST_SPANS)):
            traces[row.group_id].rows.append(row)
    return traces


def _batches_of_groups(connection: Connection, ids: Sequence[int], most: int) -> Iterator[Any]:
    """The batches of groups without their spans, in the order of their coming."""
    s = SPANS.c
    for some in pieces(ids):
        rows = select(TRACE.c.group_id, s.id, s.n_spans, func.length(s.data).label("n_bytes")).join(SPANS, _OF_TRACE)
        yield from connection.execute(rows.where(TRACE.c.group_id.in_(some)).order_by(s.id).limit(most + MOST_SPANS))


def _size(connection: Connection, group_id: int) -> int:
    """The packed bytes of all spans of a group."""
    sizes = select(func.sum(func.length(SPANS.c.data))).select_from(TRACE).join(SPANS, _OF_TRACE)
    return int(connection.scalar(sizes.where(TRACE.c.group_id == group_id)) or 0)


def _read_units(
    connection: Connection, batches: Mapping[_Unit, Sequence[_Batch]], most: int
) -> dict[_Unit, list[ReceivedSpan]]:
    """The spans of the first of some traces or groups, at most `most` of each.

    The first one is read up to MOST_OF_GROUP, further ones as long as all take at most MOST_BYTES.
    """
    spans: dict[_Unit, list[ReceivedSpan]] = {}
    rows = _rows_of(connection, [batch for each in batches.values() for batch in _within(each, most)])
    n_bytes = 0
    for unit, of_unit in batches.items():
        room = MOST_BYTES if spans else MOST_OF_GROUP
        unit_spans: list[ReceivedSpan] = []
        for _ in _within(of_unit, most):
            row = next(rows)
            size = unpacked_size(row.codec, row.data)
            if n_bytes and n_bytes + size > room:
                if not spans:
                    spans[unit] = unit_spans[:most]
                return spans
            n_bytes += size
            unit_spans += unpack(row.codec, row.data, list[ReceivedSpan])
        spans[unit] = unit_spans[:most]
    return spans


def _within(batches: Sequence[_Batch], most: int) -> Iterator[_Batch]:
    """The batches that hold the first `most` spans."""
    n_spans = 0
    for batch in batches:
        if n_spans >= most:
            return
        n_spans += batch.n_spans
        yield batch


def _rows_of(connection: Connection, batches: Sequence[_Batch]) -> Iterator[Any]:
    """The packed spans of some batches in their order, few in memory at a time."""
    s = SPANS.c
    row_ids: list[int] = []
    n_bytes = 0
    for place, batch in enumerate(batches):
        row_ids.append(batch.id)
        n_bytes += batch.n_bytes
        if n_bytes >= _AT_ONCE or len(row_ids) >= MOST_VALUES or place == len(batches) - 1:
            rows = {row.id: row for row in connection.execute(select(s.id, s.codec, s.data).where(s.id.in_(row_ids)))}
            yield from (rows[row_id] for row_id in row_ids)
            row_ids, n_bytes = [], 0


class _DisjointSets:
    """Groups that are joined; the root of a set is its smallest number."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    @property
    def members(self) -> Sequence[int]:
        """All numbers."""
        return [*self._parents]

    def join(self, one: int, other: int) -> None:
        """Make the sets of two numbers one."""
        roots = sorted((self.root(one), self.root(other)))
        self._parents[roots[1]] = roots[0]

    def root(self, number: int) -> int:
        """The smallest number of its set."""
        path = [number]
        while (parent := self._parents.setdefault(path[-1], path[-1])) != path[-1]:
            path.append(parent)
        for each in path:
            self._parents[each] = path[-1]
        return path[-1]


def _values(key: SessionKey) -> tuple[str, str, str]:
    return key.source, key.service, key.session
