"""`make bench`: measures, prints one table, writes bench/results.json. It reports; it asserts nothing."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import (
    measure_assets,
    measure_comparison,
    measure_llm,
    measure_metrics,
    measure_pages,
    measure_players,
    measure_scale,
    measure_start,
    measure_trials,
)
from bench.row import Row

MEASURES: tuple[Callable[[Path], list[Row]], ...] = (
    measure_trials.measure,  # first: its largest process is that of all children so far
    measure_start.measure,
    measure_llm.measure,
    measure_players.measure,
    measure_pages.measure,
    measure_comparison.measure,
    measure_metrics.measure,
    measure_assets.measure,
    measure_scale.measure,
)


@dataclass(frozen=True)
class Machine:
    """What the figures were taken on."""

    python: str
    system: str
    processor: str


def main() -> None:
    """Run every measure in a workspace of its own."""
    os.environ["EVALDESK_TRUST"] = "1"  # the workspaces are filled without a desk
    rows: list[Row] = []
    for measure in MEASURES:
        with tempfile.TemporaryDirectory(prefix="evaldesk-bench-") as folder:
            rows += measure(Path(folder))
            _show(rows[-1:] if len(rows) == 1 else rows, only_new=True)
    machine = Machine(sys.version.split()[0], platform.platform(), platform.machine())
    results = {"machine": asdict(machine), "rows": [asdict(row) for row in rows]}
    Path(__file__).with_name("results.json").write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    _show(rows, only_new=False)


def _show(rows: list[Row], *, only_new: bool) -> None:
    if only_new:
        print(f"… {rows[-1].what}: {rows[-1].value} {rows[-1].unit}", file=sys.stderr)
        return
    width = max(len(row.what) for row in rows)
    print(f"{'what'.ljust(width)}  {'measured':>12}  {'budget':>12}")
    for row in rows:
        budget = f"{row.budget:g} {row.unit}" if row.budget is not None else ""
        print(f"{row.what.ljust(width)}  {f'{row.value:g} {row.unit}':>12}  {budget:>12}")


if __name__ == "__main__":
    main()
