"""How the models of a trial were asked is stored beside its transcript, and goes with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.store.conftest import Plan

from evaldesk.model import Event, Prompt, Prompts, Transcript, TrialResult, TurnRecord
from evaldesk.store import Store
from evaldesk.store.recovery import recover
from evaldesk.store.runs.recording import transcript_row

PROMPTS = Prompts(({"role": "user", "content": "hi"},), (Prompt(0, 5.0, 5.0, "small", 11, 5, messages=(0,)),))
SAID = Transcript((TurnRecord("hi", (Event("agent_message", text="hello"),)),))


def played(run_id: int, trial: int = 0, *, attempt: int = 1, prompts: Prompts | None = PROMPTS) -> TrialResult:
    result = TrialResult(run_id, 0, trial, "finished", "passed", "answered", SAID, attempt=attempt)
    return replace(result, prompts=prompts)


def test_they_are_read_by_attempt_and_are_in_no_result(store: Store, plan: Plan) -> None:
    run_id = plan(n_cases=1)
    store.runs.record([played(run_id), played(run_id, 1, prompts=None)])

    assert store.runs.prompts(run_id, (0, 0), 1) == PROMPTS
    assert store.runs.prompts(run_id, (0, 0), 2) is None
    assert store.runs.prompts(run_id, (0, 1), 1) is None
    assert store.runs.trial(run_id, 0, 0) == played(run_id, prompts=None)


def test_those_of_a_late_result_do_not_replace_those_that_count(store: Store, plan: Plan) -> None:
    run_id = plan(n_cases=1)
    store.runs.record([played(run_id)])

    assert store.runs.record([played(run_id, prompts=replace(PROMPTS, n_left_out=7))]) == 0

    assert store.runs.prompts(run_id, (0, 0), 1) == PROMPTS


def test_a_transcript_is_stored_as_if_there_were_none() -> None:
    assert transcript_row(played(1)) == transcript_row(played(1, prompts=None))


def test_they_go_with_their_run(store: Store, plan: Plan, database: Path) -> None:
    run_id = plan(n_cases=1)
    store.runs.record([played(run_id), played(run_id, 1)])
    store.runs.set_status(run_id, "finished")
    store.runs.delete(run_id)

    store.runs.remove_deleted()

    assert counted(database, "SELECT count(*) FROM trial_prompts") == [0]


def test_a_repair_keeps_them(store: Store, plan: Plan, database: Path) -> None:
    run_id = plan(n_cases=1)
    store.runs.record([played(run_id)])
    store.close()

    assert "1 list of prompts" in recover(database)

    with Store.open(database) as repaired:
        assert repaired.runs.prompts(run_id, (0, 0), 1) == PROMPTS


def counted(database: Path, query: str) -> list[int]:
    with closing(sqlite3.connect(database)) as connection:
        return [row[0] for row in connection.execute(query)]
