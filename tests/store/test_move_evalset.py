"""An eval set whose file got another name keeps what ran of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import Gates
from evaldesk.model.comparison import Baseline, PlayedCase
from evaldesk.model.evalset import CaseKey
from evaldesk.model.stored import LastVerdicts
from evaldesk.settings import DatabaseUrl
from evaldesk.store import Store

PLACE = Path("evalsets") / "dice.evalset.json"


def test_runs_verdicts_and_sessions_follow(store: Store, plan: Callable[..., int], end: Callable[..., Any]) -> None:
    run = plan(1, n=1)
    store.runs.record([end(run, 0, 0)])
    session = store.sessions.create("hello").id
    store.sessions.note_case(session, "calc", "c0")

    store.move_evalset("calc", "dice", PLACE)

    assert [each.id for each in store.runs.list(evalset_id="dice")] == [run]
    assert store.runs.summary(run).config.evalset_id == "dice"
    assert store.runs.summary(run).config.evalset_path == str(PLACE)
    assert store.runs.last_verdicts("dice") == {"c0": LastVerdicts(run, 0, "p")}
    assert [case.evalset_id for case in store.sessions.get(session).added_to] == ["dice"]
    assert store.runs.list(evalset_id="calc") == []
    assert store.runs.last_verdicts("calc") == {}


def test_another_set_keeps_what_it_has(store: Store, plan: Callable[..., int]) -> None:
    plan(1, n=1)
    other = plan(1, n=1, evalset_id="other")

    store.move_evalset("calc", "dice", PLACE)

    assert [each.id for each in store.runs.list(evalset_id="other")] == [other]
    assert store.runs.last_verdicts("other") == {"c0": LastVerdicts(other, 0, ".")}


def test_verdicts_of_a_file_that_stood_there_before_go(store: Store, plan: Callable[..., int]) -> None:
    gone = plan(ids=["a", "only_in_the_old_file"], n=1, evalset_id="dice")
    moved = plan(ids=["a"], n=1)
    session = store.sessions.create("hello").id
    for evalset_id in ("dice", "calc"):
        store.sessions.note_case(session, evalset_id, "a")

    store.move_evalset("calc", "dice", PLACE)

    assert store.runs.last_verdicts("dice") == {"a": LastVerdicts(moved, 0, ".")}
    assert [case.evalset_id for case in store.sessions.get(session).added_to] == ["dice"]
    assert store.runs.summary(gone).config.evalset_path == ""


def test_a_run_that_regressed_still_does_when_its_set_has_another_name(
    store: Store, place: Path | DatabaseUrl, plan: Callable[..., int], end: Callable[..., Any]
) -> None:
    runs = StoredRuns(store.runs)
    before = plan(1, n=1, evalset_path="evalsets/calc.evalset.json")
    store.runs.record([end(before, 0, 0)])
    config = replace(store.runs.summary(before).config, gates=Gates(max_regressions=0))
    other = PlayedCase(CaseKey("dice", "c0"), "p")  # of another set, of which this command played nothing
    baseline = Baseline("run 1", (*runs.baseline_of(before).cases, other))
    run = store.runs.create(config, store.runs.cases(before), baseline=baseline)
    store.runs.record([end(run, 0, 0, "failed")])
    store.runs.set_status(run, "finished")
    told = runs.conclusion(store.runs.summary(run))

    store.move_evalset("calc", "dice", PLACE)

    with Store.open(place) as again:
        moved = StoredRuns(again.runs)
        change = moved.change(again.runs.summary(run))
        assert moved.conclusion(again.runs.summary(run)).outcome == told.outcome == "failed"
    assert change is not None
    assert [case.name for case in change.regressions] == ["c0"]


def test_a_set_that_never_ran_moves_too(store: Store) -> None:
    store.move_evalset("calc", "dice", PLACE)

    assert store.runs.list() == []
