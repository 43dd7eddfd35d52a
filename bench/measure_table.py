"""The table of cases by runs: search, filter and order of one run, of a large one, and of twenty runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.measure_pages import LARGE, N_ASKED, ask, give_trust, served
from bench.row import Row, rounded
from bench.seed import copy_run, seed
from evaldesk.desk.search import SearchDesk
from evaldesk.settings import Settings
from evaldesk.store import Store

N_CASES, N, N_RUNS = 1_000, 5, 20
SMALL, OF_LARGE = f"run of {N_CASES:,} x {N}", f"run of {LARGE:,} cases"
TABLE = f"table of {N_CASES:,} cases x {N_RUNS} runs x {N}"
PAGE = f"{TABLE}: processor"
METRIC = "metric:tool_trajectory_avg_score"
QUESTIONS = (
    ("search", "q=roll+prime"),
    ("order by metric", f"sort={METRIC}"),
    ("order by cost", "sort=cost"),
    ("filter by tool", "tool=roll_die"),
)
SMALLEST_KB = 10.0
"""Below it an answer has no rows."""
PACKED = {"Accept-Encoding": "gzip"}
HTMX = {"HX-Request": "true", "HX-Target": "div#table"}


def measure(folder: Path) -> Iterator[Row]:
    """The answers to one question each, as a page that is typed in asks them."""
    workspace = folder / "table"
    (workspace / ".evaldesk").mkdir(parents=True)
    database = workspace / ".evaldesk" / "evaldesk.db"
    run_id = seed(database, N_CASES, N, 0)
    with Store.open(database) as store:
        copy_run(store, run_id, N_RUNS - 1)
    _make_index(workspace)
    runs = ",".join(str(run_id + at) for at in range(N_RUNS))
    with served(workspace) as connection:
        for what, query in QUESTIONS:
            seen = ask(connection, f"/runs/{run_id}?{query}", HTMX)
            assert seen.kb > SMALLEST_KB, f"{query}: no case is shown"
            yield Row(f"{SMALL}, {what}: processor", rounded(1000 * seen.cpu_s / N_ASKED), "ms", 25)
        for what, query in (("", ""), (", search", "&q=prime"), (", order by cost", "&sort=cost"), (", page", "")):
            seen = ask(connection, f"/table?runs={runs}{query}", PACKED if what == ", page" else HTMX | PACKED)
            yield Row(f"{TABLE}{what}: processor", rounded(1000 * seen.cpu_s / N_ASKED), "ms", 50)
            yield Row(f"{TABLE}{what}, size", rounded(seen.kb), "kB", 120)
    workspace = folder / "large-table"
    (workspace / ".evaldesk").mkdir(parents=True)
    run_id = seed(workspace / ".evaldesk" / "evaldesk.db", LARGE, 1, 0)
    _make_index(workspace)
    with served(workspace) as connection:
        for what, query in QUESTIONS:
            seen = ask(connection, f"/runs/{run_id}?{query}", HTMX)
            assert seen.kb > SMALLEST_KB, f"{query}: no case is shown"
            yield Row(f"{OF_LARGE}, {what}: processor", rounded(1000 * seen.cpu_s / N_ASKED), "ms", 80)


def _make_index(workspace: Path) -> None:
    """Index the texts before the desk is opened, which does so with rests."""
    give_trust(workspace)
    settings = Settings(workspace=workspace, roots=())
    with Store.open(settings.database) as store:
        SearchDesk(settings, store).catch_up(pause_factor=0)
