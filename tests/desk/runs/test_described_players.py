"""The worker in which an agent described itself plays the run: an agent is imported once where one player suffices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.evaluating import subject_of
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.model import AgentRef, Case, EvalSet, Expected, Turn
from evaldesk.settings import Settings

AGENT = """
import os
from pathlib import Path

with Path(__file__).with_name("imports").open("a") as file:
    file.write(f"{os.getpid()}\\n")

def root_agent(message):
    return message
"""


@pytest.mark.anyio
@pytest.mark.parametrize(("n_warm_workers", "n_imports"), [(0, 1), (1, 2)], ids=["command", "desk with chats"])
async def test_the_worker_that_described_an_agent_plays_it_where_no_chat_waits(
    tmp_path: Path, n_warm_workers: int, n_imports: int
) -> None:
    folder = tmp_path / "echo"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    cases = tuple(Case(name, (Turn("hi", Expected((), (), "hi")),)) for name in "abc")
    agent = AgentRef("echo", "agent:root_agent", str(folder), str(folder))
    desk = Desk.open(Settings(tmp_path, (tmp_path,), n_workers=1, n_warm_workers=n_warm_workers))

    description = await desk.host.describe(agent)
    subject = subject_of(agent, EvalSet("set", cases=cases), None, description)
    plan = desk.runs.plan_for(subject, RunOptions(n=2, concurrency=1))
    summary = await desk.runs.run_to_end(plan, lambda _: None)
    pids = (folder / "imports").read_text().split()
    await desk.close()

    assert summary.n_passed == 6
    assert len(set(pids)) == len(pids) == n_imports
    assert str(os.getpid()) not in pids
