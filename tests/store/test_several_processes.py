"""Several processes on one database, and processes that are killed while they write."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evaldesk.model import TrialResult
from evaldesk.settings import DatabaseUrl
from evaldesk.store import Store

Plan = Callable[..., int]
StoreAddress = Path | DatabaseUrl
End = Callable[..., TrialResult]

# Says the number of each trial once it is durable; argv: database, run, batch size.
RECORDER = """
import sys
from pathlib import Path
from evaldesk.model import *
from evaldesk.settings import database_url
from evaldesk.store import Store
place = Path(sys.argv[1]) if sys.argv[1].startswith('/') else database_url(sys.argv[1], 'the test')
store, run, size = Store.open(place), int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
todo = store.runs.pending(run)
for start in range(0, len(todo), size):
    batch = todo[start : start + size]
    scores = (Score("match", 0.5, threshold=0.5, passed=True),)
    turns = Transcript((TurnRecord("Roll.", (Event("agent_message", text="six " * 500),)),))
    store.runs.record([TrialResult(run, t.case_index, t.trial_index, "finished", "passed", transcript=turns,
                                   scores=scores) for t in batch])
    print(*(f"{t.case_index}:{t.trial_index}" for t in batch), flush=True)
store.close()
"""


@pytest.mark.long
def test_two_processes_record_at_once_and_lose_nothing(store: Store, plan: Plan, place: StoreAddress) -> None:
    runs = [plan(n_cases=100, n=3) for _ in range(2)]
    with _recorder(place, runs[0], 1) as first, _recorder(place, runs[1], 7) as second:
        errors = _let_go(first, second)

    assert errors == ["", ""]
    assert [store.runs.summary(run).n_passed for run in runs] == [300, 300]
    assert [sum(row.n for row in store.runs.metric_rows(run)) for run in runs] == [300, 300]


@pytest.mark.long
def test_two_processes_that_play_the_same_trials_count_each_once(store: Store, plan: Plan, place: StoreAddress) -> None:
    run = plan(n_cases=60, n=2)
    with _recorder(place, run, 5) as first, _recorder(place, run, 5) as second:
        errors = _let_go(first, second)

    summary = store.runs.summary(run)
    assert errors == ["", ""]
    assert (summary.n_passed, summary.n_todo) == (120, 0)


def test_threads_of_a_process_may_all_write(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=4, n=20)
    threads = [
        threading.Thread(target=lambda case=case: [store.runs.record([end(run, case, trial)]) for trial in range(20)])
        for case in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store.runs.summary(run).n_passed == 80


@pytest.mark.server
def test_a_killed_process_loses_no_trial_it_acknowledged(store: Store, plan: Plan, place: StoreAddress) -> None:
    run = plan(n_cases=400, n=2)
    n_lines = random.Random(0).randrange(2, 60)
    with _recorder(place, run, 3) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        acknowledged = [process.stdout.readline() for _ in range(n_lines)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
        process.wait()

    keys = [tuple(map(int, key.split(":"))) for line in acknowledged if line.endswith("\n") for key in line.split()]
    summary = store.runs.summary(run)
    assert all(store.runs.trial(run, case, trial).verdict == "passed" for case, trial in keys)
    assert len(keys) <= summary.n_passed <= len(keys) + 3
    assert summary.n_passed + len(store.runs.pending(run)) == 800
    strips = "".join(row.verdicts for row in store.runs.case_rows(run, limit=400))
    assert strips.count("p") == summary.n_passed == store.runs.metric_rows(run)[0].n


def _let_go(*processes: subprocess.Popen[str]) -> list[str]:
    """Start them together; what each wrote to its standard error."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate()[1] for process in processes]


@contextmanager
def _recorder(place: StoreAddress, run: int, size: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RECORDER, str(place), str(run), str(size)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
