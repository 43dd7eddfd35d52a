"""The trend of an eval set over its newest 500 runs: the page, and the strip of the set's page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.measure_pages import N_ASKED, ask, give_trust, large_set, served
from bench.row import Row, rounded
from bench.seed import copy_run, play
from evaldesk.store import Store
from evaldesk.store.evalsets.names import identity_of

N_CASES, N, N_RUNS, N_LEVELS = 20, 5, 500, 5
TREND = f"trend over {N_RUNS} runs"
PAGE = f"{TREND}: processor"
PACKED = {"Accept-Encoding": "gzip"}


def measure(folder: Path) -> Iterator[Row]:
    """The page of runs whose results change four times."""
    workspace = folder / "trend"
    (workspace / ".evaldesk").mkdir(parents=True)
    path = workspace / "calc.evalset.json"
    path.write_text(json.dumps(large_set(N_CASES)))
    evalset_id = identity_of(path, workspace)
    with Store.open(workspace / ".evaldesk" / "evaldesk.db") as store:
        for luck in range(N_LEVELS):
            run_id = play(store, Random(luck), N_CASES, N, has_words=False, evalset_id=evalset_id)
            copy_run(store, run_id, N_RUNS // N_LEVELS - 1)
    give_trust(workspace)
    with served(workspace, ".") as connection:
        for what, place in (("", f"/evalsets/{evalset_id}/trend"), (", page of the set", f"/evalsets/{evalset_id}")):
            seen = ask(connection, place, PACKED)
            yield Row(f"{TREND}{what}: processor", rounded(1000 * seen.cpu_s / N_ASKED), "ms", 50)
            yield Row(f"{TREND}{what}, size", rounded(seen.kb), "kB", 60)
