"""A run as a baseline: the facts of its cases in a JSON file, and the reader of that file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any

from evaldesk.errors import UsageError
from evaldesk.model.comparison import Bar, Baseline, PlayedCase
from evaldesk.model.evalset import CaseKey
from evaldesk.model.history import MOST_TRIALS, ONE_DAY, CaseHistory, RunDays
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.statistics.history.days import SIGMAS

VERSION = 3
_OF_BYTES = 2
"""The version whose digests were of all bytes of a case: they say nothing of its version."""
_OF_PATH = re.compile(r"-[0-9a-f]{8}$")
"""Ends the id of an eval set: a digest of its path, which is another one on another machine."""


def read_baseline_file(name: str) -> Baseline | None:
    """The cases in the JSON file of an earlier run; None for a number. Raises UsageError for another content."""
    path = Path(name)
    if path.is_file():
        return _of_file(path)
    if not name.isdecimal():
        raise UsageError(f"--baseline {name}: neither a file nor the number of a run; `evaldesk run list` shows them")
    return None


def case_object(case: PlayedCase) -> dict[str, Any]:
    """The facts of a case that a later baseline needs; `played_case` reads them."""
    return {
        "evalset": case.key.evalset,
        "case_id": case.key.case_id,
        "ordinal": case.key.ordinal,
        "digest": case.key.digest,
        "trials": case.verdicts,
        "pass_threshold": case.pass_threshold,
        "errors_are_failures": case.errors_are_failures,
        "asserted": dict(case.asserted or {}),
        "history": case.past,
        **({"is_left_out": True} if case.is_left_out else {}),
    }


def days_object(days: RunDays) -> dict[str, Any]:
    """How far the runs of the history differ from day to day, for a later baseline; `days_of_runs` reads it."""
    return {"n_runs": days.n_runs, "weights": days.weights}


def days_of_runs(runs: Sequence[Any]) -> RunDays:
    """Over the eval sets of the file: the mean over those whose runs tell it. Older files do not."""
    days_of_runs = [
        RunDays(int(days["n_runs"]), tuple(map(float, days["weights"])))
        for days in (run.get("history_days") for run in runs)
        if days
    ]
    if any(len(days.weights) not in (0, len(SIGMAS)) for days in days_of_runs):
        raise ValueError("weights of days")
    weights_of_days = [days.weights for days in days_of_runs if days.weights]
    weights = tuple(fsum(column) / len(weights_of_days) for column in zip(*weights_of_days, strict=True))
    return RunDays(max((days.n_runs for days in days_of_runs), default=0), weights)


def bar_object(bar: Bar) -> dict[str, Any]:
    """The bar of a metric as JSON, for a later baseline; `_bar` reads it."""
    return {"metric": bar.metric, "threshold": bar.threshold, "options": bar.options}


def _bar(value: Any) -> Bar:
    return Bar(str(value["metric"]), float(value["threshold"]), str(value["options"]))


def _of_file(path: Path) -> Baseline:
    try:
        value = json.loads(read_regular_file(path).decode("utf-8-sig"))
        version, days, shard = value.get("version", 1), ONE_DAY, ""
        cases = tuple(_first_version(value)) if version == 1 else ()
        bars: dict[str, tuple[Bar, ...]] = {}
        if version in (_OF_BYTES, VERSION):
            cases = tuple(played_case(case) for run in value["runs"] for case in run["cases"])
            bars = {str(case["evalset"]): bars_of_run(run) for run in value["runs"] for case in run["cases"][:1]}
            days = days_of_runs(value["runs"])
            shard = next((_shard_words(run["shard"]) for run in value["runs"] if run.get("shard")), "")
        if version == _OF_BYTES:
            cases = tuple(replace(case, key=replace(case.key, digest="")) for case in cases)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        why = "this contains no runs"
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
            why = f"this is not JSON: {error}"
        elif isinstance(error, ValueError):
            why = f"this contains a run that cannot be: {error}"
        raise UsageError(f"--baseline {path}: {why}; name a file that `evaldesk eval -o FILE.json` wrote") from error
    if version not in range(1, VERSION + 1):
        raise UsageError(f"--baseline {path}: version {version!r} is not known, versions 1 to {VERSION} are")
    return Baseline(path.name, cases, bars=bars, days=days, shard=shard)


def _shard_words(shard: Any) -> str:
    return f"{int(shard['number'])}/{len(shard['sizes'])}"


def bars_of_run(run: Any) -> tuple[Bar, ...]:
    """The bars of a run in its JSON; older files have none."""
    return tuple(map(_bar, run.get("criteria", ())))


def played_case(case: Any) -> PlayedCase:
    """The case in the JSON that `case_object` gives. Raises LookupError, TypeError and ValueError for another."""
    key = CaseKey(str(case["evalset"]), str(case["case_id"]), int(case["ordinal"]), str(case["digest"]))
    return PlayedCase(
        key=key,
        verdicts=str(case["trials"]),
        pass_threshold=float(case["pass_threshold"]),
        errors_are_failures=bool(case["errors_are_failures"]),
        asserted={str(kind): int(n) for kind, n in case["asserted"].items()},
        history=_history(case["history"]) if "history" in case else None,
        is_left_out=bool(case.get("is_left_out", False)),
    )


def _history(value: Any) -> CaseHistory:
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int for n in value):
        raise ValueError(f"a history must be two whole numbers, scored and passed trials, not {value!r:.40}")
    n_scored, n_passed = value
    if not 0 <= n_passed <= n_scored:
        raise ValueError(f"a history of {n_scored} scored trials has 0 to {n_scored} passed ones, not {n_passed}")
    if n_scored > MOST_TRIALS:
        raise ValueError(f"a history has at most the newest {MOST_TRIALS:,} trials of a case, not {n_scored:,}")
    return CaseHistory(n_scored, n_passed)


def _first_version(value: Any) -> Iterator[PlayedCase]:
    """Cases by counts: the order of their trials and their content are not known."""
    for run in value["runs"]:
        evalset = _OF_PATH.sub("", str(run.get("evalset_id", "")))
        last_ordinals: dict[str, int] = {}
        for case in run["cases"]:
            name = str(case["case_id"])
            ordinal = last_ordinals[name] = last_ordinals.get(name, -1) + 1
            yield _by_counts(CaseKey(evalset, name, ordinal), case)


def _by_counts(key: CaseKey, case: Any) -> PlayedCase:
    """`is_passed` alone says which share of the trials had to pass, `pass_rate` whether errors were failures."""
    n_passed, is_passed, rate = int(case.get("n_passed", case["is_passed"])), case["is_passed"], case.get("pass_rate")
    n_failed = int(case.get("n_failed", is_passed is False))
    n_errored = int(case.get("n_errored", 0))
    n_scored = n_passed + n_failed
    counts_errors = rate is not None and abs(rate * n_scored - n_passed) > 1e-9
    return PlayedCase(
        key=key,
        verdicts="p" * n_passed + "f" * n_failed + "e" * n_errored,
        pass_threshold=float(rate) if is_passed and rate is not None else 1.0,
        errors_are_failures=counts_errors or (not n_scored and rate is not None),
        is_ordered=False,
    )
