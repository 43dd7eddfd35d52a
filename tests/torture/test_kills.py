"""SIGKILL at random moments: no finished trial is lost, none is counted twice. (reliability_stats.md B3, 1-4)"""

from __future__ import annotations

import logging
import os
import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.torture.conftest import ServedFolder

pytestmark = pytest.mark.server

log = logging.getLogger("torture")

N_KILLS = int(os.environ.get("EVALDESK_TORTURE_KILLS", "20"))
N_ROUNDS = int(os.environ.get("EVALDESK_TORTURE_ROUNDS", "1"))
CONCURRENCY = 8
LETTERS = {"passed": "p", "failed": "f", "errored": "e", "unscored": "u"}

Kill = Callable[[int], None]
Until = Callable[..., None]
Rows = list[sqlite3.Row]


def test_a_server_killed_in_a_run_and_in_its_resume_loses_and_doubles_nothing(
    brief: ServedFolder, kill: Kill, wait_until: Until
) -> None:
    brief.write_cases([f"case {i}" for i in range(100)])
    brief.hold()
    server = brief.start(HELD_FROM="95")
    run_id = server.start_run(n="2", concurrency=str(CONCURRENCY))

    for n_before_kill in (30, 90):
        wait_until(lambda n=n_before_kill: len(recorded(brief)) >= n)
        acknowledged, n_shown = recorded(brief), n_done(server.get(f"/runs/{run_id}").text)
        kill(server.process.pid)
        assert acknowledged.items() <= recorded(brief).items()
        assert n_before_kill <= n_shown <= len(recorded(brief)) < 200
        brief.until_alone()
        server = brief.start(HELD_FROM="95")
    brief.let_go()
    page = server.say_when_done(run_id)

    assert "All 200 trials done" in page
    check_run(brief, 200)
    check_verdicts(brief, n_kills=0)


def test_a_killed_worker_costs_at_most_its_own_trial(brief: ServedFolder, kill: Kill, wait_until: Until) -> None:
    brief.write_cases([f"case {i}" for i in range(100)])
    brief.hold()
    server = brief.start(HELD_FROM="95")
    run_id = server.start_run(n="2", concurrency=str(CONCURRENCY))

    wait_until(lambda: len(recorded(brief)) >= 20)
    kill(brief.workers_of_runs()[0])
    brief.let_go()
    server.say_when_done(run_id)

    check_run(brief, 200)
    check_verdicts(brief, n_kills=1)
    assert len(brief.played) <= 200 + CONCURRENCY


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(N_ROUNDS))
@pytest.mark.parametrize("target", ["server", "server and workers"])
def test_kills_at_random_moments_lose_and_double_none_of_a_thousand_trials(
    brief: ServedFolder, kill: Kill, target: str, seed: int
) -> None:
    chance = random.Random(f"{target} {seed}")
    brief.write_cases([f"case {i}" for i in range(200)])
    server = brief.start(SLOWNESS_S="0.2")
    run_id = server.start_run(n="5", concurrency=str(CONCURRENCY))
    n_kills, slowest_s = 0, 0.0

    while n_kills < N_KILLS and len(recorded(brief)) < 1_000:
        acknowledged = watch(brief, chance)
        victims = [server.process.pid, *(brief.workers() if target != "server" else [])]
        for pid in victims:
            kill(pid)
        n_kills += 1
        slowest_s = max(slowest_s, brief.until_alone())
        assert acknowledged.items() <= recorded(brief).items()
        server = brief.spawn(SLOWNESS_S="0.2")
    server.wait_until_ready()
    page = server.say_when_done(run_id)

    assert "All 1,000 trials done" in page
    check_run(brief, 1_000)
    check_verdicts(brief, n_kills=0)
    n_again = len(brief.played) - 1_000
    log.info("%s: %d kills, %d trials played again, alone after %.2f s", target, n_kills, n_again, slowest_s)
    # What is over waits up to 50 ms for its commit, and is no more finished than what is played.
    assert n_again <= n_kills * CONCURRENCY * 3


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(N_ROUNDS))
def test_workers_killed_at_random_moments_cost_at_most_a_trial_each(brief: ServedFolder, kill: Kill, seed: int) -> None:
    chance = random.Random(seed)
    brief.write_cases([f"case {i}" for i in range(200)])
    server = brief.start(SLOWNESS_S="0.2")
    run_id = server.start_run(n="5", concurrency=str(CONCURRENCY))
    n_kills = 0

    while n_kills < N_KILLS and len(recorded(brief)) < 1_000:
        time.sleep(chance.uniform(0.05, 2.0))
        for pid in chance.sample(workers := brief.workers_of_runs(), k=min(1, len(workers))):
            kill(pid)
            n_kills += 1
    server.say_when_done(run_id)

    check_run(brief, 1_000)
    check_verdicts(brief, n_kills=n_kills)
    n_again = len(brief.played) - 1_000
    log.info("workers: %d kills, %d trials played again", n_kills, n_again)
    assert n_again <= n_kills * CONCURRENCY


def watch(place: ServedFolder, chance: random.Random) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Look at the database up to a random moment of the start or of the run; gives what it said last."""
    seen = recorded(place)
    is_at_start = chance.random() < 0.3
    n_wanted = 1_000 if is_at_start else len(seen) + chance.randrange(1, 60)
    deadline = time.monotonic() + (chance.uniform(0.1, 3.0) if is_at_start else 60)
    while time.monotonic() < deadline and len(seen) < n_wanted:
        seen = recorded(place)
        time.sleep(0.005)
    return seen


def n_done(page: str) -> int:
    """Trials that the page of a run that goes on says are done."""
    found = re.search(r"<b>(\d+) of [\d,]+ trials done", page)
    assert found, page
    return int(found[1])


def recorded(place: ServedFolder) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Every trial with a verdict, as another process sees it: what is here was told to somebody."""
    with reading(place.database) as ask:
        rows = ask("SELECT case_index, trial_index, attempt, verdict, recorded_at FROM trial WHERE verdict IS NOT NULL")
    return {(row[0], row[1]): tuple(row)[2:] for row in rows}


def check_run(place: ServedFolder, n: int) -> None:
    """One result for each trial, and every total equal to what counting the trials again gives."""
    with reading(place.database) as ask:
        assert [row[0] for row in ask("PRAGMA integrity_check")] == ["ok"]
        assert ask("PRAGMA foreign_key_check") == []
        trials = ask("SELECT * FROM trial")
        scores = ask("SELECT * FROM score")
        [run] = ask("SELECT * FROM run")
        cases = ask("SELECT * FROM run_case ORDER BY case_index")
        metrics = ask("SELECT * FROM case_metric")
        groups = ask("SELECT sum(n) FROM error_group")
        transcripts = ask("SELECT run_id, case_index, trial_index, attempt FROM transcript")
    assert len({(row["case_index"], row["trial_index"]) for row in trials}) == len(trials) == n
    assert sorted(tuple(row) for row in transcripts) == sorted(
        (row["run_id"], row["case_index"], row["trial_index"], row["attempt"]) for row in trials
    )
    verdicts = Counter(row["verdict"] for row in trials)
    assert run["status"] == "finished"
    assert run["n_duplicates"] == 0
    assert {name: run[f"n_{name}"] for name in LETTERS} == {name: verdicts[name] for name in LETTERS}
    assert (groups[0][0] or 0) == verdicts["errored"]
    check_cases(trials, cases)
    check_metrics(scores, metrics)


def check_cases(trials: Rows, cases: Rows) -> None:
    for case in cases:
        own = sorted((t for t in trials if t["case_index"] == case["case_index"]), key=lambda t: t["trial_index"])
        assert case["strip"] == "".join(LETTERS[trial["verdict"]] for trial in own)
        assert [case[f"n_{name}"] for name in LETTERS] == [case["strip"].count(letter) for letter in LETTERS.values()]
        assert case["duration_ms"] == pytest.approx(sum(trial["duration_ms"] for trial in own))


def check_metrics(scores: Rows, metrics: Rows) -> None:
    values: dict[tuple[int, str], list[float]] = {}
    for score in scores:
        values.setdefault((score["case_index"], score["metric"]), []).append(score["value"])
    assert {(row["case_index"], row["metric"]): row["n"] for row in metrics} == {
        key: len(found) for key, found in values.items()
    }
    for row in metrics:
        own = values[row["case_index"], row["metric"]]
        assert (row["total"], row["low"], row["high"]) == (pytest.approx(sum(own)), min(own), max(own))


def check_verdicts(place: ServedFolder, *, n_kills: int) -> None:
    """Each trial has the verdict that its agent earns; a killed worker takes at most one with it."""
    with reading(place.database) as ask:
        rows = ask("SELECT case_id, verdict, error_kind FROM trial JOIN run_case USING (run_id, case_index)")
    died = [row for row in rows if row["error_kind"] == "worker_died"]
    assert len(died) <= n_kills
    wrong = {"3": "errored", "7": "failed"}
    others = [row for row in rows if row not in died]
    assert {row["case_id"] for row in others if row["verdict"] != wrong.get(row["case_id"][-1], "passed")} == set()


@contextmanager
def reading(database: Path) -> Iterator[Callable[[str], Rows]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        connection.row_factory = sqlite3.Row
        yield lambda statement: connection.execute(statement).fetchall()
