"""`evaldesk accept --yes`, killed at each step: the old eval set or the new one, never half of it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from tests.forked_commands import ForkedCommands

from evaldesk.formats import write_evalset
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    EvalSet,
    Event,
    Expected,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.settings import Settings
from evaldesk.store import Store

CASES = tuple(
    Case(f"c{at}", (Turn("book", Expected((ToolCall("book", {"n": at}),), reference=f"booked {at}")),))
    for at in range(3)
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with an eval set and a run that failed all of it."""
    home = tmp_path_factory.mktemp("accepts") / "original"
    home.mkdir()
    path = home / "set.evalset.json"
    path.write_bytes(write_evalset(EvalSet("set", cases=CASES)))
    with Store.open(Settings(home, (home,)).database) as store:
        criteria = (Criterion("tool_exact", 1.0),)
        config = RunConfig(AgentRef("dice", "dice:agent"), "set", evalset_path=str(path), criteria=criteria)
        run_id = store.runs.create(config, CASES)
        store.runs.record([_trial(run_id, at) for at in range(len(CASES))])
        store.runs.set_status(run_id, "finished")
    return home


def _trial(run_id: int, at: int) -> TrialResult:
    events = (Event("tool_call", call=ToolCall("book", {"n": at + 10})), Event("agent_message", text=f"done {at}"))
    scores = tuple(Score("tool_exact", 0.0, turn, 1.0, passed=False) for turn in (0, None))
    record = TurnRecord("book", events)
    return TrialResult(run_id, at, 0, "finished", "failed", transcript=Transcript((record,)), scores=scores)


@pytest.mark.long
@pytest.mark.parametrize("way", ["replace", "as-well"])
def test_an_eval_set_is_old_or_new_after_a_kill_at_any_step(way: str, original: Path, commands: ForkedCommands) -> None:
    # The run names its file by the folder in which it was made: the copy is what is kept.
    home, file = original.with_name("kept"), original / "set.evalset.json"
    command = ("accept", "1", "--turn", "1", "--yes", "--way", way, "--workspace", str(original))
    before = file.read_bytes()
    copytree(original, home)
    n_steps = commands.killed(10_000, *command)
    after = file.read_bytes()
    assert n_steps
    assert after != before

    for at in count(max(1, n_steps - 40)):  # the earlier ones open the workspace and read
        rmtree(original)
        copytree(home, original)
        if commands.killed(at, *command) is not None:
            break
        assert file.read_bytes() in (before, after), at

    assert file.read_bytes() == after
    rmtree(original)
    copytree(home, original)
    rmtree(home)
