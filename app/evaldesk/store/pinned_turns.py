"""Pinned turns: stored once by their content, and put into the trials that begin with them. (decision 513)"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeAlias

from sqlalchemy import Connection, delete, exists, insert, literal, select

from evaldesk.model import TrialResult, TurnRecord
from evaldesk.model.fork import pinned_stub
from evaldesk.store import media
from evaldesk.store.tables.columns import pack_json, unpack, upsert
from evaldesk.store.tables.forks import PINNED_TURN, RUN_PINNED_TURN
from evaldesk.wire import to_json

Values: TypeAlias = dict[str, Any]
Pinned: TypeAlias = Mapping[int, tuple[TurnRecord, ...]]
"""The pinned turns of cases, by the index of the case."""


def content_rows(turns: Sequence[TurnRecord]) -> list[Values]:
    """A row for each pinned turn, made before a transaction; images and files are apart."""
    rows = []
    for turn in media.turns_apart(tuple(turns)):
        data = to_json(turn)
        codec, content = pack_json(data)
        rows.append({"digest": blake2b(data, digest_size=16).hexdigest(), "codec": codec, "data": content})
    return rows


def keep(connection: Connection, run_id: int, case_index: int, rows: Sequence[Values]) -> None:
    """Keep the pinned turns of a case of a run, whose row is there."""
    if not rows:
        return
    contents = {row["digest"]: row for row in rows}
    adding = upsert(connection.dialect.name, PINNED_TURN).on_conflict_do_nothing(index_elements=["digest"])
    connection.execute(adding, [*contents.values()])
    place = {"run_id": run_id, "case_index": case_index}
    links = [place | {"turn_index": at, "digest": row["digest"]} for at, row in enumerate(rows)]
    connection.execute(insert(RUN_PINNED_TURN), links)


def copy(connection: Connection, source_id: int, run_id: int, case_indexes: Collection[int]) -> None:
    """Let some cases of a run that scores the trials of another one again have the pinned turns of that one."""
    columns = RUN_PINNED_TURN.c
    rows = select(literal(run_id), columns.case_index, columns.turn_index, columns.digest)
    rows = rows.where(columns.run_id == source_id, columns.case_index.in_(case_indexes))
    names = ["run_id", "case_index", "turn_index", "digest"]
    connection.execute(insert(RUN_PINNED_TURN).from_select(names, rows))


def of_cases(connection: Connection, run_id: int, case_indexes: Collection[int]) -> Pinned:
    """The pinned turns of some cases of a run; a case without any is missing."""
    columns = RUN_PINNED_TURN.c
    rows = select(columns.case_index, PINNED_TURN.c.codec, PINNED_TURN.c.data)
    rows = rows.join(PINNED_TURN, PINNED_TURN.c.digest == columns.digest)
    rows = rows.where(columns.run_id == run_id, columns.case_index.in_(case_indexes))
    pinned: dict[int, tuple[TurnRecord, ...]] = {}
    for case_index, codec, data in connection.execute(rows.order_by(columns.case_index, columns.turn_index)):
        pinned[case_index] = (*pinned.get(case_index, ()), unpack(codec, data, TurnRecord))
    return pinned


def drop_unused(connection: Connection) -> None:
    """Remove the contents with which no trial begins any more."""
    is_used = exists().where(RUN_PINNED_TURN.c.digest == PINNED_TURN.c.digest)
    connection.execute(delete(PINNED_TURN).where(~is_used))


def with_stubs(result: TrialResult) -> TrialResult:
    """The trial with the messages alone of its pinned turns, as it is stored."""
    n = result.n_prefix_turns
    if not n:
        return result
    turns = result.transcript.turns
    stubs = tuple(map(pinned_stub, turns[:n]))
    return replace(result, transcript=replace(result.transcript, turns=(*stubs, *turns[n:])))


def with_pinned(connection: Connection, run_id: int, results: Iterable[TrialResult]) -> list[TrialResult]:
    """Stored trials with their pinned turns whole."""
    trials = list(results)
    case_indexes = {trial.case_index for trial in trials if trial.n_prefix_turns}
    if not case_indexes:
        return trials
    pinned = of_cases(connection, run_id, case_indexes)
    return [_with_turns(trial, pinned.get(trial.case_index, ())) for trial in trials]


def _with_turns(result: TrialResult, pinned: Sequence[TurnRecord]) -> TrialResult:
    n = result.n_prefix_turns
    if not n or len(pinned) < n:
        return result
    turns = (*pinned[:n], *result.transcript.turns[n:])
    return replace(result, transcript=replace(result.transcript, turns=turns))
