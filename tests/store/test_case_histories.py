"""The history of a case is every trial of the same agent, options and content, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.store.conftest import end_trial

from evaldesk.model import AgentRef, Case, RunConfig, Turn
from evaldesk.model.conclusion import Criterion
from evaldesk.model.evalset import CaseKey
from evaldesk.model.history import MOST_TRIALS
from evaldesk.model.options import Recording
from evaldesk.store import Store
from evaldesk.store.runs.histories import history_class
from evaldesk.store.runs.planning import case_rows
from evaldesk.store.runs.run_store import imported_agent

USUAL = RunConfig(AgentRef("hello", "agent:root_agent"), "calc", n=3, agent_version="v1")
CASES = [Case(id=f"c{at}", turns=(Turn(f"Roll {at}."),)) for at in range(2)]
KEYS = [CaseKey("calc", case.id, 0, case_rows(0, case, 1)[0]["digest"]) for case in CASES]
LETTERS = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored"}


def play(store: Store, *strips: str, config: RunConfig = USUAL, cases: list[Case] | None = None) -> int:
    run_id = store.runs.create(replace(config, n=len(strips[0])), cases or CASES[: len(strips)])
    results = [
        end_trial(run_id, case, trial, LETTERS[letter])  # type: ignore[arg-type]
        for case, strip in enumerate(strips)
        for trial, letter in enumerate(strip)
        if letter in LETTERS
    ]
    store.runs.record(results)
    return run_id


def history(store: Store, config: RunConfig = USUAL, **asked: Any) -> list[tuple[int, int]]:
    return list(store.runs.case_histories(history_class(config), KEYS, **asked).trials)


def test_all_runs_of_a_class_count_and_only_scored_trials(store: Store) -> None:
    first = play(store, "ppf", "pue")
    second = play(store, "fpp", "p..")

    found = store.runs.case_histories(history_class(USUAL), KEYS)

    assert found.trials == ((6, 4), (2, 2))
    assert found.run_ids == (second, first)
    assert found.runs == (((3, 2), (1, 1)), ((3, 2), (1, 1)))


@pytest.mark.parametrize(
    "change",
    [
        lambda config: replace(config, agent_version="v2"),
        lambda config: replace(config, agent=AgentRef("hello", "other:root_agent")),
        lambda config: replace(config, agent_model="another"),
        lambda config: replace(config, model="another"),
        lambda config: replace(config, criteria=(Criterion("response_match_score", 0.5),)),
        lambda config: replace(config, functions_version="f2"),
        lambda config: replace(config, user=replace(config.user, model="another")),
        lambda config: replace(config, agent=imported_agent("hello")),
        lambda config: replace(config, source_run_id=1),
        lambda config: replace(config, recording=Recording("auto")),
    ],
    ids=["agent", "target", "agent's model", "model", "criteria", "functions", "user", "import", "re-score", "replay"],
)
def test_another_class_is_no_history(store: Store, change: Callable[[RunConfig], RunConfig]) -> None:
    play(store, "ppp", "ppp")
    play(store, "fff", "fff", config=change(USUAL))

    assert history(store) == [(3, 3), (3, 3)]


@pytest.mark.parametrize(
    "change",
    [
        {"n": 9},
        {"seed": 7},
        {"concurrency": 1},
        {"note": "again"},
        {"pass_threshold": 0.6},
        {"evalset_id": "moved"},
        {"evalset_version": "later"},
        {"agent": AgentRef("agents/hello", "agent:root_agent", root="/elsewhere")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_options_that_change_no_trial_leave_the_class(change: dict[str, Any]) -> None:
    assert history_class(replace(USUAL, **change)) == history_class(USUAL)


def test_an_error_is_a_failure_only_where_the_run_says_so(store: Store) -> None:
    play(store, "pe", "pp", config=replace(USUAL, errors_are_failures=True))
    play(store, "pe", "pp")

    assert history(store) == [(3, 2), (4, 4)]


def test_an_edited_case_begins_a_new_history_and_a_renamed_one_keeps_its_own(store: Store) -> None:
    edited = [Case(id="c0", turns=(Turn("Roll more."),)), CASES[1]]
    play(store, "ff", "pp", cases=edited)

    assert history(store) == [(0, 0), (2, 2)]

    renamed = [Case(id="later name", turns=CASES[0].turns), CASES[1]]
    play(store, "pf", "pp", cases=renamed)

    assert history(store)[1] == (4, 4)


def test_confirming_trials_count_but_say_nothing_of_days(store: Store) -> None:
    run_id = play(store, "pf", "pp")
    store.runs.plan_confirming(run_id, ["c0"], 2)
    store.runs.record([end_trial(run_id, 0, 2, "failed"), end_trial(run_id, 0, 3, "passed")])

    found = store.runs.case_histories(history_class(USUAL), KEYS)

    assert found.trials == ((4, 2), (2, 2))
    assert found.runs == (((2, 1), (2, 2)),)


def test_a_run_is_judged_by_the_runs_before_it(store: Store) -> None:
    play(store, "ppp", "ppp")
    run_id = play(store, "fff", "fff")
    play(store, "fff", "fff")

    assert history(store, before=run_id) == [(3, 3), (3, 3)]


def test_a_deleted_run_is_no_history(store: Store) -> None:
    play(store, "ppp", "ppp")
    store.runs.delete(play(store, "fff", "fff"))

    assert history(store) == [(3, 3), (3, 3)]


def test_the_newest_thousand_trials_of_a_case_count(store: Store) -> None:
    play(store, "f" * 60)
    play(store, "f" * 30 + "p" * 470)
    play(store, "p" * 500)

    found = store.runs.case_histories(history_class(USUAL), KEYS[:1])

    assert found.trials == ((MOST_TRIALS, 970),)


def test_a_part_of_the_cases_says_nothing_of_days(store: Store) -> None:
    play(store, "pp", "pp")
    cases = [*CASES, *(Case(id=f"d{at}", turns=(Turn(f"Say {at}."),)) for at in range(3))]
    keys = [CaseKey("calc", case.id, 0, case_rows(0, case, 1)[0]["digest"]) for case in cases]

    found = store.runs.case_histories(history_class(USUAL), keys)

    assert found.cases[0].trials == (2, 2)
    assert found.runs == ()
