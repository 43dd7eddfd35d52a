"""Two runs of 1,000 cases compared, and 10,000 stored trials scored again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.measure_pages import ask, served
from bench.row import Row, rounded
from bench.seed import seed
from evaldesk.desk.desk import Desk
from evaldesk.model import Criterion
from evaldesk.settings import Settings

N_CASES, N = 1000, 5
N_RESCORED = 10
COMPARISON = "comparison of two 1,000-case runs"
CRITERIA = (Criterion("tool_trajectory_avg_score", 1.0), Criterion("response_match_score", 0.8))


def measure(folder: Path) -> list[Row]:
    """The page of a comparison with its statistics, the spread of a run, and scoring without playing."""
    return [*_pages(folder / "pages"), _rescoring(folder / "rescoring")]


def _pages(workspace: Path) -> list[Row]:
    (workspace / ".evaldesk").mkdir(parents=True)
    database = workspace / ".evaldesk" / "evaldesk.db"
    a, b = (seed(database, N_CASES, N, 0, luck=luck) for luck in (1, 2))
    rows = []
    with served(workspace) as connection:
        for what, path, budget in (
            (COMPARISON, f"/compare?a={a}&b={b}", 150),
            ("spread of a run, 1,000 x 5", f"/runs/{b}/spread", None),
        ):
            seen = ask(connection, path)
            rows += [Row(what, rounded(seen.ms), "ms", budget), Row(f"{what}, size", rounded(seen.kb), "kB")]
    return rows


def _rescoring(workspace: Path) -> Row:
    (workspace / ".evaldesk").mkdir(parents=True)
    run_id = seed(workspace / ".evaldesk" / "evaldesk.db", N_CASES, N_RESCORED, 0)
    return Row(
        "stored trials scored again by two metrics",
        rounded(N_CASES * N_RESCORED / asyncio.run(_score_again(workspace, run_id))),
        "/s",
    )


async def _score_again(workspace: Path, run_id: int) -> float:
    settings = Settings(workspace=workspace, roots=())
    desk = Desk.open(settings)
    started = time.perf_counter()
    again = await desk.runs.rescore(run_id, CRITERIA)
    async for _ in desk.runs.watch(again):
        pass
    took_s = time.perf_counter() - started
    summary = await desk.runs.summary(again)
    assert summary.n_done == N_CASES * N_RESCORED, summary
    await desk.close()
    return took_s
