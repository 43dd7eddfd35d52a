"""Large eval sets: pages of a fresh desk beside them, and the commands that read them."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path

from bench.measure_pages import TOKEN, served
from bench.row import Row, rounded

SIZES = (10_000, 200_000)
HEALTH = """
from time import process_time
from evaldesk.cli.runs.shared import opened_desk
from evaldesk.pages.door.evalsets import find_file
from evaldesk.pages.set_health.health import read_health
with opened_desk(None) as desk:
    begun = process_time()
    read_health(desk, find_file(desk, "rows"), None, "")
    print(process_time() - begun)
"""
"""The health of a set that was read before, in a process of its own."""


def measure(folder: Path) -> list[Row]:
    """Home, set page and run form when the set was read before; validate and import of a data set."""
    return [row for n in SIZES for row in _measure_of(folder / str(n), n)]


def _measure_of(folder: Path, n: int) -> list[Row]:
    (folder / "evalsets").mkdir(parents=True)
    rows = folder / "rows.jsonl"
    with rows.open("w") as file:
        for number in range(n):
            row = {"user_prompt": f"Add {number} and {number}.", "label": f"{2 * number}", "system_prompt": "Add."}
            file.write(json.dumps(row) + "\n")
    found = []
    for command in ("validate", "import"):
        cpu_s, mib = _spent([sys.executable, "-m", "evaldesk", command, str(rows)], folder)
        found.append(Row(f"{command}, {n:,} rows", rounded(cpu_s), "CPU-s"))
        found.append(Row(f"{command}, {n:,} rows, largest process", rounded(mib), "MiB"))
    return found + _pages(folder, n)


def _spent(command: list[str], folder: Path) -> tuple[float, float]:
    """The CPU seconds and the largest memory of a command."""
    script = f"import resource, subprocess; subprocess.run({command!r}, check=True, stdout=subprocess.DEVNULL); "
    script += "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
    script += "print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    cpu_s, mib = done.stdout.split()
    return float(cpu_s), float(mib)


def _pages(folder: Path, n: int) -> list[Row]:
    with served(folder, ".") as connection:
        while "being read" in _ask(connection, "/evalsets")[1]:
            time.sleep(1)
        time.sleep(3)  # until its line is kept
        set_id = "rows-" + _ask(connection, "/evalsets")[1].partition("/evalsets/rows-")[2][:8]
    form = f"/runs/new?evalset={set_id}"
    pages = (
        ("home, first hit", "/", 150),
        ("set page", f"/evalsets/{set_id}", None),
        ("run form", form, None),
        ("run form again", form, 50),
    )
    with served(folder, ".") as connection:
        rows = [
            Row(f"{what}, a set of {n:,} cases", rounded(_ask(connection, path)[0]), "ms", budget)
            for what, path, budget in pages
        ]
    done = subprocess.run([sys.executable, "-c", HEALTH], cwd=folder, capture_output=True, text=True, check=True)
    return [*rows, Row(f"health, a set of {n:,} cases: processor", rounded(float(done.stdout)), "CPU-s", 3)]


def _ask(connection: http.client.HTTPConnection, path: str) -> tuple[float, str]:
    """Milliseconds until the last byte, and the page."""
    started = time.perf_counter()
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    text = connection.getresponse().read().decode()
    return 1000 * (time.perf_counter() - started), text
