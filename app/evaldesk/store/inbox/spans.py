"""Received spans: stored before they are acknowledged, and grouped by the sessions that their traces name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, tuple_, update

from evaldesk.model.inbox import InboxSource, ReceivedSpan
from evaldesk.store.database import StorePart
from evaldesk.store.tables.columns import at, pack_json, unpack, upsert
from evaldesk.store.tables.inbox import CONVERSATION, SESSION, SOURCE, SPANS, TRACE
from evaldesk.wire import to_json

MOST_JOINED = 200
"""Traces of one step."""


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
class TraceGroup:
    """The traces that sessions connect, with all their spans; `n_spans` is the number of each trace when it was read.

    `n_left_out` spans are above the bound of one group, `n_bytes` are the packed ones.
    """

    id: int
    source: str
    spans: Sequence[ReceivedSpan]
    n_spans: Mapping[str, int]
    last_at: datetime
    n_bytes: int
    n_left_out: int


class SpanStore(StorePart):
    """The spans that came in, and the traces they are of."""

    def receive(self, batches: Sequence[SpanBatch]) -> None:
        """Store spans in one transaction; they are safe when it returns."""
        if not batches:
            return
        now = self._clock()
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
        with self._database.writing() as connection:
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

    def count_refused(self, source: str, n: int) -> None:
        """Count requests that were turned away in a burst."""
        with self._database.writing() as connection:
            _count(connection, source, self._clock(), n_refused=n)

    def sources(self) -> Sequence[InboxSource]:
        """The senders, by name."""
        with self._database.reading() as connection:
            return [InboxSource(*row) for row in connection.execute(select(SOURCE).order_by(SOURCE.c.name))]

    def unjoined(self, before: datetime, limit: int = MOST_JOINED) -> Sequence[TraceKey]:
        """The traces with spans that no conversation has yet, and none since `before`; oldest first."""
        rows = select(TRACE.c.source, TRACE.c.trace_id).where(TRACE.c.stage == "new", TRACE.c.last_at <= before)
        with self._database.reading() as connection:
            return [TraceKey(*row) for row in connection.execute(rows.order_by(TRACE.c.last_at).limit(limit))]

    def has_unjoined(self) -> bool:
        """Whether spans wait to be joined."""
        with self._database.reading() as connection:
            return (
                connection.execute(select(TRACE.c.trace_id).where(TRACE.c.stage == "new").limit(1)).first() is not None
            )

    def spans_of(self, keys: Sequence[TraceKey], most: int) -> dict[TraceKey, Sequence[ReceivedSpan]]:
        """The spans of some traces in the order of their coming, at most `most` of each."""
        spans: dict[TraceKey, list[ReceivedSpan]] = {key: [] for key in keys}
        columns = SPANS.c
        with self._database.reading() as connection:
            for key in keys:
                rows = select(columns.codec, columns.data).where(*_of_trace(SPANS, key)).order_by(columns.id)
                for codec, data in connection.execute(rows):
                    spans[key] += unpack(codec, data, list[ReceivedSpan])
                    if len(spans[key]) >= most:
                        break
        return {key: each[:most] for key, each in spans.items()}

    def connect(self, sessions: Mapping[TraceKey, Sequence[SessionKey]]) -> Sequence[int]:
        """Put each trace into the group of the sessions that it names, which may join groups; gives the groups."""
        groups: set[int] = set()
        with self._database.writing() as connection:
            for trace, keys in sessions.items():
                own = connection.scalar(select(TRACE.c.group_id).where(*_of_trace(TRACE, trace)))
                if own is None:  # it was removed meanwhile
                    continue
                others = {connection.scalar(select(SESSION.c.group_id).where(*_of_session(key))) for key in keys}
                group_id = min({own, *others} - {None})
                merged = {own, *others} - {None, group_id}
                groups -= merged
                groups.add(group_id)
                if merged:
                    for table in (TRACE, SESSION, CONVERSATION):
                        connection.execute(update(table).where(table.c.group_id.in_(merged)).values(group_id=group_id))
                for key in keys:
                    values = {"source": key.source, "service": key.service, "session": key.session}
                    adding = upsert(connection.dialect.name, SESSION).values(values | {"group_id": group_id})
                    connection.execute(
                        adding.on_conflict_do_update(
                            index_elements=["source", "service", "session"], set_={"group_id": group_id}
                        )
                    )
        return sorted(groups)

    def group(self, group_id: int, most: int) -> TraceGroup | None:
        """A group with at most `most` spans, the first received ones; None where it was removed."""
        t, s = TRACE.c, SPANS.c
        with self._database.reading() as connection:
            traces = connection.execute(select(TRACE).where(t.group_id == group_id)).all()
            if not traces:
                return None
            of_group = (s.source == t.source) & (s.trace_id == t.trace_id)
            rows = select(s.codec, s.data, s.n_spans).join(TRACE, of_group).where(t.group_id == group_id).order_by(s.id)
            spans: list[ReceivedSpan] = []
            n_bytes = n_left_out = 0
            for codec, data, n_spans in connection.execute(rows):
                n_bytes += len(data)
                if len(spans) < most:
                    spans += unpack(codec, data, list[ReceivedSpan])
                else:
                    n_left_out += n_spans
        n_left_out += max(len(spans) - most, 0)
        n_by_trace = {row.trace_id: row.n_spans for row in traces}
        last_at = max(row.last_at for row in traces)
        return TraceGroup(group_id, traces[0].source, spans[:most], n_by_trace, last_at, n_bytes, n_left_out)

    def remove_empty(self, before: datetime, limit: int = 500) -> int:
        """Remove the spans of traces without an agent that got no span since `before`; gives the number of traces."""
        rows = select(TRACE.c.source, TRACE.c.trace_id).where(TRACE.c.stage == "empty", TRACE.c.last_at <= before)
        with self._database.writing() as connection:
            keys = [tuple(row) for row in connection.execute(rows.order_by(TRACE.c.last_at).limit(limit))]
            remove_traces(connection, keys)
        return len(keys)


def remove_traces(connection: Connection, keys: Sequence[tuple[str, str]]) -> None:
    """Remove traces with their spans, and sessions that no other trace is of."""
    if not keys:
        return
    t = TRACE.c
    groups = set(connection.scalars(select(t.group_id).where(tuple_(t.source, t.trace_id).in_(keys))))
    for table in (SPANS, TRACE):
        connection.execute(delete(table).where(tuple_(table.c.source, table.c.trace_id).in_(keys)))
    groups -= set(connection.scalars(select(t.group_id).where(t.group_id.in_(groups))))
    connection.execute(delete(SESSION).where(SESSION.c.group_id.in_(groups)))


def count_removed(connection: Connection, source: str, now: datetime, n: int) -> None:
    """Count conversations that were removed for age or for room."""
    _count(connection, source, now, n_removed=n)


def _count(connection: Connection, source: str, now: datetime, **numbers: int) -> None:
    values = {"n_spans": 0, "n_refused": 0, "n_removed": 0} | numbers
    adding = upsert(connection.dialect.name, SOURCE).values({"name": source, "first_at": now, "last_at": now} | values)
    totals: dict[str, Any] = {name: SOURCE.c[name] + adding.excluded[name] for name in numbers}
    totals |= {"last_at": adding.excluded.last_at} if "n_spans" in numbers else {}
    connection.execute(adding.on_conflict_do_update(index_elements=["name"], set_=totals))


def _of_trace(table: Any, key: TraceKey) -> list[Any]:
    return at(table, {"source": key.source, "trace_id": key.trace_id})


def _of_session(key: SessionKey) -> list[Any]:
    return at(SESSION, {"source": key.source, "service": key.service, "session": key.session})
