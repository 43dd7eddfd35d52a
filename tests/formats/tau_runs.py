"""A run of tau-bench, for tests: two tasks of two trials, one passed and one failed."""

from __future__ import annotations

import json
from pathlib import Path

from evaldesk.integrations.tau.tau_bench import TauBench
from evaldesk.transcripts.recorded import RecordedRun

SAMPLE = Path(__file__).parent / "exchange_samples" / "tau-bench.json"


def run_of_two_tasks() -> RecordedRun:
    rows = json.loads(SAMPLE.read_bytes())
    rows += [{**row, "task_id": 1} for row in rows]
    (run,) = TauBench.read(json.dumps(rows).encode(), source="tau.json").runs
    return run
