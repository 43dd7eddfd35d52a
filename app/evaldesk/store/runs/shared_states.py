"""What the trials of a run were seen to share with others of their process."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from sqlalchemy import Connection, select, update

from evaldesk.codec import msgspec
from evaldesk.model import TrialResult
from evaldesk.model.run import NOTHING_SHARED, SharedState
from evaldesk.store.tables.runs import RUN, VISIBLE
from evaldesk.wire import from_json, to_json


def shared_state(text: str) -> SharedState:
    """The value of the column of a run."""
    return from_json(text, SharedState) if text else NOTHING_SHARED


def add_shared_states(connection: Connection, results: Iterable[TrialResult]) -> None:
    """Join what trials were seen to share with what is known of their runs."""
    news: dict[int, SharedState] = {}
    for result in results:
        if result.shared_state != NOTHING_SHARED:
            news[result.run_id] = news.get(result.run_id, NOTHING_SHARED).joined(result.shared_state)
    for run_id, state in news.items():
        _join(connection, run_id, state)


def known_loop_bound(connection: Connection, run_id: int) -> str:
    """The object of one event loop that the run, or the newest of its class before it, saw its agent hold.

    It is stored with the run. Empty where none is known, and for a run that is gone.
    """
    of_run = select(RUN.c.history_class, RUN.c.shared_state).where(RUN.c.id == run_id, VISIBLE)
    row = connection.execute(of_run).first()
    own = shared_state(row.shared_state).loop_bound if row else ""
    if row is None or own or not row.history_class:
        return own
    of_class = (RUN.c.history_class == row.history_class, RUN.c.shared_state != "", RUN.c.id < run_id, VISIBLE)
    newest = connection.execute(select(RUN.c.shared_state).where(*of_class).order_by(RUN.c.id.desc()).limit(1)).scalar()
    loop_bound = ""
    with suppress(msgspec.DecodeError):  # a row that another program wrote keeps no other run from its trials
        loop_bound = shared_state(newest or "").bounded().loop_bound
    if loop_bound:
        _join(connection, run_id, SharedState(loop_bound))
    return loop_bound


def _join(connection: Connection, run_id: int, state: SharedState) -> None:
    stored_json = connection.execute(select(RUN.c.shared_state).where(RUN.c.id == run_id)).scalar_one()
    state_json = to_json(shared_state(stored_json).joined(state)).decode()
    if state_json != stored_json:
        connection.execute(update(RUN).where(RUN.c.id == run_id).values(shared_state=state_json))
