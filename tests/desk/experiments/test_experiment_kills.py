"""SIGKILL in the middle of an experiment: taken up again, every cell is played once, in the planned order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.experiments.exchange import experiment_parts, import_experiment, read_experiment
from evaldesk.desk.experiments.results import results
from evaldesk.desk.experiments.turns import cell_rank
from evaldesk.desk.imports.importing import ImportDesk
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.tables.experiments import EXPERIMENT

N_VARIANTS, N_CASES, N = 6, 50, 5
KILLS = (200, 550)
MOST_AFTER = 100
"""The cells that a desk begins at most after the one at which it is killed, however late the signal comes."""

AGENT = """
import os

async def agent(message):
    case, variant, trial = map(int, os.environ["CELL"].split())
    yield message if (7 * case + 3 * trial) % 12 > 2 * variant else "no"
"""
"""Passes by case, variant and trial: 11, 9, 7, 5, 3 and 1 of 12."""


def is_passed(case: int, variant: int, trial: int) -> bool:
    """Whether the agent passes in a cell."""
    return (7 * case + 3 * trial) % 12 > 2 * variant


DESK = """
import asyncio, json, os, sys
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
        cell = [spec.case_index, self.variant, spec.trial_index]
        os.environ["CELL"] = " ".join(map(str, cell))  # one trial at once
        print(json.dumps(cell), flush=True)
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
    (tmp_path / "echo_agent.py").write_text(AGENT)
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
        strips = [list(store.runs.strips(run.id)) for run in found.runs.values()]
        imports = ImportDesk(settings := Settings(tmp_path, ()), store, EvalSetDesk(settings, store))
        file = read_experiment(b"".join(experiment_parts(store, 1)), "experiment.json")
        again = results(store, import_experiment(store, imports, file, "experiment.json"))
    assert [len(part) >= n for part, n in zip(parts, (*KILLS, 1), strict=True)] == [True] * 3
    assert all([place[cell] for cell in part] == sorted(place[cell] for cell in part) for part in parts)
    assert {cell for part in parts for cell in part} == set(planned)
    assert strips == [
        ["".join("fp"[is_passed(case, variant, n)] for n in range(N)) for case in range(N_CASES)]
        for variant in range(N_VARIANTS)
    ]
    n_passed = [sum(strip.count("p") for strip in each) for each in strips]
    assert [(run.status, run.n_passed, run.n_duplicates) for run in found.runs.values()] == [
        ("finished", n, 0) for n in n_passed
    ]
    assert len({*n_passed}) == N_VARIANTS
    assert found.analysis.may_be_best == ("v0",)
    assert attempts == {1}
    assert (found.n_blocks, found.is_cut) == (N, False)
    assert (again.analysis, again.n_blocks, again.is_cut) == (found.analysis, N, False)
    assert (again.experiment.plan, again.experiment.created_at) == (found.experiment.plan, found.experiment.created_at)
    assert [run.n_passed for run in again.runs.values()] == n_passed


BEGINNING = """
import asyncio, os, shutil, signal, sys
from contextlib import contextmanager
from pathlib import Path
from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.experiments.exchange import import_experiment, read_experiment
from evaldesk.desk.experiments.experiments import ExperimentDesk
from evaldesk.desk.imports.importing import ImportDesk
from evaldesk.desk.runs.plan import RunOptions, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import InlineExecutor
from evaldesk.model import AgentRef, Case, EvalSet, Expected, Turn
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.database import Database

way, folder, first = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
CASES = tuple(Case(f"c{i}", (Turn("hi", Expected((), (), "hi")),)) for i in range(600))  # planned in several steps

def die_at(moment):
    n_moments = 0

    def pass_moment():
        nonlocal n_moments
        if n_moments == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        n_moments += 1

    whole = Database.writing

    @contextmanager
    def writing(database):
        with whole(database) as connection:
            yield connection
            pass_moment()  # before its end is stored
        pass_moment()

    Database.writing = writing

async def begin(place, moment):
    store = Store.open(place / "evaldesk.db")
    settings = Settings(place, ())
    runs = RunDesk(settings, store, open_executor=lambda config: InlineExecutor(1))
    subject = RunSubject(AgentRef("echo", "echo_agent:agent", root=str(folder)), EvalSet("set", cases=CASES), "set")
    plans = [runs.plan_for(subject, RunOptions(n=1, temperature=i / 10)) for i in range(3)]
    variants = tuple(Variant(f"v{i}", {"temperature": i / 10}) for i in range(len(plans)))
    desk = ExperimentDesk(store, runs)
    imports = ImportDesk(settings, store, EvalSetDesk(settings, store))
    plan = ExperimentPlan("kills", variants, seed=7, concurrency=1)
    die_at(moment)
    if way == "start":
        await desk.start(plan, plans)
    elif way == "submit":
        await desk.submit(plan, plans)
    elif way == "add":
        await desk.add(1, variants[1:], plans[1:])
    else:
        file = read_experiment((first / "experiment.json").read_bytes(), "experiment.json")
        import_experiment(store, imports, file, "experiment.json")
    os._exit(0)

moment, status = 0, None
while status != 0:
    place = folder / f"{way}-{moment}"
    shutil.copytree(first, place)
    child = os.fork()
    if not child:
        asyncio.run(begin(place, moment))
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    moment += 1
"""


@pytest.mark.long
@pytest.mark.parametrize("way", ["start", "submit", "add", "import"])
def test_a_kill_between_any_two_writes_leaves_a_whole_experiment_or_none(tmp_path: Path, way: str) -> None:
    first = tmp_path / "first"
    first.mkdir()
    settings = Settings(first, ())
    with Store.open(first / "evaldesk.db") as store:
        config = RunConfig(AgentRef("echo", "echo_agent:agent", root=str(tmp_path)), "set")
        variants = (Variant("v8", {"model": "v8"}), Variant("v9", {"model": "v9"}))
        plannings = [store.runs.planning(config, [Case("c0", (Turn("hi"),))]) for _ in variants]
        store.experiments.begin(ExperimentPlan("kills", variants, seed=7, concurrency=1), plannings)
        run_ids = [each.run_id for each in plannings]
        for run_id in run_ids:
            store.runs.record([TrialResult(run_id, 0, 0, "finished", "passed")])
            store.runs.set_status(run_id, "finished")
        (first / "experiment.json").write_bytes(b"".join(experiment_parts(store, 1)))
        if way != "add":
            store.runs.delete(*run_ids)
            store.runs.remove_deleted()
    (tmp_path / "echo_agent.py").write_text("async def agent(message):\n    yield message\n")
    (tmp_path / "begin.py").write_text(BEGINNING)

    subprocess.run([sys.executable, str(tmp_path / "begin.py"), way, str(tmp_path), str(first)], check=True)

    numbers = {"start": (0, 3), "submit": (0, 3), "add": (2, 4), "import": (0, 2)}[way]
    places = sorted(tmp_path.glob(f"{way}-*"), key=lambda each: int(each.name.rpartition("-")[2]))
    kept = []
    for place in places:
        with Store.open(place / "evaldesk.db") as store:
            ImportDesk(settings, store, EvalSetDesk(settings, store)).recover()
            store.runs.finish_deleting()
            experiments = store.experiments.list()
            with store._database.reading() as connection:
                n_stored = connection.scalar(select(func.count()).select_from(EXPERIMENT))
            runs = store.runs.list()
        assert n_stored == len(experiments)
        assert sorted(run.id for run in runs) == sorted(run for each in experiments for run in each.run_ids)
        assert all(len(each.run_ids) == len(each.members) == len(each.plan.variants) for each in experiments)
        kept.append(sum(len(each.run_ids) for each in experiments))
    assert kept == sorted(kept)
    assert set(kept) == set(numbers)


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
