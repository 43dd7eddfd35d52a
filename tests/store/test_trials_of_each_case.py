"""A run whose cases have different numbers of trials, from its plan to its removal."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from sqlalchemy import Connection
from tests.killed_steps import kill_at_each_statement

from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Case, Criterion, RunConfig, Score, TrialResult, Turn, Verdict
from evaldesk.model.run import TrialStatus
from evaldesk.store import Store
from evaldesk.store.runs import planning

VERDICTS: dict[str, Verdict] = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored"}
N_EACH = (1, 4, 2)
CONFIG = RunConfig(AgentRef("a", "a:agent"), "set", criteria=(Criterion("m", 0.5),), n=1, budget="7")


def cases(n: int) -> list[Case]:
    return [Case(f"c{index}", (Turn(f"hello {index}"),)) for index in range(n)]


def trial(run_id: int, case: int, index: int, letter: str, attempt: int = 1) -> TrialResult:
    scores = (Score("m", float(letter == "p"), threshold=0.5, passed=letter == "p"),) if letter in "pf" else ()
    status: TrialStatus = "errored" if letter == "e" else "finished"
    return TrialResult(run_id, case, index, status, VERDICTS[letter], scores=scores, attempt=attempt)


def play(store: Store, run_id: int, strips: list[str], chance: Random | None = None) -> None:
    """The trials of the strips, in any order."""
    found = [
        trial(run_id, case, index, letter)
        for case, strip in enumerate(strips)
        for index, letter in enumerate(strip)
        if letter != "."
    ]
    if chance:
        chance.shuffle(found)
    for each in found:
        store.runs.record([each])


def begun(store: Store, n_each: tuple[int, ...] = N_EACH) -> int:
    return store.runs.create(CONFIG, cases(len(n_each)), n_each=n_each)


def test_a_run_is_planned_with_the_trials_of_each_case(store: Store) -> None:
    run_id = begun(store)

    run = store.runs.summary(run_id)
    assert (run.n_trials, run.n_least, run.n_most, run.n_todo, run.is_uneven) == (7, 1, 4, 7, True)
    assert store.runs.strips(run_id) == [".", "....", ".."]
    played = [(each.trial_index, each.case_index) for each in store.runs.pending(run_id)]
    assert played == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (3, 1)]
    paged, last = [], None
    while page := store.runs.pending(run_id, last, 2):
        paged += [(each.trial_index, each.case_index) for each in page]
        last = page[-1].case_index, page[-1].trial_index
    assert paged == played


def test_each_case_is_counted_over_its_own_trials(store: Store) -> None:
    run_id = begun(store)

    play(store, run_id, ["p", "pffp", "e."], Random(3))

    run = store.runs.summary(run_id)
    rows = store.runs.case_rows(run_id, sort="file")
    assert [row.verdicts for row in rows] == ["p", "pffp", "e."]
    assert [row.counts.planned for row in rows] == [1, 4, 2]
    assert [row.counts.unplayed for row in rows] == [0, 0, 1]
    assert (run.counts.passed, run.counts.unplayed) == (3, 1)
    assert run.pass_rate == pytest.approx((1 + 0.5) / 2)
    (metric,) = store.runs.metric_rows(run_id)
    assert metric.n == 5
    assert metric.mean == pytest.approx(0.75)


def test_fresh_trials_of_a_case_follow_its_own(store: Store) -> None:
    run_id = begun(store)
    play(store, run_id, ["f", "pppp", "ff"])

    store.runs.plan_confirming(run_id, ["c0", "c2"], 3)
    store.runs.plan_confirming(run_id, ["c0", "c2"], 3)

    fresh = [(each.case_index, each.trial_index) for each in store.runs.pending(run_id)]
    assert sorted(fresh) == [(0, 1), (0, 2), (0, 3), (2, 2), (2, 3), (2, 4)]
    for case, index in fresh:
        store.runs.record([trial(run_id, case, index, "p" if case else "e")])
    found = store.runs.case_outcomes(run_id)
    assert [each.confirming for each in found] == ["eee", "", "ppp"]
    assert [each.verdicts for each in found] == ["f", "pppp", "ff"]
    run = store.runs.summary(run_id)
    assert (run.counts.planned, run.counts.passed, run.n_confirming_todo, run.n_confirming_errored) == (7, 4, 0, 3)
    assert store.runs.neighbours(run_id, 0, 3).next_trial is None
    assert store.runs.newest_counts(run_id, 100).done == 7
    assert store.runs.retry_errored(run_id) == 3
    run = store.runs.summary(run_id)
    assert (run.counts.planned, run.n_confirming_todo, run.n_confirming_errored) == (7, 3, 0)


def test_fresh_trials_are_planned_in_steps_and_once_wherever_that_is_killed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "ROWS_AT_ONCE", 6)
    run_id, other = begun(store, (2,) * 7), begun(store)
    play(store, run_id, ["ff"] * 7)
    wanted = [f"c{at}" for at in range(5)]
    plan, sizes = planning.plan_confirming, []

    def planned(connection: Connection, run_id: int, cases: Sequence[int], n: int) -> None:
        plan(connection, run_id, cases, n)
        sizes.append(len(cases) * n)

    def others_write() -> None:
        store.runs.set_note(other, "written meanwhile")
        assert store.runs.summary(run_id).n_confirming_todo == len(store.runs.pending(run_id))

    monkeypatch.setattr(planning, "plan_confirming", planned)
    n_calls = kill_at_each_statement(
        store._database._writer, lambda: store.runs.plan_confirming(run_id, wanted, 3), others_write
    )

    fresh = sorted((each.case_index, each.trial_index) for each in store.runs.pending(run_id))
    assert fresh == [(case, 2 + at) for case in range(5) for at in range(3)]
    assert max(sizes) == 6
    assert n_calls > 5
    assert store.runs.summary(run_id).n_confirming_todo == 15


def test_a_retry_counts_again_what_each_case_has(store: Store) -> None:
    chance = Random(11)
    for _ in range(20):
        n_each = tuple(chance.randint(1, 5) for _ in range(4))
        run_id = begun(store, n_each)
        strips = ["".join(chance.choice("ppfeu") for _ in range(n)) for n in n_each]
        play(store, run_id, strips, chance)
        before = store.runs.summary(run_id)

        n = store.runs.retry_errored(run_id)

        run = store.runs.summary(run_id)
        left = [strip.replace("e", ".") for strip in strips]
        assert store.runs.strips(run_id) == left
        assert n == sum(strip.count("e") for strip in strips) == run.n_todo
        assert (run.n_trials, run.counts.passed) == (before.n_trials, before.counts.passed)
        for row, strip in zip(store.runs.case_rows(run_id, sort="file"), left, strict=True):
            assert (row.counts.passed, row.counts.failed) == (strip.count("p"), strip.count("f"))


def test_a_run_whose_planning_broke_off_has_the_trials_of_the_planned_cases(store: Store) -> None:
    n_each = (3,) * 400 + (1,) + (9,) * 400
    planning = store.runs.planning(CONFIG, cases(len(n_each)), "owner", n_each=n_each)
    planning.step()
    n_planned = planning.n_planned
    assert n_planned < len(n_each)

    store.runs.cut_to_planned(planning.run_id)

    run = store.runs.summary(planning.run_id)
    assert (run.n_cases, run.n_trials, run.n_most) == (n_planned, 3 * n_planned, 3)
    assert len(store.runs.pending(planning.run_id)) == 3 * n_planned


def test_a_case_without_a_trial_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="plays each case at least once"):
        begun(store, (1, 0))


def test_it_is_deleted_and_restored_whole(store: Store) -> None:
    run_id = begun(store)
    play(store, run_id, ["p", "pf..", "ff"])
    before = store.runs.summary(run_id)
    store.runs.set_status(run_id, "stopped")
    store.runs.delete(run_id)

    ((in_trash, _),) = store.runs.deleted()
    store.runs.restore(run_id)

    assert in_trash.counts == store.runs.summary(run_id).counts == before.counts
