"""The steps by which people change findings, modes and readings: each can be undone as a whole."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model.failures import FindingDraft, FindingSource, FindingStatus, UndoneStep
from evaldesk.store.database import StorePart
from evaldesk.store.tables.columns import at
from evaldesk.store.tables.failures import CODEBOOK_STEP, FINDING, MODE, PROPOSED_MERGE, READING
from evaldesk.store.tables.runs import RUN, TRIAL, VISIBLE

UNDO_DAYS = 30
_TABLES: Mapping[str, Table] = {table.name: table for table in (MODE, FINDING, READING, PROPOSED_MERGE)}
Rows = Sequence[tuple[str, dict[str, Any], dict[str, Any] | None]]
"""The table, the key and the values before a step: None of a row that was not there."""


@contextmanager
def begun_step(store: StorePart, author: str) -> Iterator[Step]:
    """A step of a person, in one transaction; it is stored when it is closed."""
    with store._database.writing() as connection:
        yield Step(connection, author, store._clock())


class Step:
    """The changes of a verb: the old values of each row, and the modes in use."""

    def __init__(self, connection: Connection, author: str, now: datetime) -> None:
        self.connection, self._author, self._now = connection, author, now
        self._before: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {}
        self._uses: set[int] = set()

    def note_new_row(self, table: Table, key: dict[str, Any]) -> None:
        """Remember a row that was not there."""
        self._before[json.dumps([table.name, key])] = (table.name, key, None)

    def change(self, table: Table, key: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Change some values of a row."""
        columns = [table.c[name] for name in values]
        row = self.connection.execute(select(*columns).where(*at(table, key))).one()
        _, _, values_before = self._before.setdefault(json.dumps([table.name, key]), (table.name, key, {}))
        if values_before is not None:
            values_before.update(
                {name: each for name, each in _row_as_json(row._mapping).items() if name not in values_before}
            )
        self.connection.execute(update(table).where(*at(table, key)).values(values))

    def remove(self, table: Table, key: dict[str, Any]) -> None:
        """Remove a row."""
        row = self.connection.execute(select(table).where(*at(table, key))).one()
        self._before[json.dumps([table.name, key])] = (table.name, key, _row_as_json(row._mapping))
        self.connection.execute(delete(table).where(*at(table, key)))

    def use(self, mode_id: int) -> None:
        """Remember that the step needs a mode, whose creation cannot be undone before it."""
        self._uses.add(mode_id)

    def close(self, kind: str, words: str) -> None:
        """Store the step, with which it can be undone."""
        before = json.dumps({"rows": [*self._before.values()], "uses": sorted(self._uses)}, ensure_ascii=False)
        values = {"kind": kind, "words": words, "author": self._author, "taken_at": self._now, "before": before}
        self.connection.execute(insert(CODEBOOK_STEP).values(values | {"is_undone": False}))

    def add(self, draft: FindingDraft, author: str) -> int:
        """Store a finding of a person. Raises NotFoundError when there is no such trial."""
        finding_id = insert_finding(self.connection, draft, author, "person", "counted", self._now)
        self.note_new_row(FINDING, {"id": finding_id})
        return finding_id

    def mark_read(self, place: Any, reader: str, *, is_clear: bool) -> None:
        """Note that a person read the trial of a row, and found nothing wrong in it where it `is_clear`."""
        key = place_of(place) | {"reader": reader}
        row = self.connection.execute(select(READING).where(*at(READING, key))).first()
        if row is None:
            self.connection.execute(insert(READING).values(key | {"is_clear": is_clear, "read_at": self._now}))
            self.note_new_row(READING, key)
        elif row.is_clear != is_clear:
            self.change(READING, key, {"is_clear": is_clear})

    def create_mode(self, **texts: Any) -> int:
        """Create a mode. Raises UsageError when its name is in use."""
        if texts.get("retired_at") is None:
            check_name(self.connection, texts["name"])
        values = {"definition": "", "example_yes": "", "example_no": "", "created_at": self._now} | texts
        values["folded"] = folded_name(texts["name"])
        mode_id: int = self.connection.execute(insert(MODE).values(values).returning(MODE.c.id)).scalar_one()
        self.note_new_row(MODE, {"id": mode_id})
        return mode_id

    def named_mode(self, name: str, **others: Any) -> int:
        """The mode with that name; it is created where there is none."""
        mode_id: int | None = self.connection.scalar(select(MODE.c.id).where(*in_use(name, others.get("retired_at"))))
        return mode_id or self.create_mode(name=name, **others)

    def check_usable(self, mode_id: int, run_id: int) -> None:
        """Raise where the mode is out of use; a fixed one is reopened by a later run."""
        active_mode(self.connection, mode_id)
        self.use(mode_id)
        self.reopen(mode_id, run_id)

    def reopen(self, mode_id: int, run_id: int) -> None:
        """Reopen a mode that was fixed before the run, which shows it."""
        row = mode_row(self.connection, mode_id)
        if row.fixed_in is not None and row.reopened_in is None and run_id >= row.fixed_in:
            self.change(MODE, {"id": mode_id}, {"reopened_in": run_id})


def insert_finding(
    connection: Connection,
    draft: FindingDraft,
    author: str,
    source: FindingSource,
    status: FindingStatus,
    now: datetime,
) -> int:
    """Store a finding. Raises NotFoundError when there is no such trial."""
    check_trial(connection, draft)
    values = asdict(draft) | asdict(draft.anchor) | {"author": author, "source": source, "status": status}
    values["created_at"] = draft.created_at or now
    del values["anchor"]
    finding_id: int = connection.execute(insert(FINDING).values(values).returning(FINDING.c.id)).scalar_one()
    return finding_id


def undo(connection: Connection, author: str, step_id: int | None, now: datetime) -> UndoneStep:
    """Undo the last step of a person, up to 30 days old, or the named one.

    Raises NotFoundError when there is none, ConflictError when the same was changed by a step since.
    """
    c = CODEBOOK_STEP.c
    mine = [c.author == author, c.is_undone.is_(False), *([] if step_id is None else [c.id == step_id])]
    row = connection.execute(select(CODEBOOK_STEP).where(*mine).order_by(c.id.desc()).limit(1)).first()
    if row is None or row.taken_at < now - timedelta(days=UNDO_DAYS):
        raise NotFoundError("nothing to undo")
    rows: Rows = json.loads(row.before)["rows"]
    later = connection.execute(
        select(c.before, c.words, c.author).where(c.id > row.id, c.is_undone.is_(False)).order_by(c.id)
    )
    new_mode_ids = {key["id"] for name, key, values in rows if name == MODE.name and values is None}
    for other in later:
        step = json.loads(other.before)
        if _keys(rows) & _keys(step["rows"]) or new_mode_ids & set(step["uses"]):
            raise ConflictError(f"{other.author} changed the same since: {other.words}; nothing was undone")
    _restore(connection, rows)
    connection.execute(update(CODEBOOK_STEP).where(c.id == row.id).values(is_undone=True))
    return UndoneStep(row.kind, row.words)


def last_step(
    connection: Connection, author: str, since: datetime, trials: Collection[tuple[int, int, int]]
) -> tuple[int, tuple[int, int, int]] | None:
    """The newest step of a person after `since` that touched the findings or the reading of one of these trials.

    A trial is (run, case, index). Gives the step and the trial; None where there is no such step.
    """
    c = CODEBOOK_STEP.c
    mine = select(c.id, c.before).where(c.author == author, c.is_undone.is_(False), c.taken_at > since)
    for row in connection.execute(mine.order_by(c.id.desc())).all():
        for touched in _trials_of_step(connection, json.loads(row.before)["rows"]):
            if touched in trials:
                return row.id, touched
    return None


def _restore(connection: Connection, rows: Rows) -> None:
    for name, key, values in rows:
        table = _TABLES[name]
        is_there = connection.execute(select(*table.primary_key).where(*at(table, key))).first() is not None
        if values is None:
            connection.execute(delete(table).where(*at(table, key)))
        elif is_there and values:
            connection.execute(update(table).where(*at(table, key)).values(_parse_times(values)))
        elif not is_there and "run_id" in values and has_trial(connection, values):
            connection.execute(insert(table).values(_parse_times(values)))
    for name, key, values in rows:
        if name == MODE.name and values:
            row = mode_row(connection, key["id"])
            if row.merged_into is None and row.retired_at is None:
                check_name(connection, row.name, row.id)


def _trials_of_step(connection: Connection, rows: Rows) -> list[tuple[int, int, int]]:
    """The trials of a step: from its rows, and from findings that it made or changed."""
    ids = [key["id"] for name, key, _ in rows if name == FINDING.name]
    findings = connection.execute(select(FINDING).where(FINDING.c.id.in_(ids))).all() if ids else []
    row_values = [key | (values or {}) for _, key, values in rows]
    places = [*map(place_of, findings), *(each for each in row_values if "trial_index" in each)]
    return [(each["run_id"], each["case_index"], each["trial_index"]) for each in places]


def _keys(rows: Rows) -> set[str]:
    return {json.dumps([name, key]) for name, key, _ in rows}


def _row_as_json(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): each.isoformat() if isinstance(each, datetime) else each for name, each in row.items()}


def _parse_times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: datetime.fromisoformat(each) if each and name.endswith("at") else each for name, each in row.items()}


def place_of(row: Any) -> dict[str, int]:
    """The trial of a row, by its columns."""
    return {"run_id": row.run_id, "case_index": row.case_index, "trial_index": row.trial_index}


def has_trial(connection: Connection, row: Mapping[str, Any]) -> bool:
    """Whether the trial of the row is there, in a run that can be seen."""
    place = {name: row[name] for name in ("run_id", "case_index", "trial_index")}
    trial = select(TRIAL.c.run_id).join(RUN, RUN.c.id == TRIAL.c.run_id).where(*at(TRIAL, place), VISIBLE)
    return connection.execute(trial).first() is not None


def check_trial(connection: Connection, place: FindingDraft) -> None:
    """Raise NotFoundError where the trial of a finding is not there."""
    if not has_trial(connection, place_of(place)):
        raise NotFoundError(f"run {place.run_id} has no trial {place.trial_index + 1} of case {place.case_index + 1}")


def check_name(connection: Connection, name: str, but: int | None = None) -> None:
    """Raise UsageError where another mode in use has the name; `but` is the mode itself."""
    others = [] if but is None else [MODE.c.id != but]
    if connection.execute(select(MODE.c.id).where(*in_use(name), *others)).first():
        raise UsageError(f"“{name}” is in use; choose another name, or merge the two.", field="name")


def in_use(name: str, retired_at: datetime | None = None) -> list[Any]:
    """The conditions of the mode in use with this name, or of the mode retired at that time."""
    return [MODE.c.folded == folded_name(name), MODE.c.retired_at == retired_at, MODE.c.merged_into.is_(None)]


def mode_row(connection: Connection, mode_id: int) -> Any:
    """The row of a mode. Raises NotFoundError."""
    row = connection.execute(select(MODE).where(MODE.c.id == mode_id)).first()
    if row is None:
        raise NotFoundError(f"there is no kind of failure {mode_id}")
    return row


def active_mode(connection: Connection, mode_id: int) -> Any:
    """The row of a mode in use. Raises NotFoundError, and ConflictError for a merged or retired mode."""
    row = mode_row(connection, mode_id)
    if row.merged_into is not None:
        into = mode_row(connection, row.merged_into).name
        raise ConflictError(f"“{row.name}” was merged into “{into}” meanwhile; use “{into}”, or undo the merge")
    if row.retired_at is not None:
        raise ConflictError(f"“{row.name}” was retired meanwhile; choose another kind of failure, or undo that")
    return row


def folded_name(name: str) -> str:
    """A name as names are compared: composed, without case and without double spaces."""
    return " ".join(unicodedata.normalize("NFC", name).casefold().split())
