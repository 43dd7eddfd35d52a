"""Rows that Evaldesk cannot have written: another program or a colleague wrote them, or bytes of the file are damaged.

The check reads the tables only after a page or a query failed, so that a sound database pays nothing for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from traceback import walk_tb
from typing import Any, get_args

import msgspec
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    Table,
    case,
    func,
    not_,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.types import NullType, TypeDecorator

from evaldesk.errors import BrokenRowError
from evaldesk.model.conclusion import Verdict
from evaldesk.model.failures import FindingSource, FindingStatus
from evaldesk.model.proposals import ProposalKind, ProposalStatus
from evaldesk.model.queues import QueueKind
from evaldesk.model.run import RunStatus, TrialStatus
from evaldesk.model.stored import ImportStatus
from evaldesk.model.transcript import MAX_NUMBER
from evaldesk.store.database import Database
from evaldesk.store.tables.columns import Row
from evaldesk.store.tables.failures import CODEBOOK_STEP
from evaldesk.store.tables.presets import PRESET
from evaldesk.store.tables.proposals import PROPOSAL
from evaldesk.store.tables.queues import LABEL_STEP, QUEUE
from evaldesk.store.tables.runs import LETTERS, RUN, RUN_CASE, RUN_METRIC, TO_DO, TRIAL
from evaldesk.store.tables.sessions import OPEN_TURN, SESSION
from evaldesk.wire import from_json

CHECK_CPU_S, CHECK_S = 2.0, 30.0
"""No further table is read after so many seconds of the processor, and of the clock: a busy machine takes longer."""
MAX_SHOWN = 80

_STRIP = "".join((TO_DO, *LETTERS.values()))
_OF_JSON = (
    *(RUN.c.config, RUN.c.stop, RUN.c.places, RUN.c.shared_state, RUN_METRIC.c.kinds),
    *(SESSION.c.initial_state, SESSION.c.state, OPEN_TURN.c.media),
    *(SESSION.c.draft, PROPOSAL.c.after),
    *(PRESET.c.fields, CODEBOOK_STEP.c.before, LABEL_STEP.c.before, QUEUE.c.strata),
)
_MOMENT = "[12][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9]*"
"""The form in which SQLAlchemy writes a moment into SQLite."""
_LARGEST = float(MAX_NUMBER**2)
"""Sums of squares are the largest numbers of a table."""
_CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    ("run", "status"): get_args(RunStatus),
    ("trial", "status"): ("planned", *get_args(TrialStatus)),
    ("trial", "verdict"): get_args(Verdict),
    ("finding", "source"): get_args(FindingSource),
    ("finding", "status"): get_args(FindingStatus),
    ("queue_item", "kind"): get_args(QueueKind),
    ("import_record", "status"): get_args(ImportStatus),
    ("proposal", "kind"): get_args(ProposalKind),
    ("proposal", "status"): get_args(ProposalStatus),
}


def broken_row_error(error: BaseException, database: Database) -> BrokenRowError | None:
    """The sentence on the row behind an unexpected error; None where the rows are sound, so that the code is not."""
    if isinstance(error, msgspec.DecodeError) and _is_of_store(error):
        return BrokenRowError(
            f"{database.name}: a stored value is not what Evaldesk writes there ({error}). {_NEXT_STEP}"
        )
    with database.reading() as connection:
        sentence = find_broken_row(connection)
    return BrokenRowError(f"{database.name}: {sentence}. {_NEXT_STEP}") if sentence else None


_NEXT_STEP = (
    "Another program wrote it, or the file is damaged. Correct or delete that row with SQL, or put a backup in place"
)


def _is_of_store(error: BaseException) -> bool:
    """Whether a value of the database was decoded when the error arose."""
    names = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    return any(name.startswith("evaldesk.store.") for name in names)


def find_broken_row(connection: Connection) -> str:
    """The table, row and column of the first value that is of another type or beyond its range; empty without one."""
    ends = time.thread_time() + CHECK_CPU_S, time.monotonic() + CHECK_S
    for table in Row.metadata.sorted_tables:
        if _is_over(ends):
            break
        faults = [fault for column in table.columns for fault in _faults(column, connection.dialect.name)]
        if faults and (sentence := _first_of(connection, table, faults)):
            return sentence
    return _first_without_json(connection, ends)


def _is_over(ends: tuple[float, float]) -> bool:
    return time.thread_time() > ends[0] or time.monotonic() > ends[1]


def _first_without_json(connection: Connection, ends: tuple[float, float]) -> str:
    """The first text that must be JSON and is none: the SQL of the two engines for it differs, or is too new."""
    for column in _OF_JSON:
        table = column.table
        for row in connection.execute(select(*table.primary_key, column.label("text")).where(column.is_not(None))):
            if _is_over(ends):
                return ""
            try:
                from_json(row.text or "null", object)
            except msgspec.DecodeError as error:
                key = _key_words(table, dict(row._mapping))
                return f"table {table.name}, row {key}: {column.name} is not JSON: {error}"
    return ""


def _key_words(table: Table, values: Mapping[str, Any]) -> str:
    return ", ".join(f"{each.name} {values[each.name]!r:.{MAX_SHOWN}}" for each in table.primary_key)


def _first_of(connection: Connection, table: Table, faults: list[tuple[Column[Any], str, ColumnElement[bool]]]) -> str:
    place = case(*((condition, number) for number, (_, _, condition) in enumerate(faults)))
    row = connection.execute(
        select(place, *(type_coerce(column, NullType()) for column in table.columns))
        .where(or_(*(condition for _, _, condition in faults)))
        .limit(1)
    ).first()
    if row is None:
        return ""
    column, requirement, _ = faults[row[0]]
    values = dict(zip((each.name for each in table.columns), row[1:], strict=True))
    value_text = f"{values[column.name]!r:.{MAX_SHOWN}}"
    return f"table {table.name}, row {_key_words(table, values)}: {column.name} must be {requirement}, got {value_text}"


def _faults(column: Column[Any], dialect: str) -> Iterator[tuple[Column[Any], str, ColumnElement[bool]]]:
    """Conditions on values that Evaldesk never writes into the column, each with what is wanted."""
    kind = column.type.impl if isinstance(column.type, TypeDecorator) else column.type
    raw = type_coerce(column, NullType())
    requirement, types = _requirement(kind)
    if dialect == "sqlite":  # whose columns take values of any type
        if not column.nullable:
            yield column, requirement, column.is_(None)
        yield column, requirement, func.typeof(raw).not_in((*types, "null"))
        if isinstance(kind, DateTime):
            yield (
                column,
                requirement,
                raw.is_not(None) & (not_(raw.op("GLOB")(_MOMENT)) | func.julianday(raw).is_(None)),
            )
    if isinstance(kind, Boolean):
        if dialect == "sqlite":
            yield column, requirement, raw.not_in((0, 1))
    elif isinstance(kind, Integer):
        lowest = -1 if column.name == "turn" else 0
        yield column, f"a whole number from {lowest} to 2**53", not_(raw.between(lowest, MAX_NUMBER))
    elif isinstance(kind, Float):
        yield column, "a number from -2**106 to 2**106", not_(raw.between(-_LARGEST, _LARGEST))
    if column is RUN_CASE.c.strip:
        other = raw.op("GLOB")(f"*[^{_STRIP}]*") if dialect == "sqlite" else raw.op("~")(f"[^{_STRIP}]")
        yield column, f"of the letters {_STRIP}", other
        n_trials = select(func.count()).where(
            TRIAL.c.run_id == RUN_CASE.c.run_id,
            TRIAL.c.case_index == RUN_CASE.c.case_index,
            TRIAL.c.trial_index < func.length(RUN_CASE.c.strip),
        )
        yield column, "of one letter for each trial", func.length(RUN_CASE.c.strip) != n_trials.scalar_subquery()
    if choices := _CHOICES.get((column.table.name, column.name)):
        yield column, f"one of {', '.join(choices)}", raw.not_in(choices)


def _requirement(kind: Any) -> tuple[str, tuple[str, ...]]:
    """The type in words, and the storage classes of SQLite for it."""
    if isinstance(kind, LargeBinary):
        return "bytes", ("blob",)
    if isinstance(kind, DateTime):
        return "a moment (2026-11-28 12:00:00)", ("text",)
    if isinstance(kind, Boolean | Integer):
        return "a whole number", ("integer",)
    if isinstance(kind, Float):
        return "a number", ("real", "integer")
    return "text", ("text",)
