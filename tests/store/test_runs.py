"""The life of a run: planned, taken up, rested, listed, deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection, func, select, update
from tests.killed_steps import kill_at_each_statement
from tests.store.conftest import Clock, select_rows

from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model import AgentRef, Case, Counts, Expected, RunConfig, SessionInit, ToolCall, TrialResult, Turn
from evaldesk.model.stored import LastVerdicts
from evaldesk.store import RunStore, Store, database
from evaldesk.store.database import StepSize
from evaldesk.store.runs import run_store, trash
from evaldesk.store.runs.run_store import DELETED_RUNS_KEPT
from evaldesk.store.tables import METADATA
from evaldesk.store.tables.runs import RUN

Plan = Callable[..., int]
End = Callable[..., TrialResult]

AGENT = AgentRef("hello", "agent:root_agent")


def test_every_case_gets_its_first_trial_early(store: Store, plan: Plan) -> None:
    run = plan(n_cases=2, n=3)

    places = [(trial.trial_index, trial.case_index) for trial in store.runs.pending(run)]

    assert places == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_new_run_has_all_its_trials_to_do(store: Store, plan: Plan) -> None:
    summary = store.runs.summary(plan(n_cases=3, n=4, note="first try"))

    assert (summary.status, summary.n_trials, summary.n_done, summary.n_todo) == ("pending", 12, 0, 12)
    assert (summary.note, summary.config.n, summary.started_at) == ("first try", 4, None)


def test_a_run_keeps_the_cases_it_ran(store: Store) -> None:
    case = Case(
        id="büro",
        turns=(Turn("Roll.", Expected((ToolCall("roll_die", {"sides": 6}),), reference="A six."), extra={"x": [1]}),),
        initial_session=SessionInit("app", "user", {"deep": {"list": [1, None, "ü"]}}),
        extra={"unknown": {"kept": True}},
    )

    run = store.runs.create(RunConfig(AGENT, "calc"), [case])

    assert store.runs.case(run, 0) == case
    with pytest.raises(NotFoundError, match="no case 1"):
        store.runs.case(run, 1)


@pytest.mark.parametrize(("cases", "n"), [([], 1), ([Case("a")], 0)], ids=["no case", "no trial"])
def test_an_empty_run_is_refused(store: Store, cases: list[Case], n: int) -> None:
    with pytest.raises(UsageError, match="at least"):
        store.runs.create(RunConfig(AGENT, "calc", n=n), cases)

    assert store.runs.list() == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda runs: runs.summary(9),
        lambda runs: runs.pending(9),
        lambda runs: runs.case_rows(9),
        lambda runs: runs.metric_rows(9),
        lambda runs: runs.outcome_counts(9),
        lambda runs: runs.error_groups(9),
        lambda runs: runs.trial(9, 0, 0),
        lambda runs: runs.set_status(9, "running"),
        lambda runs: runs.set_note(9, "x"),
        lambda runs: runs.retry_errored(9),
        lambda runs: runs.delete(9),
    ],
    ids=lambda ask: ask.__code__.co_names[0],
)
def test_a_run_that_does_not_exist_is_not_found(store: Store, ask: Callable[[Any], Any]) -> None:
    with pytest.raises(NotFoundError, match="no run 9"):
        ask(store.runs)


def test_a_restart_finds_the_runs_that_are_not_at_their_end(store: Store, plan: Plan) -> None:
    runs = {status: plan() for status in ("pending", "running", "stopping", "stopped", "finished", "failed")}
    for status, run in runs.items():
        store.runs.set_status(run, status, driver=f"desk {status}")  # type: ignore[arg-type]

    unfinished = [(run.status, run.driver) for run in store.runs.unfinished_runs()]

    assert unfinished == [(status, f"desk {status}") for status in ("pending", "running", "stopping")]


def test_runs_are_listed_newest_first_page_by_page(store: Store, plan: Plan) -> None:
    runs = [plan() for _ in range(5)]

    first = store.runs.list(limit=3)
    second = store.runs.list(limit=3, before=first[-1].id)

    assert [run.id for run in (*first, *second)] == runs[::-1]


def test_runs_are_found_by_status_agent_eval_set_and_text(store: Store, plan: Plan) -> None:
    plain = plan()
    trip = plan(agent="trip_planner", evalset_id="journeys")
    noted = plan(note="50% cheaper_model")
    store.runs.set_status(trip, "running")

    def found(**wanted: Any) -> list[int]:
        return [run.id for run in store.runs.list(**wanted)]

    assert found(status="running") == found(agent_id="trip_planner") == found(evalset_id="journeys") == [trip]
    assert found(text="TRIP") == [trip]
    assert found(text="50% cheaper_") == [noted]
    assert found(text="%") == [noted]
    assert found(status="pending", text="calc") == [noted, plain]
    assert store.runs.counts_by_status() == {"pending": 2, "running": 1}
    assert store.runs.counts_by_status(text="trip") == {"running": 1}
    assert store.runs.agents() == ["hello", "trip_planner"]
    assert store.runs.evalsets() == ["calc", "journeys"]


def test_runs_are_found_by_their_model(store: Store, plan: Plan) -> None:
    asked = plan(model="openai/gpt-5-mini", agent_model="gemini-flash")
    own = plan(agent_model="gemini-flash")
    plan(agent_model=None)

    def found(**wanted: Any) -> list[int]:
        return [run.id for run in store.runs.list(**wanted)]

    assert found(model="openai/gpt-5-mini") == found(text="GPT-5") == [asked]
    assert found(model="gemini-flash") == found(text="gemini") == [own]
    assert store.runs.counts_by_status(model="gemini-flash") == {"pending": 1}
    assert store.runs.models() == ["gemini-flash", "openai/gpt-5-mini"]


def test_the_newest_trials_of_a_run_are_those_that_ended_last(store: Store, plan: Plan, end: End, clock: Clock) -> None:
    run = plan(n_cases=3, n=2)
    for place, verdict in [((2, 0), "errored"), ((0, 1), "passed"), ((0, 0), "failed"), ((1, 0), "unscored")]:
        store.runs.record([end(run, *place, verdict=verdict)])
        clock.move(seconds=1)

    assert store.runs.newest_counts(run, 2) == Counts(2, failed=1, unscored=1)
    assert store.runs.newest_counts(run, 200) == Counts(4, 1, 1, 1, 1)


def test_a_note_can_be_changed_and_found(store: Store, plan: Plan) -> None:
    run = plan(note="before")

    store.runs.set_note(run, "after")

    assert [found.note for found in store.runs.list(text="after")] == ["after"]


def test_a_deleted_run_leaves_nothing_and_its_id_is_not_used_again(store: Store, plan: Plan, end: End) -> None:
    kept, run = plan(), plan(n_cases=250)
    store.runs.record([end(run, 0, 0, "errored"), end(run, 1, 1), end(kept, 0, 0)])

    store.runs.delete(run)
    store.runs.remove_deleted()

    names = ("run_case", "case_snapshot", "trial", "score", "transcript", "case_metric", "error_group", "last_run")
    left = [
        select_rows(store, select(table).where(table.c.run_id == run))
        for table in map(METADATA.tables.__getitem__, names)
    ]
    assert not any(left)
    assert store.runs.summary(kept).n_done == 1
    assert plan() > run


def remove_some(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to remove what is in the trash, and end after the first step."""

    def once(*arguments: Any) -> bool:
        delete_some(*arguments)
        return False

    delete_some = trash.delete_some
    with monkeypatch.context() as context:
        context.setattr(trash, "delete_some", once)
        context.setattr(run_store, "TRIALS_DELETED_AT_ONCE", 2)
        store.runs.remove_deleted()


def test_a_removal_that_was_cut_short_is_finished_later(
    store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(n_cases=5)
    store.runs.delete(run)
    remove_some(store, monkeypatch)

    assert store.runs.deleted() == []
    assert store.runs.list() == []
    with pytest.raises(NotFoundError, match="not in the trash"):
        store.runs.restore(run)
    store.runs.finish_deleting()
    store.runs.finish_deleting()
    assert not select_rows(store, select(RUN))


def test_a_case_of_many_trials_is_removed_in_steps(
    store: Store, plan: Plan, end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(n_cases=1, n=23)
    store.runs.record([end(run, 0, trial) for trial in range(23)])
    store.runs.delete(run)
    left: list[int] = []

    def watched(connection: Connection, run_id: int, n: int) -> bool:
        is_left = delete_some(connection, run_id, n)
        counts = [
            connection.scalar(select(func.count()).select_from(METADATA.tables[name]))
            for name in ("trial", "transcript")
        ]
        assert counts[0] == counts[1]
        left.append(counts[0] or 0)
        return is_left

    delete_some = trash.delete_some
    remove_some(store, monkeypatch)
    assert store.runs.deleted() == []
    with pytest.raises(NotFoundError, match="not in the trash"):
        store.runs.restore(run)
    monkeypatch.setattr(trash, "delete_some", watched)
    monkeypatch.setattr(run_store, "TRIALS_DELETED_AT_ONCE", 2)
    monkeypatch.setattr(database, "STEP_S", 1e6)
    store.runs.finish_deleting()

    assert left == [*range(17, 0, -2), 0, 0, 0], "its trials, then its case, then the run"
    assert not select_rows(store, select(RUN))


def test_a_step_that_took_long_makes_the_next_ones_smaller(store: Store) -> None:
    seconds = [0.0]
    size = StepSize(800, lambda: seconds[0])

    def after(took: float) -> int:
        with size.writing(store._database):
            seconds[0] += took
        return size.n

    assert [after(took) for took in (0.01, 0.05, 0.1, 0.2, 5.0, 5.0)] == [800, 800, 400, 100, 100, 100]
    assert [after(0.01) for _ in range(4)] == [125, 156, 195, 243]
    assert [after(0.0) for _ in range(9)][-1] == 800
    assert size.share(8_000) == 8_000


def test_a_restored_run_is_as_it_was_before(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=2)
    store.runs.record([end(run, 0, 0, "errored"), end(run, 1, 0)])
    store.runs.set_status(run, "finished")
    scored = store.runs.summary(run).config
    scoring = store.runs.create(replace(scored, source_run_id=run), store.runs.cases(run))

    def everything() -> list[object]:
        asked = (store.runs.list, store.runs.counts_by_status, store.runs.agents, store.runs.newest_of_evalsets)
        of_run = (store.runs.metric_rows, store.runs.case_rows, store.runs.outcome_counts, store.runs.scorings)
        last = store.runs.last_verdicts(scored.evalset_id)
        return [ask() for ask in asked] + [ask(run) for ask in of_run] + [last, store.runs.summary(run)]

    before = everything()
    store.runs.delete(run)
    assert [found.id for found in store.runs.list()] == [scoring]
    store.runs.finish_deleting()
    store.runs.remove_deleted(DELETED_RUNS_KEPT)
    store.runs.restore(run)

    assert everything() == before
    assert store.runs.deleted() == []


def test_a_restored_run_that_waited_does_not_begin(store: Store, plan: Plan) -> None:
    run = plan()
    store.runs.delete(run)

    store.runs.restore(run)

    assert store.runs.summary(run).status == "stopped"
    assert store.runs.unfinished_runs() == []


def test_an_older_restored_run_does_not_replace_the_last_verdicts(store: Store, plan: Plan, end: End) -> None:
    old = plan()
    store.runs.record([end(old, 0, 0, "errored")])
    store.runs.delete(old)
    new = plan()
    store.runs.record([end(new, 0, 0)])
    evalset = store.runs.summary(new).config.evalset_id
    before = store.runs.last_verdicts(evalset)

    store.runs.restore(old)

    assert store.runs.last_verdicts(evalset) == before


def test_a_removal_leaves_a_run_that_is_restored_meanwhile(
    store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = plan(n_cases=5), plan(n_cases=5)
    store.runs.delete(first)
    store.runs.delete(second)

    def restored_before(connection: Connection, run_id: int, n_trials: int) -> bool:
        if run_id == second:
            connection.execute(update(RUN).where(RUN.c.id == second).values(deleted_at=None))
        return delete_some(connection, run_id, n_trials)

    delete_some = trash.delete_some
    monkeypatch.setattr(trash, "delete_some", restored_before)
    store.runs.remove_deleted()

    assert [run.id for run in store.runs.list()] == [second]
    assert len(store.runs.cases(second)) == 5


def test_the_trash_keeps_a_run_for_its_time(store: Store, plan: Plan) -> None:
    kept, old = plan(), plan()
    store.runs.delete(kept)
    store.runs.delete(old)
    with store._database.writing() as connection:
        deleted_at = store._clock() - timedelta(days=31)
        connection.execute(update(RUN).where(RUN.c.id == old).values(deleted_at=deleted_at))

    store.runs.remove_deleted(DELETED_RUNS_KEPT)

    assert [run.id for run, _ in store.runs.deleted()] == [kept]
    store.runs.remove_deleted()
    store.runs.remove_deleted()
    assert store.runs.deleted() == []


@pytest.mark.parametrize("status", ["running", "stopping"])
def test_a_run_that_is_going_is_not_deleted(store: Store, plan: Plan, status: Any) -> None:
    run = plan()
    store.runs.set_status(run, status)

    with pytest.raises(ConflictError, match="stop it before"):
        store.runs.delete(run)


def test_results_that_come_after_a_deletion_are_dropped(store: Store, plan: Plan, end: End) -> None:
    run = plan()
    store.runs.delete(run)

    assert store.runs.record([end(run, 0, 0)]) == 0


def test_a_case_that_stands_twice_in_a_run_goes_back_to_its_last_place(store: Store, plan: Plan) -> None:
    plan(ids=["c", "a", "b"])
    before = plan(ids=["a", "b", "a"])
    deleted = plan(ids=["b", "a"])

    store.runs.delete(deleted)

    found = store.runs.last_verdicts("calc")
    assert {case: (last.run_id, last.case_index) for case, last in found.items()} == {
        "a": (before, 2),
        "b": (before, 1),
        "c": (1, 0),
    }


def test_each_case_goes_back_to_the_newest_run_that_is_left(store: Store, plan: Plan) -> None:
    chance = Random(249)
    left = {}
    for at in range(20):
        ids = chance.sample("abcdefgh", 1 if at % 3 else 5)
        left[plan(ids=ids)] = ids
        plan(ids=ids, evalset_id="other")
    for run in chance.sample(list(left), len(left)):
        del left[run]
        store.runs.delete(run)

        found = {case: last.run_id for case, last in store.runs.last_verdicts("calc").items()}
        assert found == {case: run for run, ids in sorted(left.items()) for case in ids}
    assert len(store.runs.last_verdicts("other")) == 8


@pytest.mark.parametrize("n_alone", [0, 1], ids=["every case has others", "a case that no other run has"])
def test_a_deletion_holds_the_lock_no_longer_where_a_set_has_many_runs(
    store: Store, plan: Plan, database: Path, n_alone: int
) -> None:
    n_tens = [0]

    def count() -> int:
        n_tens[0] += 1
        return 0

    def n_of_deletion() -> int:
        run, n_tens[0] = plan(ids=[f"c{at}" for at in range(50)] + [f"alone{at}" for at in range(n_alone)]), 0
        store.runs.delete(run)
        return n_tens[0]

    for _ in range(2):
        plan(n_cases=50)
    with store._database.writing() as connection:
        connection.connection.dbapi_connection.set_progress_handler(count, 10)  # type: ignore[union-attr]
    after_few = n_of_deletion()
    for _ in range(40):
        plan(n_cases=50)

    assert 0 < n_of_deletion() < 2 * after_few, "steps of SQLite, during which others wait for the write lock"


@pytest.mark.parametrize(("step_s", "n_steps"), [(1e6, 3), (0.0, 6)], ids=["4, 4, 1", "4, then 1 at a time"])
def test_others_write_and_delete_between_the_steps_of_a_deletion(
    store: Store, plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch, step_s: float, n_steps: int
) -> None:
    monkeypatch.setattr(database, "STEP_S", step_s)
    other, first, second, last = (plan(n_cases=n) for n in (1, 9, 8, 9))
    name_runs_before, runs_before = trash.name_runs_before, store.runs._runs_before
    sizes = []

    def counted(connection: Connection, run_id: int, orphans: Sequence[Any]) -> None:
        name_runs_before(connection, run_id, orphans)
        sizes.append(len(orphans))

    def between_steps(run_id: int) -> list[Any]:
        found = runs_before(run_id)
        store.runs.set_note(other, f"after {len(sizes)} steps")
        if not store.runs.in_trash([second]):
            with store._database.writing() as connection:
                trash.hide(connection, second, clock())  # to which its cases would go back
        return found

    monkeypatch.setattr(run_store, "CASES_NAMED_AT_ONCE", 4)
    monkeypatch.setattr(trash, "name_runs_before", counted)
    monkeypatch.setattr(store.runs, "_runs_before", between_steps)
    store.runs.delete(last)

    assert max(sizes) == 4
    assert [each.run_id for each in store.runs.last_verdicts("calc").values()] == [first] * 9
    assert store.runs.summary(other).note == f"after {n_steps} steps"


def test_a_run_that_is_restored_while_it_is_deleted_is_the_last_one_of_its_cases(
    store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(n_cases=3)
    run = plan(n_cases=3)
    runs_before = store.runs._runs_before

    def restored_meanwhile(run_id: int) -> list[Any]:
        found = runs_before(run_id)
        store.runs.restore(run)
        return found

    monkeypatch.setattr(store.runs, "_runs_before", restored_meanwhile)
    store.runs.delete(run)

    assert [each.run_id for each in store.runs.last_verdicts("calc").values()] == [run] * 3


def test_a_deletion_that_is_killed_at_any_statement_is_finished_by_the_next(
    store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "CASES_NAMED_AT_ONCE", 2)
    before, run = plan(ids=list("abcd")), plan(ids=list("abcdx"))
    whole = dict.fromkeys("abcd", before)

    def found() -> dict[str, int]:
        return {case: last.run_id for case, last in store.runs.last_verdicts("calc").items()}

    def delete() -> None:
        if store.runs.in_trash([run]):
            store.runs.finish_deleting()
        else:
            store.runs.delete(run)

    def after_kill() -> None:
        if store.runs.in_trash([run]):
            assert found().items() <= whole.items()
        else:
            assert found() == dict.fromkeys("abcdx", run)

    n_calls = kill_at_each_statement(store._database._writer, delete, after_kill)

    assert n_calls > 5
    assert found() == whole
    assert store.runs.in_trash([run]) == [run]


def test_each_case_shows_the_newest_run_it_was_in(store: Store, plan: Plan, end: End) -> None:
    both, other = plan(ids=["a", "b"], n=1), plan(ids=["a"], n=1, evalset_id="other")
    only_b = plan(ids=["b"], n=2)
    store.runs.record([end(both, 0, 0), end(both, 1, 0, "failed"), end(only_b, 0, 1, "errored"), end(other, 0, 0)])

    before = store.runs.last_verdicts("calc")
    store.runs.delete(only_b)
    after = store.runs.last_verdicts("calc")

    assert before == {"a": LastVerdicts(both, 0, "p"), "b": LastVerdicts(only_b, 0, ".e")}
    assert after == {"a": LastVerdicts(both, 0, "p"), "b": LastVerdicts(both, 1, "f")}
    assert store.runs.last_verdicts("none") == {}


@pytest.mark.parametrize(
    ("change", "is_moved"),
    [
        (lambda runs, run: None, True),
        (lambda runs, run: runs.set_note(run, "fine"), True),
        (lambda runs, run: runs.set_status(run, "stopped"), False),
        (lambda runs, run: runs.set_status(run, "pending", driver="another"), False),
        (lambda runs, run: runs.delete(run), False),
    ],
    ids=["nothing", "a note", "its status", "its driver", "deleted"],
)
def test_a_run_is_moved_on_only_from_where_it_was_seen(
    store: Store, plan: Plan, change: Callable[[RunStore, int], None], *, is_moved: bool
) -> None:
    run = plan()
    seen = store.runs.summary(run)
    change(store.runs, run)

    assert store.runs.move_on(seen, "running", "taken up", driver="me") is is_moved

    if is_moved:
        moved = store.runs.summary(run)
        assert (moved.status, moved.reason, moved.driver) == ("running", "taken up", "me")


def test_every_eval_set_has_its_newest_run_that_was_not_deleted(store: Store, plan: Plan) -> None:
    for evalset in ("calc", "trip", "calc", "gone"):
        plan(evalset_id=evalset)
    deleted = plan(evalset_id="calc")
    store.runs.delete(deleted)
    store.runs.delete(4)

    assert {name: run.id for name, run in store.runs.newest_of_evalsets().items()} == {"calc": 3, "trip": 2}


@pytest.mark.parametrize("name", ["née", 'a "b" c', "50%_\\", "{}"])
def test_a_run_is_found_by_its_name_however_many_began_after_it(
    store: Store, plan: Plan, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.desk.runs.stored_runs.MOST_SEARCHED", 2)
    monkeypatch.setattr(run_store, "RUNS_READ_AT_ONCE", 2)
    named, noted, deleted = plan(name=name), plan(note=f"{name}\nmore"), plan(name=name)
    for other in (f"{name} 2", "other", ""):
        plan(name=other, note=f"after {name}")
    store.runs.delete(deleted)
    runs = StoredRuns(store.runs)

    assert [runs.newest_of_name(name).id, runs.find_by_name(name).id] == [noted, noted]  # type: ignore[union-attr]
    store.runs.delete(noted)
    assert [runs.newest_of_name(name).id, runs.find_by_name(name).id] == [named, named]  # type: ignore[union-attr]
    store.runs.delete(named)
    assert runs.newest_of_name(name) is None
    with pytest.raises(NotFoundError):
        runs.find_by_name(name)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "\x1b[2J"], ids=["NUL", "surrogate", "ANSI"])
def test_a_name_that_no_run_can_have_is_not_found(store: Store, plan: Plan, name: str) -> None:
    plan(name="a")

    with pytest.raises(NotFoundError):
        StoredRuns(store.runs).find_by_name(name)
