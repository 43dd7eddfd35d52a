"""An import of 120,000 cases: nobody waits for it, and its memory does not grow with the cases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torture

N_CASES = 120_000
MAX_GROWTH_KIB = 64 * 1024

IMPORT = """
import json, resource, sys
from pathlib import Path
from tests.desk.test_import_steps import ImportFolder, counted_rows, generated
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn
from evaldesk.store import Store

folder = Path(sys.argv[1])
(folder / ".evaldesk").mkdir()
store = Store.open(folder / ".evaldesk" / "evaldesk.db")
place = ImportFolder(folder, store)
rows = counted_rows(store)
place.take_in(generated(2_000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

other = Store.open(folder / ".evaldesk" / "evaldesk.db")
cases = [Case(f"m{i}", (Turn("Hi"),)) for i in range(200)]
mine = other.runs.create(RunConfig(AgentRef("hello", "a:b"), "calc"), cases)
recorded = []

def watch(n_done, n_total):
    if len(recorded) < 200 and n_done > len(recorded) * n_total / 250:
        recorded.append(other.runs.record([TrialResult(mine, len(recorded), 0, "finished", "passed")]))

place.take_in(generated(int(sys.argv[2])), watch=watch)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
shown = sorted((run.n_passed, run.n_trials) for run in store.runs.list())
print(json.dumps({"grown_kib": grown, "most_rows": max(rows), "recorded": sum(recorded), "shown": shown}))
"""


def test_a_run_is_recorded_beside_an_import_of_very_many_cases(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORT, str(tmp_path), str(N_CASES)]

    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["shown"] == [[200, 200], [2_000, 2_000], [N_CASES, N_CASES]]
    assert found["recorded"] == 200
    assert found["most_rows"] <= 1_500
    assert found["grown_kib"] <= MAX_GROWTH_KIB
