"""Random rows of an `index.jsonl` of Osmosis, the same for a seed in the tests and where their golden was made."""

from __future__ import annotations

import random
from typing import Any

THRESHOLDS = (0.5, 0.7, 1.0)


def random_index(seed: int) -> tuple[list[dict[str, Any]], float]:
    """The rows of up to 12 samples with up to 5 attempts each, and the threshold of their run."""
    chance = random.Random(seed)
    n_rows, n_runs = chance.randint(1, 12), chance.randint(1, 5)
    rows = [
        _row(chance, row, run) for row in range(n_rows) for run in range(n_runs) if run == 0 or chance.random() < 0.9
    ]
    return rows, chance.choice(THRESHOLDS)


def _row(chance: random.Random, row: int, run: int) -> dict[str, Any]:
    status = chance.choices(("success", "failed", "skipped"), (8, 2, 1))[0]
    has_reward = status == "success" or (status == "failed" and chance.random() < 0.4)
    reward = {"reward": chance.choice((0, 0.25, 0.5, 0.7, 0.9, 1, 1.0))} if has_reward else {}
    error = {"error_type": "TimeoutError"} if status == "failed" else {}
    facts = {"row_index": row, "run_index": run, "rollout_id": f"{row}-{run}", "status": status, "duration_ms": 5.0}
    return {**facts, **reward, "tokens": chance.randint(0, 900), **error}
