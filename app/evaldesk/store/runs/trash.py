"""Deleted runs: hidden, shown again, removed for good, and the runs that are the last of their cases meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    ScalarSelect,
    Select,
    bindparam,
    delete,
    exists,
    func,
    literal,
    select,
    text,
    update,
)

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.store import media, pinned_turns
from evaldesk.store.database import Clock, execute_many
from evaldesk.store.runs.planning import ACTIVE, ENDED, NO_EVALSET, set_status
from evaldesk.store.runs.recording import Values
from evaldesk.store.runs.run_queries import run_row
from evaldesk.store.tables.columns import upsert
from evaldesk.store.tables.experiments import EXPERIMENT
from evaldesk.store.tables.imports import IMPORT_RECORD, IMPORT_RUN
from evaldesk.store.tables.media import RUN_MEDIA
from evaldesk.store.tables.runs import (
    LAST_RUN,
    LISTED,
    RUN,
    RUN_CASE,
    RUN_SOURCE,
    SCORE,
    TRANSCRIPT,
    TRIAL,
    TRIAL_AGENT,
    TRIAL_PROMPTS,
    VISIBLE,
)

_MOST_CASES = 2**32
"""More cases than a run has."""
BEING_REMOVED = 2**31 - 1
"""The cases of a run, or turns of a chat, whose removal has begun: more than it has, so that it is not whole."""
N_MEASURED = 100
"""Transcripts that are measured to say about how many bytes all of a run take."""


def hide(connection: Connection, run_id: int, now: datetime) -> None:
    """Take a run out of every list; its rows stay in the trash. Raises ConflictError while it is going."""
    run = run_row(connection, run_id)
    if run.status in ACTIVE:
        raise ConflictError(f"run {run_id} is {run.status}; stop it before you delete it")
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(deleted_at=now))


def hidden_last_runs(connection: Connection) -> Sequence[int]:
    """The hidden runs that are still the last ones of some of their cases."""
    is_last = exists().where(LAST_RUN.c.run_id == RUN.c.id)
    return connection.scalars(select(RUN.c.id).where(~VISIBLE, is_last).order_by(RUN.c.id)).all()


def show_again(connection: Connection, run_id: int, clock: Clock) -> None:
    """Restore a run from the trash; a waiting one is stopped.

    Raises NotFoundError for a run that is not in the trash.
    """
    row = connection.execute(in_trash().where(RUN.c.id == run_id)).first()
    if row is None:
        raise NotFoundError(f"run {run_id} is not in the trash; it was restored or deleted for good")
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(deleted_at=None))
    if row.status not in ENDED:
        set_status(connection, run_id, "stopped", "It was in the trash; resume it to play the rest.", "", clock)
    is_scoring = connection.scalar(select(RUN_SOURCE.c.run_id).where(RUN_SOURCE.c.run_id == run_id)) is not None
    if not is_scoring and row.parent_run is None and not row.evalset_id.startswith(NO_EVALSET):
        name_last_run_of(connection, run_id, 0, row.n_cases)


def in_trash() -> Select[Any]:
    """The deleted runs that are whole: no case is removed yet, and none is part of an import that was never shown."""
    return select(RUN).where(~VISIBLE, RUN.c.id.not_in(_never_shown()), _n_stored_cases() == RUN.c.n_cases)


def n_bytes(connection: Connection, run_id: int) -> int:
    """The approximate size of a run's transcripts: the mean of the first ones, for every ended trial."""
    own = TRANSCRIPT.c.run_id == run_id
    first = select(func.length(TRANSCRIPT.c.data).label("n")).where(own).limit(N_MEASURED).subquery()
    mean = connection.scalar(select(func.avg(first.c.n))) or 0.0
    n_ended = RUN.c.n_passed + RUN.c.n_failed + RUN.c.n_errored + RUN.c.n_unscored
    return round(mean * (connection.scalar(select(n_ended).where(RUN.c.id == run_id)) or 0))


def remains(connection: Connection) -> Sequence[int]:
    """The hidden runs that nobody can restore: of imports that ended before they were shown, and partly removed."""
    has_ended = IMPORT_RECORD.c.status != "importing"
    is_partly_removed = RUN.c.id.not_in(_never_shown()) & (_n_stored_cases() < RUN.c.n_cases)
    rows = select(RUN.c.id).where(~VISIBLE, RUN.c.id.in_(_never_shown().where(has_ended)) | is_partly_removed)
    return connection.scalars(rows.order_by(RUN.c.id.desc())).all()  # the last number is given back first


def _never_shown() -> Select[Any]:
    imports = IMPORT_RUN.join(IMPORT_RECORD, IMPORT_RECORD.c.id == IMPORT_RUN.c.import_id)
    rows = select(IMPORT_RUN.c.run_id).select_from(imports)
    return rows.where(IMPORT_RECORD.c.status != "done", IMPORT_RECORD.c.stage != "naming")


def _n_stored_cases() -> ScalarSelect[int]:
    own = RUN_CASE.c.run_id == RUN.c.id
    return select(func.count()).select_from(RUN_CASE).where(own).correlate(RUN).scalar_subquery()


def delete_some(connection: Connection, run_id: int, n: int) -> bool:
    """Delete `n` trials of a hidden run with the cases before them, or `n` of the cases then left, or of its media.

    The run goes at last. False when done, and for a run that was restored meanwhile.
    """
    hidden_run = (RUN.c.id == run_id) & ~VISIBLE
    if not connection.execute(update(RUN).where(hidden_run).values(n_cases=BEING_REMOVED)).rowcount:
        return False
    trials = select(TRIAL.c.case_index, TRIAL.c.trial_index).where(TRIAL.c.run_id == run_id)
    some = connection.execute(trials.order_by(TRIAL.c.case_index, TRIAL.c.trial_index).limit(n)).all()
    if some:
        last = some[-1]
        for table in (TRIAL_PROMPTS, TRANSCRIPT, TRIAL_AGENT, SCORE, TRIAL):
            own = table.c
            before = (own.case_index < last.case_index) | (own.trial_index <= last.trial_index)
            connection.execute(delete(table).where(own.run_id == run_id, own.case_index <= last.case_index, before))
        deleted_cases = RUN_CASE.c.case_index < last.case_index
    else:
        cases = select(RUN_CASE.c.case_index).where(RUN_CASE.c.run_id == run_id).order_by(RUN_CASE.c.case_index)
        indexes = connection.scalars(cases.limit(n)).all()
        if not indexes:
            is_left = media.drop_some(connection, RUN_MEDIA, run_id, n)
            if not is_left:
                was_never_shown = connection.scalar(_never_shown().where(IMPORT_RUN.c.run_id == run_id)) is not None
                experiment_id = connection.scalar(select(RUN.c.experiment_id).where(RUN.c.id == run_id))
                connection.execute(delete(RUN).where(RUN.c.id == run_id))
                if experiment_id is not None:
                    _delete_if_empty(connection, experiment_id)
                pinned_turns.drop_unused(connection)
                if was_never_shown:
                    give_back_number(connection, run_id)
            return is_left
        deleted_cases = RUN_CASE.c.case_index <= indexes[-1]
    connection.execute(delete(RUN_CASE).where(RUN_CASE.c.run_id == run_id, deleted_cases))
    return True


def _delete_if_empty(connection: Connection, experiment_id: int) -> None:
    """Delete an experiment of which no run is left."""
    is_empty = ~exists().where(RUN.c.experiment_id == experiment_id)
    connection.execute(delete(EXPERIMENT).where(EXPERIMENT.c.id == experiment_id, is_empty))


def give_back_number(connection: Connection, run_id: int) -> None:
    """Reuse the number of a run that was never shown, where it was the last number."""
    if connection.dialect.name == "sqlite":
        last = "UPDATE sqlite_sequence SET seq = :before WHERE name = 'run' AND seq = :run_id"
        connection.execute(text(last), {"before": run_id - 1, "run_id": run_id})
        return
    numbers = "pg_get_serial_sequence('run', 'id')"
    connection.execute(  # a role that may not set the numbers skips one
        text(
            f"SELECT setval({numbers}, greatest(:run_id - 1, 1), :run_id > 1) FROM pg_sequences "  # noqa: S608
            f"WHERE {numbers} = schemaname || '.' || sequencename AND last_value = :run_id "
            f"AND has_sequence_privilege({numbers}, 'UPDATE')"
        ),
        {"run_id": run_id},
    )


def name_last_run_of(connection: Connection, run_id: int, first: int, end: int) -> None:
    """A run that is shown is the newest of its cases from `first` up to `end`, where no newer one played them."""
    place = func.max(RUN_CASE.c.case_index)
    cases = select(RUN.c.evalset_id, RUN_CASE.c.case_id, RUN.c.id, place).join(RUN_CASE, RUN_CASE.c.run_id == RUN.c.id)
    some = (RUN_CASE.c.case_index >= first) & (RUN_CASE.c.case_index < end)
    cases = cases.where(RUN.c.id == run_id, VISIBLE, some).group_by(RUN.c.evalset_id, RUN_CASE.c.case_id, RUN.c.id)
    last = upsert(connection.dialect.name, LAST_RUN)
    values = {"run_id": last.excluded.run_id, "case_index": last.excluded.case_index}
    last = last.from_select(["evalset_id", "case_id", "run_id", "case_index"], cases).on_conflict_do_update(
        index_elements=list(LAST_RUN.primary_key),
        set_=values,
        where=(LAST_RUN.c.run_id <= last.excluded.run_id) | exists().where(RUN.c.id == LAST_RUN.c.run_id, ~VISIBLE),
    )
    connection.execute(last)


def runs_before(connection: Connection, run_id: int) -> list[Values]:
    """The cases whose last run is this hidden one, each with the place where it was played before; None for nowhere."""
    last = select(LAST_RUN.c.evalset_id.label("of_set"), LAST_RUN.c.case_id.label("of_case"))
    last = last.where(LAST_RUN.c.run_id == run_id).order_by(LAST_RUN.c.case_index)
    orphans: list[Values] = [row._asdict() | {"run_id": None} for row in connection.execute(last)]
    orphans_by_case = {orphan["of_case"]: orphan for orphan in orphans}
    is_played = ~exists().where(RUN_SOURCE.c.run_id == RUN.c.id)
    of_set = RUN.c.evalset_id.in_({orphan["of_set"] for orphan in orphans}) & LISTED & is_played
    newest = connection.scalars(select(RUN.c.id).where(of_set).order_by(RUN.c.id.desc())).all()
    # One number for run and place: one pass finds the last place of a case in the newest run.
    place = func.max(RUN_CASE.c.run_id * literal(_MOST_CASES, BigInteger) + RUN_CASE.c.case_index)
    places = select(RUN_CASE.c.case_id, place).join(RUN, RUN.c.id == RUN_CASE.c.run_id).group_by(RUN_CASE.c.case_id)
    start = 0
    # The newest, the two before it, the four before these: most have all cases.
    while orphans_by_case and start < len(newest):
        some = newest[start : 2 * start + 1]
        for case_id, at in connection.execute(places.where(of_set, RUN_CASE.c.run_id.between(some[-1], some[0]))):
            if orphan := orphans_by_case.pop(case_id, None):
                orphan |= {"run_id": at // _MOST_CASES, "case_index": at % _MOST_CASES}
        start = 2 * start + 1
    return orphans


def name_runs_before(connection: Connection, run_id: int, orphans: Sequence[Values]) -> None:
    """Name earlier runs as the last ones of some cases of a hidden run, without runs that were hidden since."""
    earlier_ids = {orphan["run_id"] for orphan in orphans} - {None}
    visible_runs = select(RUN.c.id).where(RUN.c.id.in_({run_id, *earlier_ids}), VISIBLE).order_by(RUN.c.id)
    # None of them is hidden before this is stored.
    visible = set(connection.scalars(visible_runs.with_for_update(read=True)))
    if run_id in visible:
        return
    own = (LAST_RUN.c.run_id == run_id) & (LAST_RUN.c.evalset_id == bindparam("of_set"))
    own &= LAST_RUN.c.case_id == bindparam("of_case")
    orphans_with_run = [orphan for orphan in orphans if orphan["run_id"] in visible]
    execute_many(connection, update(LAST_RUN).where(own), orphans_with_run)
    execute_many(connection, delete(LAST_RUN).where(own), [each for each in orphans if each["run_id"] is None])
