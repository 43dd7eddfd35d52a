"""SIGKILL in the middle of a run, at moments nobody chose, again and again: nothing is lost, nothing is doubled."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from evaldesk.store import Store

N_CASES, N = 40, 5

AGENT = """
async def agent(message):
    yield message
"""

DESK = """
import asyncio, sys
from pathlib import Path
from evaldesk.desk.runs.plan import RunOptions, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import InlineExecutor
from evaldesk.model import AgentRef, Case, EvalSet, Expected, Turn
from evaldesk.settings import Settings
from evaldesk.store import Store

async def main(folder):
    store = Store.open(folder / "evaldesk.db")
    desk = RunDesk(Settings(folder, ()), store, open_executor=lambda config: InlineExecutor(8))
    if not store.runs.list():
        cases = tuple(Case(f"c{i}", (Turn("hi", Expected((), (), "hi")),)) for i in range(%d))
        subject = RunSubject(AgentRef("echo", "echo_agent:agent", root=str(folder)), EvalSet("set", cases=cases), "set")
        await desk.start(desk.plan_for(subject, RunOptions(n=%d, concurrency=8)))
    else:
        await desk.start_up()
    async for tick in desk.watch(1):
        print((await desk.summary(1)).n_done, flush=True)
    await desk.close()
    store.close()

asyncio.run(main(Path(sys.argv[1])))
""" % (N_CASES, N)  # noqa: UP031


@pytest.mark.long
def test_kills_at_random_moments_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    (tmp_path / "echo_agent.py").write_text(AGENT)
    (tmp_path / "desk.py").write_text(DESK)
    chance = random.Random(20261121)
    n_seen, n_kills = 0, 0

    while n_seen < N_CASES * N:
        n_lines = chance.randint(2, 3) if n_kills < 3 else 10_000
        n_seen = max(n_seen, _played(tmp_path, n_lines))
        n_kills += 1
        with Store.open(tmp_path / "evaldesk.db") as store:
            assert store.runs.summary(1).n_done >= n_seen  # what was shown is stored

    with Store.open(tmp_path / "evaldesk.db") as store:
        summary = store.runs.summary(1)
        strips = {row.verdicts for row in store.runs.case_rows(1, sort="file", limit=N_CASES)}
        attempts = [store.runs.trial(1, case, trial).attempt for case in range(N_CASES) for trial in range(N)]
    assert n_kills > 1
    assert (summary.status, summary.n_passed, summary.n_duplicates) == ("finished", N_CASES * N, 0)
    assert strips == {"p" * N}
    assert set(attempts) == {1}


def _played(folder: Path, n_lines: int) -> int:
    """Let a desk go on until it has shown `n_lines` snapshots, kill it, and give the last number it showed."""
    process = subprocess.Popen(
        [sys.executable, str(folder / "desk.py"), str(folder)], stdout=subprocess.PIPE, text=True, cwd=folder
    )
    assert process.stdout is not None
    last = 0
    for _ in range(n_lines):
        line = process.stdout.readline()
        if not line:
            break
        last = int(line)
    else:
        process.kill()
    process.wait()
    process.stdout.close()
    return last
