"""`evaldesk import` and `evaldesk eval` with SIGKILL between two steps: no orphan, second record or lost number."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from sqlalchemy import func, select
from tests.forked_commands import ForkedCommands

from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.tables import METADATA
from evaldesk.store.tables.runs import LAST_RUN, RUN, VISIBLE

NEVER = 10**9
SAMPLES = Path(__file__).parents[1] / "formats" / "exchange_samples"
FILES = ("promptfoo.json", "inspect.json", "openhands.jsonl", "tau2-results.json")
"""Each has a run; the first two have an eval set, too."""
N_KILLS = 12

AGENT = "async def root_agent(message):\n    yield message\n"
HI = {"parts": [{"text": "hi"}]}
CASES = [{"eval_id": f"c{at}", "conversation": [{"user_content": HI, "final_response": HI}]} for at in range(3)]


@dataclass(frozen=True)
class Rows:
    """The rows that a kill must not leave: (status of each import), numbers of all runs, last runs without a run."""

    imports: tuple[str, ...]
    runs: tuple[int, ...]
    n_orphans: int


class KilledPlace:
    """A workspace that is brought back to its first state before each step."""

    def __init__(self, folder: Path, file: str) -> None:
        self.home = folder / "home"
        self._original = folder / "original"
        self.home.mkdir(parents=True)
        (self.home / "plain").mkdir()
        (self.home / "plain" / "agent.py").write_text(AGENT)
        (self.home / "calc.evalset.json").write_text(json.dumps({"eval_set_id": "calc", "eval_cases": CASES}))
        if file:
            (self.home / file).write_bytes((SAMPLES / file).read_bytes())
        Store.open(self._database).close()
        copytree(self.home, self._original)

    @property
    def _database(self) -> Path:
        database = Settings(self.home, (self.home,)).database
        assert isinstance(database, Path)
        return database

    def reset(self) -> None:
        rmtree(self.home)
        copytree(self._original, self.home)

    def rows(self) -> Rows:
        with Store.open(self._database) as store:
            with store.imports._database.reading() as connection:
                runs = tuple(connection.scalars(select(RUN.c.id).where(VISIBLE).order_by(RUN.c.id)))
                shown = select(RUN.c.id).where(VISIBLE)
                orphans = select(func.count()).select_from(LAST_RUN).where(LAST_RUN.c.run_id.not_in(shown))
                n_orphans = connection.scalar(orphans)
            return Rows(tuple(each.status for each in store.imports.list()), runs, n_orphans or 0)

    def n_rows_of_removed_runs(self) -> int:
        """The rows of every table of runs whose run is not there at all."""
        tables = [table for table in METADATA.tables.values() if "run_id" in table.c and table.c.run_id.foreign_keys]
        with Store.open(self._database) as store, store.imports._database.reading() as connection:
            every = select(RUN.c.id)
            counts = (select(func.count()).select_from(table).where(table.c.run_id.not_in(every)) for table in tables)
            return sum(connection.scalar(rows) or 0 for rows in counts)


def _check_kills(place: KilledPlace, commands: ForkedCommands, command: tuple[str, ...], stride: int) -> None:
    """Kill the command at each `stride`-th step, and do it again: what is there is what one command leaves."""
    place.reset()
    n_steps = commands.killed(NEVER, *command)
    whole = place.rows()
    assert n_steps

    n_killed = 0
    for at in (*range(1, n_steps, stride or max(1, n_steps // N_KILLS)), n_steps):
        place.reset()
        if commands.killed(at, *command) is not None:
            continue
        n_killed += 1
        commands.run(*command)  # refused where the killed one was whole

        found = place.rows()
        assert found == whole, at
        assert place.n_rows_of_removed_runs() == 0, at

    assert n_killed >= min(N_KILLS, n_steps) - 1


@pytest.mark.long
@pytest.mark.parametrize("file", FILES)
def test_a_killed_import_leaves_no_second_record_no_lost_number_and_no_last_run_without_a_run(
    tmp_path: Path, file: str, commands: ForkedCommands
) -> None:
    place = KilledPlace(tmp_path, file)
    command = ("import", str(place.home / file), "--workspace", str(place.home))

    _check_kills(place, commands, command, stride=0)


@pytest.mark.torture
@pytest.mark.parametrize("file", FILES)
def test_an_import_that_is_killed_at_any_step_leaves_what_one_import_leaves(
    tmp_path: Path, file: str, commands: ForkedCommands
) -> None:
    place = KilledPlace(tmp_path, file)
    command = ("import", str(place.home / file), "--workspace", str(place.home))

    _check_kills(place, commands, command, stride=1)


@pytest.mark.parametrize(
    "n_kills", [pytest.param(4, marks=pytest.mark.long), pytest.param(NEVER, marks=pytest.mark.torture)]
)
def test_a_killed_eval_leaves_no_lost_number_and_no_last_run_without_a_run(
    tmp_path: Path, n_kills: int, commands: ForkedCommands
) -> None:
    place = KilledPlace(tmp_path, "")
    command = ("eval", str(place.home / "plain"), str(place.home / "calc.evalset.json"), "--workspace", str(place.home))
    n_steps = commands.killed(NEVER, *command)
    assert n_steps

    for at in range(n_steps - 1, 0, -max(1, n_steps // n_kills)):
        place.reset()
        commands.killed(at, *command)
        after_kill = place.rows()
        commands.killed(NEVER, *command)

        assert place.rows().runs == tuple(range(1, len(after_kill.runs) + 2)), at
        assert (after_kill.n_orphans, place.rows().n_orphans, place.n_rows_of_removed_runs()) == (0, 0, 0), at
