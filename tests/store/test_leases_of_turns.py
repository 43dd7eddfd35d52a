"""The leases of turns and imports: kept by their processes, over with a lost machine, and asked to stop from afar."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select, update
from tests.store.conftest import select_rows

from evaldesk.desk.chat.running_turn import is_turn_played
from evaldesk.desk.process_owner import current_owner, is_at_work
from evaldesk.errors import ConflictError
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn
from evaldesk.model.stored import OpenTurn
from evaldesk.store import Store
from evaldesk.store.database import Starter
from evaldesk.store.runs.imports import NewRun, new_run
from evaldesk.store.tables.imports import IMPORT_RECORD, IMPORT_RUN
from evaldesk.store.tables.runs import RUN
from evaldesk.store.tables.sessions import OPEN_TURN

ELSEWHERE = "4242 gpu-07 12345@abcdef01"
MOMENT = datetime(2026, 11, 25, 9, 0, tzinfo=UTC)


@pytest.fixture
def session(store: Store) -> str:
    """A session whose turn is played on another machine."""
    session_id = store.sessions.create("hello").id
    store.sessions.begin_turn(session_id, OpenTurn(0, f"mark {ELSEWHERE}", "Hi", "", "person", MOMENT))
    return session_id


def _turn(store: Store, session_id: str) -> OpenTurn:
    found = store.sessions.get(session_id).open_turn
    assert found is not None
    return found


def _let_lapse(store: Store, table: Any) -> None:
    with store._database.writing() as connection:
        connection.execute(update(table).values(leased_until=1.0))


def test_a_turn_of_a_lost_machine_does_not_stay_open(store: Store, session: str) -> None:
    assert is_turn_played(_turn(store, session))

    _let_lapse(store, OPEN_TURN)

    assert not is_turn_played(_turn(store, session))
    assert [is_turn_played(turn) for _, turn in store.sessions.open_turns()] == [False]


def test_a_turn_that_is_renewed_is_played_again(store: Store, session: str) -> None:
    _let_lapse(store, OPEN_TURN)

    assert store.sessions.renew_turn(session, f"mark {ELSEWHERE}") is False

    assert is_turn_played(_turn(store, session))


def test_a_turn_learns_that_it_is_to_stop_when_it_is_renewed(store: Store, session: str) -> None:
    store.sessions.ask_to_stop(session)

    assert store.sessions.renew_turn(session, f"mark {ELSEWHERE}") is True


def test_a_turn_that_was_taken_over_is_not_renewed(store: Store, session: str) -> None:
    _let_lapse(store, OPEN_TURN)
    mine = OpenTurn(0, f"mine {current_owner()}", "Hi", "", "person", MOMENT)
    store.sessions.begin_turn(session, mine, orphan_owner=f"mark {ELSEWHERE}")

    with pytest.raises(ConflictError, match="took this turn over"):
        store.sessions.renew_turn(session, f"mark {ELSEWHERE}")

    assert _turn(store, session).owner == mine.owner


@pytest.mark.parametrize(
    ("owner", "is_leased", "expected"),
    [
        (current_owner(), False, True),
        (ELSEWHERE, True, True),
        (ELSEWHERE, False, False),
        (ELSEWHERE, None, True),
        ("nobody", None, False),
    ],
    ids=["here and late", "elsewhere in time", "elsewhere and late", "of an older version", "no process"],
)
def test_a_process_is_at_work_here_by_its_life_and_elsewhere_by_its_lease(
    owner: str, is_leased: bool | None, expected: bool
) -> None:
    assert is_at_work(owner, is_leased=is_leased) is expected


@pytest.fixture
def run() -> NewRun:
    case = Case("c0", (Turn("Roll."),))
    results = [TrialResult(0, 0, 0, "finished", "passed")]
    return new_run(RunConfig(AgentRef("a", "a:b"), "calc", n=1), [case], results, "from a file", "digest")


@pytest.fixture
def import_id(store: Store, run: NewRun) -> int:
    return store.imports.begin("a.json", [run], ELSEWHERE)[0]


def test_an_import_of_a_lost_machine_is_over(store: Store, import_id: int) -> None:
    assert store.imports.summary(import_id).is_leased

    _let_lapse(store, IMPORT_RECORD)

    assert [each.is_leased for each in store.imports.list(is_unfinished=True)] == [False]


def test_each_step_of_an_import_renews_it_and_so_does_the_one_before_it_in_line(
    store: Store, import_id: int, run: NewRun
) -> None:
    run_id = select_rows(store, select(IMPORT_RUN.c.run_id))[0].run_id
    _let_lapse(store, IMPORT_RECORD)
    for _ in store.imports.add(import_id, run_id, run):
        assert store.imports.summary(import_id).is_leased
    _let_lapse(store, IMPORT_RECORD)

    store.imports.renew([import_id])

    assert store.imports.summary(import_id).is_leased


def test_runs_imports_and_sessions_say_who_started_them(store: Store, run: NewRun) -> None:
    anna = Store(store._database, store._clock, Starter("anna", "laptop"))
    played = anna.runs.create(run.config, run.cases)
    _, (imported,) = anna.imports.begin("a.json", [run], current_owner())
    session_id = anna.sessions.create("hello").id

    assert (store.runs.summary(played).started_by, store.runs.summary(played).started_on) == ("anna", "laptop")
    assert {each.id: each.started_by for each in store.sessions.list()} == {session_id: "anna"}
    assert store.runs.deleted() == []
    of_import = select_rows(store, select(RUN.c.started_by).where(RUN.c.id == imported))
    assert [row.started_by for row in of_import] == ["anna"]
