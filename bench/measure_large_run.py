"""One run of many trials on SQLite: given out, taken in, looked at, scored again, copied and deleted.

Each step is a command of its own. While it works, another process asks for the write lock all the time; what it waits
at most is what a chat beside it would wait. EVALDESK_BENCH_LARGE is the number of trials; EVALDESK_BENCH_STEPS names
some of the steps and EVALDESK_BENCH_FORMATS some of the formats, whose files of 1,000,000 trials have up to 13 GB.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread

from bench.measure_pages import ask, served
from bench.processor import cpu_s_below, peak_mib_of
from bench.row import Row, rounded
from bench.seed import multiply, seed
from evaldesk.formats.files import names_for
from evaldesk.store import Store

N_TRIALS = int(os.environ.get("EVALDESK_BENCH_LARGE", "20000"))
N_CASES, N_FIRST = 1_000, 10
WHAT = f"one run of {N_TRIALS:,} trials"
IMPORTED = ("openhands", "adk-results", "osmosis-results")
LOCK_MS = 100
CRITERIA = {"criteria": {"tool_trajectory_avg_score": 1.0}}
STEPS = ("pages", "export", "import", "copy", "delete", "rescore")


def measure(folder: Path) -> Iterator[Row]:
    """Every step on one run; the imports are of files that the exports wrote."""
    (folder / ".evaldesk").mkdir()
    database = folder / ".evaldesk" / "evaldesk.db"
    run_id = seed(database, N_CASES, N_FIRST, 0)
    with Store.open(database) as store:
        multiply(store, run_id, N_TRIALS // N_CASES // N_FIRST)
    chosen = os.environ.get("EVALDESK_BENCH_STEPS", ",".join(STEPS)).split(",")
    if "pages" in chosen:
        yield from _pages(folder, run_id, seed(database, N_CASES, N_FIRST, 0, luck=2))
    formats = os.environ.get("EVALDESK_BENCH_FORMATS", ",".join(("csv", *names_for("run")))).split(",")
    imported = [name for name in IMPORTED if name in formats] if "import" in chosen else []
    for name in formats if "export" in chosen else imported:
        written = folder / f"written.{name}"
        yield from _step(
            folder, f"exported as {name}", "run", "export", str(run_id), "--format", name, "-o", str(written)
        )
        yield Row(f"{WHAT} as {name}, size", rounded(written.stat().st_size / 2**20), "MiB")
        if name not in imported:
            written.unlink()
    for name in imported:
        yield from _step(folder, f"imported from {name}", "import", str(folder / f"written.{name}"), "--from", name)
    if "copy" in chosen:
        (folder / "copy" / ".evaldesk").mkdir(parents=True)
        yield from _step(folder, "copied to another store", "store", "copy", ".", "copy", has_writer=False)
    if "rescore" in chosen:
        (folder / "criteria.json").write_text(json.dumps(CRITERIA))
        yield from _step(folder, "scored again", "run", "rescore", str(run_id), "--config-file-path", "criteria.json")
    if "delete" in chosen:
        yield from _step(folder, "moved to the trash", "run", "rm", str(run_id), "--yes")
        yield from _step(folder, "removed from the trash", "trash", "empty", "--yes")


def _pages(folder: Path, run_id: int, other: int) -> Iterator[Row]:
    with served(folder) as connection:
        for what, path in (
            ("its page", f"/runs/{run_id}"),
            ("its page by cost", f"/runs/{run_id}?sort=cost"),
            ("a trial of it", f"/runs/{run_id}/cases/3/trials/2"),
            ("compared with another run", f"/compare?a={other}&b={run_id}"),
            ("runs list", "/runs"),
        ):
            seen = ask(connection, path)
            yield Row(f"{WHAT}, {what}", rounded(seen.ms), "ms", cpu_s=rounded(seen.cpu_s))
        yield Row(f"{WHAT}, largest memory of its desk", rounded(peak_mib_of(connection.pid)), "MiB")


def _step(folder: Path, what: str, *command: str, has_writer: bool = True) -> Iterator[Row]:
    os.sync()
    process = subprocess.Popen([sys.executable, "-m", "evaldesk", *command], cwd=folder, stdout=subprocess.DEVNULL)
    cpu_s, peak_mib, waited_ms = 0.0, 0.0, [0.0]
    stop = Event()
    writer = Thread(target=_write, args=(folder / ".evaldesk" / "evaldesk.db", stop, waited_ms))
    if has_writer:
        writer.start()
    while process.poll() is None:
        cpu_s, peak_mib = max(cpu_s, cpu_s_below(process.pid)), max(peak_mib, peak_mib_of(process.pid))
        time.sleep(0.05)
    stop.set()
    if has_writer:
        writer.join()
    assert process.returncode in (0, 1, 3), command  # 1 and 3 are the answers of gates
    yield Row(f"{WHAT}, {what}: processor", rounded(cpu_s), "s", cpu_s=rounded(cpu_s))
    yield Row(f"{WHAT}, {what}: largest process", rounded(peak_mib), "MiB", cpu_s=rounded(cpu_s))
    if has_writer:
        yield Row(f"{WHAT}, {what}: longest wait for the lock", rounded(waited_ms[0]), "ms", LOCK_MS, rounded(cpu_s))


def _write(database: Path, stop: Event, waited_ms: list[float]) -> None:
    """Take the write lock again and again, and keep the longest wait for it."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=0)) as connection:
        while not stop.wait(0.02):
            began = time.perf_counter()
            while not _taken(connection.execute):
                time.sleep(0.001)
            waited_ms[0] = max(waited_ms[0], 1000 * (time.perf_counter() - began))


def _taken(execute: Callable[[str], object]) -> bool:
    with suppress(sqlite3.OperationalError):
        execute("BEGIN IMMEDIATE")
        execute("ROLLBACK")
        return True
    return False
