"""What `--baseline` names: a run of the workspace by its number, or the JSON file of an earlier one."""

from __future__ import annotations

import json
from pathlib import Path

from evaldesk.desk.run_numbers import run_numbers
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.report.gates import Baseline
from evaldesk.store import Store


def read_baseline(store: Store, given: str) -> Baseline:
    """The verdicts of the cases of an earlier run. Raises UsageError saying what was found."""
    path = Path(given)
    if path.is_file():
        return _of_file(path)
    if not given.isdecimal():
        raise UsageError(f"--baseline {given}: neither a file nor the number of a run; `evaldesk run list` shows them")
    try:
        summary = store.runs.summary(int(given))
    except NotFoundError as error:
        raise NotFoundError(f"--baseline {given}: {error}") from error
    return Baseline(f"run {given}", run_numbers(store, summary).verdicts)


def _of_file(path: Path) -> Baseline:
    try:
        value = json.loads(path.read_text("utf-8-sig"))
        verdicts = {
            str(case["case_id"]): bool(case["is_passed"])
            for run in value["runs"]
            for case in run["cases"]
            if case["is_passed"] is not None
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"this is not JSON: {error}" if isinstance(error, ValueError) else "this holds no runs"
        raise UsageError(f"--baseline {path}: {said}; name a file that `evaldesk eval -o FILE.json` wrote") from error
    return Baseline(path.name, verdicts)
