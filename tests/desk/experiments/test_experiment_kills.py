"""SIGKILL in the middle of an experiment: taken up again, every cell is played once, in the planned order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.experiments.exchange import experiment_parts, import_experiment, read_experiment
from evaldesk.desk.experiments.results import results
from evaldesk.desk.experiments.turns import cell_rank
from evaldesk.desk.imports.importing import ImportDesk
from evaldesk.settings import Settings
from evaldesk.store import Store

N_VARIANTS, N_CASES, N = 6, 50, 5
KILLS = (200, 550)
MOST_AFTER = 100
"""The cells that a desk begins at most after the one at which it is killed, however late the signal comes."""

DESK = """
import asyncio, json, sys
from pathlib import Path
from evaldesk.desk.experiments.experiments import ExperimentDesk
from evaldesk.desk.runs.plan import RunOptions, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import InlineExecutor
from evaldesk.model import AgentRef, Case, EvalSet, Expected, Turn
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.settings import Settings
from evaldesk.store import Store

n_left = int(sys.argv[2])

class Noting(InlineExecutor):
    def __init__(self, variant):
        super().__init__(1)
        self.variant = variant

    async def submit(self, spec):
        global n_left
        if not n_left:
            await asyncio.Event().wait()
        n_left -= 1
        print(json.dumps([spec.case_index, self.variant, spec.trial_index]), flush=True)
        await super().submit(spec)

async def main(folder):
    store = Store.open(folder / "evaldesk.db")
    runs = RunDesk(Settings(folder, ()), store, open_executor=lambda config: Noting(config.experiment.variant_index))
    desk = ExperimentDesk(store, runs)
    if not store.experiments.list():
        cases = tuple(Case(f"c{i}", (Turn("hi", Expected((), (), "hi")),)) for i in range(%d))
        subject = RunSubject(AgentRef("echo", "echo_agent:agent", root=str(folder)), EvalSet("set", cases=cases), "set")
        plans = [runs.plan_for(subject, RunOptions(n=%d, temperature=i / 10)) for i in range(%d)]
        variants = tuple(Variant(f"v{i}", {"temperature": i / 10}) for i in range(len(plans)))
        await desk.start(ExperimentPlan("kills", variants, seed=7, concurrency=1), plans)
    else:
        await runs.start_up()
    await desk.play(1)
    await runs.close()
    store.close()

asyncio.run(main(Path(sys.argv[1])))
""" % (N_CASES, N, N_VARIANTS)  # noqa: UP031


@pytest.mark.long
def test_a_killed_experiment_is_taken_up_with_every_cell_once_in_order(tmp_path: Path) -> None:
    (tmp_path / "echo_agent.py").write_text("async def agent(message):\n    yield message\n")
    (tmp_path / "desk.py").write_text(DESK)

    parts = [_begun(tmp_path, n_cells) for n_cells in (*KILLS, None)]

    planned = sorted(
        ((case, variant, n) for n in range(N) for case in range(N_CASES) for variant in range(N_VARIANTS)),
        key=lambda cell: cell_rank(7, cell[2], cell[0], cell[1]),
    )
    place = {cell: at for at, cell in enumerate(planned)}
    with Store.open(tmp_path / "evaldesk.db") as store:
        found = results(store, 1)
        attempts = {store.runs.trial(run.id, 0, 0).attempt for run in found.runs.values()}
        imports = ImportDesk(settings := Settings(tmp_path, ()), store, EvalSetDesk(settings, store))
        file = read_experiment(b"".join(experiment_parts(store, 1)), "experiment.json")
        again = results(store, import_experiment(store, imports, file, "experiment.json"))
    assert [len(part) >= n for part, n in zip(parts, (*KILLS, 1), strict=True)] == [True] * 3
    assert all([place[cell] for cell in part] == sorted(place[cell] for cell in part) for part in parts)
    assert {cell for part in parts for cell in part} == set(planned)
    assert [(run.status, run.n_passed, run.n_duplicates) for run in found.runs.values()] == [
        ("finished", N_CASES * N, 0)
    ] * N_VARIANTS
    assert attempts == {1}
    assert (found.n_blocks, found.is_cut) == (N, False)
    assert (again.analysis, again.n_blocks, again.is_cut) == (found.analysis, N, False)
    assert (again.experiment.plan, again.experiment.created_at) == (found.experiment.plan, found.experiment.created_at)
    assert [run.n_passed for run in again.runs.values()] == [N_CASES * N] * N_VARIANTS


def _begun(folder: Path, n_cells: int | None) -> list[tuple[int, int, int]]:
    """Let a desk go on until it began so many cells, kill it, and give all that it began; None is to its end."""
    n_most = N_VARIANTS * N_CASES * N if n_cells is None else n_cells + MOST_AFTER
    command = [sys.executable, str(folder / "desk.py"), str(folder), str(n_most)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout is not None
    cells = []
    for line in process.stdout:
        case, variant, trial = json.loads(line)
        cells.append((case, variant, trial))
        if len(cells) == n_cells:
            process.kill()
    process.stdout.close()
    process.wait()
    return cells
