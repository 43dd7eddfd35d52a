"""`make bench`: measures, prints one table, writes bench/results.json and docs/performance.md. It asserts nothing.

`make bench ARGS="pages live"` takes some of the measures again; the others stay as they were. The two
commands of the README in a bare clone are timed only by their name, `ARGS=newcomer`, since the tests take as long as
all other measures.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench import (
    measure_assets,
    measure_browser,
    measure_commands,
    measure_comparison,
    measure_inbox,
    measure_large_run,
    measure_live,
    measure_llm,
    measure_long,
    measure_metrics,
    measure_newcomer,
    measure_pages,
    measure_players,
    measure_scale,
    measure_secrets,
    measure_sets,
    measure_start,
    measure_table,
    measure_tools,
    measure_trend,
    measure_trials,
)
from bench.budgets import page, with_rows
from bench.processor import cpu_s
from bench.row import Row, rounded

MEASURES: Mapping[str, Callable[[Path], Iterable[Row]]] = {
    "trials": measure_trials.measure,  # first: its largest process is that of all children so far
    "start": measure_start.measure,
    "commands": measure_commands.measure,
    "llm": measure_llm.measure,
    "players": measure_players.measure,
    "secrets": measure_secrets.measure,
    "scale": measure_scale.measure,
    "pages": measure_pages.measure,
    "long": measure_long.measure,
    "sets": measure_sets.measure,
    "comparison": measure_comparison.measure,
    "table": measure_table.measure,
    "trend": measure_trend.measure,
    "tools": measure_tools.measure,
    "large_run": measure_large_run.measure,
    "live": measure_live.measure,
    "browser": measure_browser.measure,
    "inbox": measure_inbox.measure,
    "metrics": measure_metrics.measure,
    "assets": measure_assets.measure,
    "newcomer": measure_newcomer.measure,
}
BY_NAME_ONLY = {"newcomer"}
RESULTS = Path(__file__).with_name("results.json")
KEEPING_S = 0.03
"""To keep a row and write the page takes no longer."""
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


@dataclass(frozen=True)
class Machine:
    """What the figures were taken on."""

    python: str
    system: str
    processor: str
    n_cores: int

    def __str__(self) -> str:
        return f"{self.n_cores} cores ({self.processor}), {self.system}, Python {self.python}"


def main() -> None:
    """Run the measures that are named, or all, each in a workspace of its own; once all were run, write the page.

    One that breaks off keeps no other from being taken; the command fails at the end then.
    """
    os.environ["EVALDESK_TRUST"] = "1"  # the workspaces are filled without a desk
    chosen = sys.argv[1:] or [name for name in MEASURES if name not in BY_NAME_ONLY]
    if unknown := set(chosen) - MEASURES.keys():
        sys.exit(f"no such measure: {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    machine = Machine(sys.version.split()[0], platform.platform(), platform.machine(), os.cpu_count() or 1)
    kept = _kept(machine)
    broken = []
    for name in chosen:
        began, kept[name] = time.monotonic(), []
        try:
            for row in _measured(MEASURES[name]):
                kept[name].append(row)
                _keep(machine, kept)
        except Exception:
            traceback.print_exc()
            broken.append(name)
        print(f"… {name} took {time.monotonic() - began:.0f} s", file=sys.stderr)
    _keep(machine, kept)
    _show([row for name in chosen for row in kept[name]])
    if missing := MEASURES.keys() - BY_NAME_ONLY - kept.keys():
        print(f"docs/performance.md has its other rows from before, not measured now: {', '.join(sorted(missing))}")
    if broken:
        sys.exit(f"broke off: {', '.join(broken)}")


def _kept(machine: Machine) -> dict[str, list[Row]]:
    """The rows of earlier measures on this machine."""
    try:
        found = json.loads(RESULTS.read_text("utf-8"))
        if found["machine"] == asdict(machine):
            return {name: [Row(**row) for row in rows] for name, rows in found["rows"].items() if name in MEASURES}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # none, or those of another version
        pass
    return {}


def _keep(machine: Machine, kept: Mapping[str, list[Row]]) -> None:
    """Store the rows so far, also those of a measure that breaks off; with all measures there, write the page, too."""
    rows = {name: [asdict(row) for row in kept[name]] for name in MEASURES if name in kept}
    RESULTS.write_text(json.dumps({"machine": asdict(machine), "rows": rows}, indent=2) + "\n", "utf-8")
    if kept.keys() >= MEASURES.keys() - BY_NAME_ONLY:
        PAGE.write_text(page(str(machine), [row for name in MEASURES for row in kept.get(name, [])]), "utf-8")
    elif str(machine) in (text := PAGE.read_text("utf-8")):
        PAGE.write_text(with_rows(text, [row for rows in kept.values() for row in rows]), "utf-8")


def _measured(measure: Callable[[Path], Iterable[Row]]) -> Iterator[Row]:
    """The rows of a measure with the load, and those without processor time with that since the row before.

    Rows that were taken together have the same.
    """
    with tempfile.TemporaryDirectory(prefix="evaldesk-bench-", ignore_cleanup_errors=True) as folder:
        before, spent_s = cpu_s(), 0.0
        for row in measure(Path(folder)):
            since_s = cpu_s() - before
            spent_s = row.cpu_s if row.cpu_s is not None else rounded(since_s) if since_s > KEEPING_S else spent_s
            before = cpu_s()
            print(f"… {row.what}: {row.value:g} {row.unit}", file=sys.stderr)
            yield replace(row, cpu_s=spent_s, load=rounded(os.getloadavg()[0]))


def _show(rows: list[Row]) -> None:
    width = max((len(row.what) for row in rows), default=0)
    print(f"{'what'.ljust(width)}  {'measured':>14}  {'budget':>14}  {'processor':>10}  {'load':>5}")
    for row in rows:
        budget = f"{row.budget:g} {row.unit}" if row.budget is not None else ""
        figures = (
            f"{f'{row.value:g} {row.unit}':>14}  {budget:>14}  {f'{row.cpu_s or 0:g} s':>10}  {row.load or 0:>5.1f}"
        )
        print(f"{row.what.ljust(width)}  {figures}")


if __name__ == "__main__":
    main()
