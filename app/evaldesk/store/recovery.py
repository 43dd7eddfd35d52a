"""The readable rows of a damaged database fill a new one, which takes its place; the damaged file is kept aside.

A marker beside the database names the folder of the damaged file from the first step to the last, and no process opens
the database while it is there. Every step may be killed: the next call goes on after the last whole one.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import zstandard
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    LargeBinary,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from evaldesk.durable_files import (
    create_file,
    is_same_file,
    make_folder,
    move_file,
    remove_file,
    remove_leftovers,
    replace_file,
)
from evaldesk.errors import EvaldeskError, WorkspaceError
from evaldesk.model import Case, ErrorRecord, Event, Prompts, RunConfig, Score, TrialResult, TurnRecord
from evaldesk.model.comparison import Baseline
from evaldesk.model.conclusion import counted, plural
from evaldesk.paths import is_read_only
from evaldesk.store.backups import Backup, backups_of, copy_database
from evaldesk.store.damaged_rows import DamagedRows, Row, Value
from evaldesk.store.database import FIRST_TABLES, Clock, execute_many, utc_now
from evaldesk.store.runs import planning, trash
from evaldesk.store.runs.facets import add_some_facets, forget_facets
from evaldesk.store.runs.recording import (
    outcome,
    record,
    scores,
    storable_rows,
    transcript_row,
    trial_key,
)
from evaldesk.store.runs.recounting import add_totals, recount
from evaldesk.store.runs.run_store import imported_agent, is_playable
from evaldesk.store.runs.totals import recount_labels
from evaldesk.store.sqlite import ask_for, writing_engine
from evaldesk.store.store import HEAD, alone_in, create, repair_marker
from evaldesk.store.tables import METADATA, NUMBERED
from evaldesk.store.tables.columns import UtcTime, at, unpack
from evaldesk.store.tables.failures import FINDING
from evaldesk.store.tables.imports import IMPORT_RECORD, IMPORT_RUN
from evaldesk.store.tables.queues import QUEUE_ITEM
from evaldesk.store.tables.runs import (
    CASE_SNAPSHOT,
    LISTED,
    N_OF_CASE,
    RUN,
    RUN_CASE,
    RUN_SOURCE,
    SCORE,
    TRANSCRIPT,
    TRIAL,
    VISIBLE,
)
from evaldesk.store.tables.sessions import SESSION, SESSION_TURN
from evaldesk.wire import from_json

REASON = "The database was damaged; resume to play the trials again that were lost."
LOST_OPTIONS = "The database was damaged: the options and criteria of this run are lost."
_NAME = re.compile(r"damaged-[0-9a-f]{8}")
_NEW, _REPORT, _COPY = "recovered.db", "recovered.txt", "readable.db"
_PARTS = ("-wal", "-shm", "-journal", "")
_MADE_AGAIN = ("last_run", "case_facet", "case_metric", "error_group", "run_metric", "run_outcome", "label_total")
_COPIED = [name for name in METADATA.tables if name not in _MADE_AGAIN]
"""The others are made again from these."""
_COUNTED = ("run_case", "trial", "session_turn")
"""Of these a run or a chat says how many there are."""
_PACKED: dict[str, Any] = {
    "run_baseline": Baseline,
    "case_snapshot": Case,
    "transcript": TrialResult,
    "trial_prompts": Prompts,
    "session_turn": TurnRecord,
    "turn_prompts": Prompts,
    "open_turn_events": tuple[Event, ...],
}
_NOUNS = {
    "run": "run",
    "run_case": "case",
    "trial": "trial",
    "score": "score",
    "trial_agent": "agent of a trial",
    "transcript": "transcript",
    "trial_prompts": "list of prompts",
    "label": "label",
    "finding": "finding",
    "mode": "mode",
    "reading": "reading",
    "proposed_merge": "proposed merge",
    "model_question": "model question",
    "session": "chat",
    "session_turn": "chat turn",
    "turn_prompts": "list of prompts of a chat turn",
    "open_turn": "unfinished chat turn",
    "import_record": "import",
}
_OF_RUNS = (("agent_id", "ix_run_agent_id_id"), ("evalset_id", "ix_run_evalset_id_id"))
"""The columns and indexes that hold the agent and the eval set of each run."""
_NAMED_BY: Mapping[str, Column[Any]] = {
    "run": RUN_CASE.c.run_id,
    "import_record": IMPORT_RUN.c.import_id,
    "mode": FINDING.c.mode_id,
    "queue": QUEUE_ITEM.c.queue_id,
}
"""The columns that tell of rows that are lost."""
_OF_CASES = (CASE_SNAPSHOT, RUN_CASE)
"""The tables with a row for each case of a run."""
_SHARED_LOCK = (510, 0x40000002)
"""The bytes that SQLite locks in a file as long as a connection to it is open."""
_UNREADABLE = (EvaldeskError, ValueError, TypeError, RecursionError, msgspec.MsgspecError, zstandard.ZstdError)
_ROWS_AT_ONCE = 500
_BYTES_AT_ONCE = 2**20


# A marker keeps every process out from the first step to the last: decision 079.
def recover(path: Path) -> str:
    """Replace a damaged database by a new one with all readable rows; returns a report of kept and lost rows.

    Finishes a recovery that was killed. Raises WorkspaceError while another process has the database open, and when it
    holds nothing of Evaldesk.
    """
    if is_read_only(path):
        raise WorkspaceError(f"{path.parent} is read-only; copy the workspace to a place that can be written")
    marker = repair_marker(path)
    with alone_in(path.parent):
        aside = _aside(marker) if marker.exists() else None
        if aside is None or not _is_in_place(aside):
            try:
                aside = _rebuild(path, aside)
            except WorkspaceError:
                _remove_begun(path)
                raise
        remove_file(marker)
        _remove_parts(aside / _COPY)
        _remove_begun(path)
        for folder in (path.parent, aside):
            remove_leftovers(folder)
        return (aside / _REPORT).read_text("utf-8")


def restore(path: Path, backup: Backup) -> str:
    """Put a backup in the place of the database, which is kept aside; gives a sentence.

    A restore that was killed is finished by `recover`. Raises WorkspaceError while another process has it open.
    """
    if is_read_only(path):
        raise WorkspaceError(f"{path.parent} is read-only; copy the workspace to a place that can be written")
    marker = repair_marker(path)
    with alone_in(path.parent):
        if marker.exists():
            raise WorkspaceError(f"a repair of {path} is not finished; `evaldesk doctor --repair` finishes it")
        if not path.exists():
            raise WorkspaceError(f"{path} is missing; copy {backup.path} to its place")
        with _lock_alone(path):
            create_file(marker, f"damaged-{secrets.token_hex(4)}".encode(), mode=0o600)
            aside = _aside(marker)
            make_folder(aside)
            aside.chmod(0o700)
            _move_aside(path, aside)
            copy_database(backup.path, aside / _NEW)
            report = (
                f"The backup of {backup.made_at:%Y-%m-%d %H:%M} UTC is in the place of {path}. Rows that were written "
                f"after it are only in {aside / path.name}, which is kept."
            )
            replace_file(aside / _REPORT, report.encode(), mode=0o600)
            _put_in_place(path, aside)
        remove_file(marker)
        return report


def _is_in_place(aside: Path) -> bool:
    """Whether all but the removal of the marker is done."""
    return (aside / _REPORT).exists() and not (aside / _NEW).exists()


def _rebuild(path: Path, aside: Path | None) -> Path:
    """Take the steps that are left of a repair; gives the folder of the damaged file, None before the first step."""
    is_moved = aside is not None and (aside / path.name).exists()
    with _lock_alone(aside / path.name if aside and is_moved else path) as handle:
        is_new = aside is None
        aside = aside or path.with_name(f"damaged-{secrets.token_hex(4)}")
        make_folder(aside)
        aside.chmod(0o700)
        if not (aside / _REPORT).exists():
            log = _log(aside / path.name if is_moved else path)
            with _readable_copy(handle, log, aside) as damaged:
                if is_new:
                    _check_ours(path, damaged)
                    create_file(repair_marker(path), aside.name.encode(), mode=0o600)
                _move_aside(path, aside)
                _make_new(path, aside, damaged)
        _put_in_place(path, aside)
    return aside


@contextmanager
def _readable_copy(handle: int, log: bytes, folder: Path) -> Iterator[DamagedRows]:
    """A copy of the damaged file and its log, which SQLite may open: closing the file itself would end the lock."""
    copy = folder / _COPY
    _remove_parts(copy)
    try:
        with copy.open("xb") as file:
            place = 0
            while part := os.pread(handle, _BYTES_AT_ONCE, place):
                file.write(part)
                place += len(part)
        copy.with_name(f"{_COPY}-wal").write_bytes(log)
        with DamagedRows(copy) as damaged:
            yield damaged
    finally:
        _remove_parts(copy)


def _remove_parts(database: Path) -> None:
    for part in _PARTS:
        remove_file(database.with_name(database.name + part))


def _remove_begun(path: Path) -> None:
    """Remove the folders of repairs that were killed before their marker: they hold a copy at most."""
    for folder in path.parent.glob("damaged-*"):
        if _NAME.fullmatch(folder.name) and not (folder / path.name).exists():
            _remove_parts(folder / _COPY)
            with suppress(OSError):  # it holds something else
                folder.rmdir()


def _aside(marker: Path) -> Path:
    name = marker.read_bytes()[:100].decode("ascii", "replace")
    if not _NAME.fullmatch(name):
        raise WorkspaceError(f"{marker} names no folder of a repair; remove it, and run the command again")
    return marker.with_name(name)


@contextmanager
def _lock_alone(path: Path) -> Iterator[int]:
    """A database that no other process has open, nor can open meanwhile.

    No second handle of the file may be closed in the block: that would end the lock.
    """
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        try:
            # SQLite's own lock bytes (lockf, not flock, as SQLite uses): decision 079.
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, *_SHARED_LOCK)
        except OSError as error:
            raise WorkspaceError(f"{path} is open in another process; end every evaldesk that uses it") from error
        yield handle
    finally:
        os.close(handle)


def _log(path: Path) -> bytes:
    log = path.with_name(f"{path.name}-wal")
    return log.read_bytes() if log.is_file() else b""


def _check_ours(path: Path, damaged: DamagedRows) -> None:
    """Raise WorkspaceError for a database without a readable table of ours, and for one of a newer version."""
    if not set(damaged.tables) & FIRST_TABLES - {"alembic_version"}:
        if backups := backups_of(path, utc_now()):
            way = f"`evaldesk doctor --restore {backups[0].name}` puts the newest backup in its place"
        else:
            way = "put a backup in its place, or move it away to begin anew"
        raise WorkspaceError(f"no table of Evaldesk can be read in {path}; {way}")
    revision = damaged.revision() or HEAD
    if revision > HEAD:
        raise WorkspaceError(f"{path} was written by a newer Evaldesk (revision {revision}); install that version")


def _move_aside(path: Path, aside: Path) -> None:
    """Move the damaged file after its log, so that a file in place never lacks it."""
    for part in _PARTS:
        source = path.with_name(path.name + part)
        if source.exists() and (not (aside / path.name).exists() or is_same_file(source, aside / source.name)):
            move_file(source, aside / source.name)


def _put_in_place(path: Path, aside: Path) -> None:
    for part in _PARTS[:-1]:
        remove_file(path.with_name(path.name + part))
    if path.exists() and not path.stat().st_size:
        remove_file(path)
    move_file(aside / _NEW, path)


def _make_new(path: Path, aside: Path, damaged: DamagedRows) -> None:
    new_file = aside / _NEW
    _remove_parts(new_file)
    try:
        result = _fill(new_file, damaged)
    except (sqlite3.Error, SQLAlchemyError) as error:
        reason = getattr(error, "orig", None) or error
        raise WorkspaceError(
            f"{new_file} cannot be written: {reason}; free some space and run the command again"
        ) from error
    report = f"{path} was damaged and is kept as {aside / path.name}. {result}"
    replace_file(aside / _REPORT, report.encode(), mode=0o600)


def _fill(new_file: Path, damaged: DamagedRows) -> str:
    create(new_file)
    engine = writing_engine(new_file, foreign_keys="OFF")
    try:
        with engine.begin() as connection:
            result = _Recovery(connection, damaged).fill()
        ask_for(engine, "wal_checkpoint(TRUNCATE)")
    finally:
        engine.dispose()
    return result


class _Recovery:
    """The rows of a damaged database on their way into a new one, with their counts."""

    def __init__(self, connection: Connection, damaged: DamagedRows) -> None:
        self._connection = connection
        self._damaged = damaged
        self._n_read: Counter[str] = Counter()
        self._n_missing: Counter[str] = Counter()
        self._n_bare_runs = 0
        self._stand_ins: set[tuple[int, int]] = set()

    def fill(self) -> str:
        """Fill the new database and count its totals; returns a report of kept and lost rows."""
        for name in _COPIED:
            self._insert(METADATA.tables[name])
        self._rebuild_runs()
        self._keep_ids()
        self._rebuild_cases()
        self._stand_in()
        self._rebuild_trials()
        self._drop_orphans()
        self._count_missing()
        n_kept = Counter({name: self._count(table) for name, table in METADATA.tables.items()})
        n_kept.subtract({"run_case": self._n_missing["run_case"], "case_snapshot": len(self._stand_ins)})
        self._plan_missing_trials()
        self._replace_transcripts()
        self._close_gaps()
        self._count_again()
        lost_parts = [f"the options of {counted(self._n_bare_runs, 'run')}"] if self._n_bare_runs else []
        return _sentences(n_kept, self._n_lost(n_kept), self._damaged.n_gaps, lost_parts)

    def _keep_ids(self) -> None:
        """Reserve the numbers of lost rows: other rows, steps to undo and judges name them."""
        last_ids = self._damaged.last_ids()
        for table in NUMBERED:
            id_columns = [table.c.id, *([_NAMED_BY[table.name]] if table.name in _NAMED_BY else [])]
            highest_ids = [self._connection.scalar(select(func.max(column))) or 0 for column in id_columns]
            if last := max(last_ids.get(table.name, 0), *highest_ids):
                self._connection.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
                self._connection.exec_driver_sql("INSERT INTO sqlite_sequence VALUES (?, ?)", (table.name, last))

    def _insert(self, table: Table) -> None:
        statement = str(insert(table).prefix_with("OR IGNORE").compile(self._connection))
        rows_left = self._damaged.rows(table)
        while rows := list(islice(rows_left, _ROWS_AT_ONCE)):
            self._n_read[table.name] += len(rows)
            if sound_rows := [row for row in rows if _is_sound(table, row)]:
                self._connection.exec_driver_sql(statement, sound_rows)

    def _rebuild_runs(self) -> None:
        """Make lost runs from their cases and the indexes, as if they came in a file: their options are gone."""
        agents, evalsets = (self._damaged.column_of_index(RUN, *place) for place in _OF_RUNS)
        run_ids = set(self._connection.scalars(select(RUN.c.id)))
        for run_id in sorted(agents.keys() & evalsets.keys() - run_ids):
            lasts = (select(func.max(each.c.case_index)).where(each.c.run_id == run_id) for each in _OF_CASES)
            last_trial = select(func.max(TRIAL.c.trial_index), func.min(TRIAL.c.recorded_at))
            n_before, began = self._connection.execute(last_trial.where(TRIAL.c.run_id == run_id)).one()
            last_indexes = [last for each in lasts if (last := self._connection.scalar(each)) is not None]
            if not last_indexes or n_before is None:
                continue
            config = RunConfig(imported_agent(agents[run_id]), evalsets[run_id], n=n_before + 1, criteria=())
            at = began or utc_now()
            new_id = planning.insert_run(self._connection, config, [config.n] * (max(last_indexes) + 1), at, "")
            values = {"id": run_id, "status": "finished", "finished_at": at, "reason": LOST_OPTIONS}
            self._connection.execute(update(RUN).where(RUN.c.id == new_id).values(values))
            self._n_bare_runs += 1
        older = {"n_least": RUN.c.n, "n_trials": RUN.c.n * RUN.c.n_cases}  # from before cases could differ
        self._connection.execute(update(RUN).where(RUN.c.n_least == 0).values(older))

    def _rebuild_cases(self) -> None:
        """Make lost rows of cases from their stored contents, or from another run of the same case.

        Where cases have different numbers of trials, a lost one has the remaining trials.
        """
        here = (RUN_CASE.c.run_id == CASE_SNAPSHOT.c.run_id) & (RUN_CASE.c.case_index == CASE_SNAPSHOT.c.case_index)
        of_run = (RUN.c.id == CASE_SNAPSHOT.c.run_id) & CASE_SNAPSHOT.c.case_index.between(0, RUN.c.n_cases - 1)
        self._connection.execute(delete(CASE_SNAPSHOT).where(~exists().where(of_run), ~exists().where(here)))
        snapshots = select(CASE_SNAPSHOT, RUN.c.n, RUN.c.n_least).join(RUN, RUN.c.id == CASE_SNAPSHOT.c.run_id)
        for row in self._connection.execute(snapshots.where(~exists().where(here).correlate(CASE_SNAPSHOT))).all():
            case = unpack(row.codec, row.data, Case)
            own = (TRIAL.c.run_id == row.run_id) & (TRIAL.c.case_index == row.case_index)
            n = row.n if row.n == row.n_least else min(row.n, max(row.n_least, self._count(TRIAL, own)))
            case_row = {"run_id": row.run_id} | planning.case_rows(row.case_index, case, n)[0]
            self._connection.execute(insert(RUN_CASE), [case_row])
        twin = RUN_CASE.alias()
        of_twin = (CASE_SNAPSHOT.c.run_id == twin.c.run_id) & (CASE_SNAPSHOT.c.case_index == twin.c.case_index)
        own = CASE_SNAPSHOT.alias()
        has_own = exists().where(own.c.run_id == RUN_CASE.c.run_id, own.c.case_index == RUN_CASE.c.case_index)
        same = (
            select(RUN_CASE.c.run_id, RUN_CASE.c.case_index, CASE_SNAPSHOT.c.codec, CASE_SNAPSHOT.c.data)
            .join(twin, (twin.c.digest == RUN_CASE.c.digest) & (twin.c.case_id == RUN_CASE.c.case_id))
            .join(CASE_SNAPSHOT, of_twin)
            .where(~has_own)
            .group_by(RUN_CASE.c.run_id, RUN_CASE.c.case_index)
        )
        names = ["run_id", "case_index", "codec", "data"]
        self._connection.execute(insert(CASE_SNAPSHOT).from_select(names, same))

    def _stand_in(self) -> None:
        """Give a lost case, or one whose content is lost, a stand-in without turns: the others keep their numbers."""
        for run in self._connection.execute(select(RUN)).all():
            cases = select(RUN_CASE.c.case_index, RUN_CASE.c.case_id).where(RUN_CASE.c.run_id == run.id)
            ids_by_index = {row.case_index: row.case_id for row in self._connection.execute(cases)}
            snapshot_indexes = select(CASE_SNAPSHOT.c.case_index).where(CASE_SNAPSHOT.c.run_id == run.id)
            missing_indexes = set(range(run.n_cases)) - ids_by_index.keys()
            if run.deleted_at and missing_indexes == set(range(len(missing_indexes))):
                missing_indexes = set()  # its removal for good had begun
            for index in sorted(
                missing_indexes | (ids_by_index.keys() - set(self._connection.scalars(snapshot_indexes)))
            ):
                case = Case(ids_by_index.get(index, f"lost_{index}"))
                row, snapshot = planning.case_rows(index, case, run.n_least)
                if index in missing_indexes:
                    self._connection.execute(insert(RUN_CASE), [{"run_id": run.id} | row])
                self._connection.execute(insert(CASE_SNAPSHOT), [{"run_id": run.id} | snapshot])
                self._stand_ins.add((run.id, index))
            self._n_missing["run_case"] += len(missing_indexes)

    def _rebuild_trials(self) -> None:
        """Make lost rows of trials and scores from the transcripts, which hold the whole result."""
        key = [TRANSCRIPT.c[name] for name in ("run_id", "case_index", "trial_index")]
        here = [TRIAL.c[column.name] == column for column in key]
        transcripts = select(*key, func.max(TRANSCRIPT.c.attempt).label("attempt")).group_by(*key)
        lost_trials = self._connection.execute(transcripts.where(~exists().where(*here).correlate(TRANSCRIPT))).all()
        for place in lost_trials:
            result = self._result(place)
            self._connection.execute(insert(TRIAL), [trial_key(result) | outcome(result)])
        if not (lost_trials or self._damaged.n_gaps["score"]):
            return
        is_counted = (TRIAL.c.attempt == TRANSCRIPT.c.attempt) & TRIAL.c.verdict.is_not(None)
        recorded_trials = select(*key, TRANSCRIPT.c.attempt).join(TRIAL, and_(*here)).where(is_counted)
        for place in self._connection.execute(recorded_trials).all():
            for row in scores(self._result(place)):
                self._connection.execute(insert(SCORE).prefix_with("OR IGNORE"), row)

    def _result(self, place: Any) -> TrialResult:
        own = at(TRANSCRIPT, place._mapping)
        row = self._connection.execute(select(TRANSCRIPT.c.codec, TRANSCRIPT.c.data).where(*own)).one()
        return replace(unpack(row.codec, row.data, TrialResult), **place._mapping)

    def _drop_orphans(self) -> None:
        for table in METADATA.sorted_tables:
            for key in table.foreign_key_constraints:
                parents = [element.column == element.parent for element in key.elements]
                is_there = exists().where(*parents).correlate(table)
                self._connection.execute(delete(table).where(~is_there))

    def _count_missing(self) -> None:
        """Count the trials and turns that shown runs and chats say that they have, and have not."""
        for run in self._connection.execute(select(RUN.c.id, RUN.c.n_trials).where(VISIBLE)).all():
            self._n_missing["trial"] += max(run.n_trials - self._count(TRIAL, TRIAL.c.run_id == run.id), 0)
        for chat in self._connection.execute(select(SESSION.c.id, SESSION.c.n_turns)).all():
            n_here = self._count(SESSION_TURN, SESSION_TURN.c.session_id == chat.id)
            self._n_missing["session_turn"] += max(chat.n_turns - n_here, 0)

    def _plan_missing_trials(self) -> None:
        """Plan lost trials again, but for those of stand-ins, which are errored.

        A run that was over is stopped, so that it can be resumed.
        """
        for run in self._connection.execute(select(RUN)).all():
            of_cases = self._connection.execute(
                select(RUN_CASE.c.case_index, N_OF_CASE).where(RUN_CASE.c.run_id == run.id)
            ).all()
            planned_trials = {(index, place) for index, n in of_cases for place in range(n)}
            trial_rows = select(TRIAL.c.case_index, TRIAL.c.trial_index).where(TRIAL.c.run_id == run.id)
            missing_trials = planned_trials - {tuple(row) for row in self._connection.execute(trial_rows)}
            rows = [planning.trial_row(run.id, *place) for place in sorted(missing_trials)]
            execute_many(self._connection, insert(TRIAL), rows)
            to_play = {index for index, _ in missing_trials} - {
                index for run_id, index in self._stand_ins if run_id == run.id
            }
            if to_play and run.status == "finished" and is_playable(from_json(run.config, RunConfig)):
                values = {"status": "stopped", "reason": REASON, "stop": None}
                self._connection.execute(update(RUN).where(RUN.c.id == run.id).values(values))
        for run_id, index in sorted(self._stand_ins):
            unplayed_trials = select(TRIAL.c.trial_index, TRIAL.c.attempt).where(TRIAL.c.verdict.is_(None))
            own = unplayed_trials.where(TRIAL.c.run_id == run_id, TRIAL.c.case_index == index)
            error = ErrorRecord("lost", "the case was lost with a damaged database")
            results = [
                TrialResult(run_id, index, trial, "errored", "errored", attempt=attempt, error=error)
                for trial, attempt in self._connection.execute(own).all()
            ]
            if results:
                record(self._connection, storable_rows(results), Clock(utc_now, monotonic))

    def _replace_transcripts(self) -> None:
        """Give a trial whose transcript is lost one without content, of its verdict and its scores."""
        key = ("run_id", "case_index", "trial_index")
        here = [TRANSCRIPT.c[name] == TRIAL.c[name] for name in (*key, "attempt")]
        scored_trials = select(TRIAL).where(TRIAL.c.verdict.is_not(None), ~exists().where(*here).correlate(TRIAL))
        for row in self._connection.execute(scored_trials).all():
            own = [SCORE.c[name] == row._mapping[name] for name in key]
            values = self._connection.execute(select(SCORE).where(*own)).all()
            result = TrialResult(
                row.run_id,
                row.case_index,
                row.trial_index,
                row.status,
                row.verdict,
                attempt=row.attempt,
                scores=tuple(Score(each.metric, each.value, None, None, each.passed, "") for each in values),
                error=ErrorRecord(row.error_kind, row.error_message or "") if row.error_kind else None,
                duration_ms=row.duration_ms,
                logs="The transcript was lost with a damaged database.",
            )
            self._connection.execute(insert(TRANSCRIPT), [transcript_row(result)])

    def _close_gaps(self) -> None:
        """Number the turns of a chat again where one is lost, so that the chat goes on."""
        turns = SESSION_TURN.c
        for chat in self._connection.execute(select(SESSION.c.id, SESSION.c.n_turns)).all():
            own = select(turns.turn_index).where(turns.session_id == chat.id).order_by(turns.turn_index)
            turn_indexes = self._connection.scalars(own).all()
            if len(turn_indexes) == chat.n_turns:
                continue
            for index, old_index in enumerate(turn_indexes):
                at = (turns.session_id == chat.id) & (turns.turn_index == old_index)
                self._connection.execute(update(SESSION_TURN).where(at).values(turn_index=index))
            self._connection.execute(update(SESSION).where(SESSION.c.id == chat.id).values(n_turns=len(turn_indexes)))

    def _count_again(self) -> None:
        """Count all totals, name the last run of each case, and end imports that were under way."""
        for run_id in self._connection.scalars(select(RUN.c.id).order_by(RUN.c.id)).all():
            recount(self._connection, run_id)
            planning.count_planned(self._connection, run_id)
            forget_facets(self._connection, run_id)
            while add_some_facets(self._connection, run_id):
                pass
            while add_totals(self._connection, run_id):
                pass
        recount_labels(self._connection)
        is_played = ~exists().where(RUN_SOURCE.c.run_id == RUN.c.id).correlate(RUN)
        is_of_set = RUN.c.evalset_id.not_like(f"{planning.NO_EVALSET}%")
        played_runs = select(RUN.c.id).where(LISTED, is_played, is_of_set).order_by(RUN.c.id)
        for run_id in self._connection.scalars(played_runs).all():
            last = self._connection.scalar(select(func.max(RUN_CASE.c.case_index)).where(RUN_CASE.c.run_id == run_id))
            trash.name_last_run_of(self._connection, run_id, 0, (last or 0) + 1)
        going = (IMPORT_RECORD.c.status == "importing") & (IMPORT_RECORD.c.stage != "naming")
        end_values = {"status": "failed", "reason": "The database was damaged.", "finished_at": utc_now()}
        self._connection.execute(update(IMPORT_RECORD).where(going).values(end_values))

    def _n_lost(self, n_kept: Mapping[str, int]) -> Counter[str]:
        return +Counter({name: max(self._n_read[name] - n_kept[name], self._n_missing[name]) for name in _COPIED})

    def _count(self, table: Table, *conditions: ColumnElement[bool]) -> int:
        return self._connection.scalar(select(func.count()).select_from(table).where(*conditions)) or 0


def _sentences(n_kept: Mapping[str, int], n_lost: Counter[str], n_gaps: Counter[str], also_lost: Sequence[str]) -> str:
    kept_parts = [counted(n_kept[name], noun) for name, noun in _NOUNS.items() if n_kept[name]]
    lost_parts = [counted(n, _NOUNS.get(name, f"row of {name}")) for name, n in n_lost.items()]
    doubtful = [name for name in +n_gaps if name not in n_lost and name not in _COUNTED]
    lost_parts += [f"perhaps some {plural(_NOUNS[name])}" for name in doubtful if name in _NOUNS]
    if others := [name for name in doubtful if name not in _NOUNS]:
        lost_parts.append(f"perhaps some rows of {', '.join(others)}")
    lost_parts += also_lost
    return f"Recovered: {', '.join(kept_parts) or 'nothing'}. Lost: {', '.join(lost_parts) or 'nothing'}."


def _is_sound(table: Table, row: Row) -> bool:
    """Whether the values of a row, in the order of the columns, have the types of its columns and can be read."""
    if not all(map(_fits, table.columns, row)):
        return False
    try:
        _check_packed(table.name, dict(zip((column.name for column in table.columns), row, strict=True)))
    except _UNREADABLE:
        return False
    return True


def _fits(column: Column[Any], value: Value) -> bool:
    if value is None:
        return bool(column.nullable)
    if isinstance(column.type, UtcTime):
        return isinstance(value, str) and _is_time(value)
    if isinstance(column.type, Float):
        return isinstance(value, int | float)
    if isinstance(column.type, LargeBinary):
        return isinstance(value, bytes)
    return isinstance(value, int if isinstance(column.type, Integer | Boolean) else str)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_packed(name: str, row: Mapping[str, Any]) -> None:
    if name in _PACKED:
        unpack(row["codec"], row["data"], _PACKED[name])
    elif name == "run":
        from_json(row["config"], RunConfig)
    elif name == "session":
        from_json(row["initial_state"], object)
        from_json(row["state"], object)
