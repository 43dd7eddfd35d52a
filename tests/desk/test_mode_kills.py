"""`evaldesk mode merge`, killed at each step: the old codebook or the new one, never half of it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from tests.forked_commands import ForkedCommands

from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn
from evaldesk.model.failures import FindingDraft
from evaldesk.settings import Settings
from evaldesk.store import Store

N_FINDINGS = 3


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two modes that have findings."""
    home = tmp_path_factory.mktemp("modes") / "original"
    home.mkdir()
    with Store.open(Settings(home, (home,)).database) as store:
        cases = [Case(f"c{at}", (Turn("When?"),)) for at in range(2 * N_FINDINGS)]
        run_id = store.runs.create(RunConfig(AgentRef("dice", "dice:agent"), "set"), cases)
        store.runs.record([TrialResult(run_id, at, 0, "finished", "failed") for at in range(len(cases))])
        for at in range(len(cases)):
            store.failures.add(FindingDraft(run_id, at, 0), "Ana", "wrong day" if at % 2 else "wrong date")
    return home


def _codebook(home: Path) -> tuple[object, ...]:
    with Store.open(Settings(home, (home,)).database) as store:
        modes = [(mode.name, mode.merged_into) for mode in store.failures.modes()]
        return tuple(modes), tuple(finding.mode_id for finding in store.failures.list())


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("merge", "wrong day", "wrong date"), id="merge", marks=pytest.mark.long),
        pytest.param(("undo",), id="undo"),
    ],
)
def test_a_codebook_is_old_or_new_after_a_kill_at_any_step(
    words: tuple[str, ...], original: Path, commands: ForkedCommands
) -> None:
    home = original.with_name("home")
    command = ("mode", *words, "--by", "Ana", "--workspace", str(home))
    before = _codebook(original)
    copytree(original, home)
    n_steps = commands.killed(10_000, *command)
    after = _codebook(home)
    assert n_steps
    assert after != before

    for at in count(max(1, n_steps - 30)):  # the earlier ones open the workspace
        rmtree(home)
        copytree(original, home)
        if commands.killed(at, *command) is not None:
            break
        assert _codebook(home) in (before, after), at

    assert _codebook(home) == after
    rmtree(home)
