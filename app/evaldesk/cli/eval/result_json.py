"""Runs and gates as JSON: the output of `evaldesk eval --json`, and the input of a later `--baseline`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from evaldesk import __version__
from evaldesk.cli.eval.playing import Played
from evaldesk.desk.runs.gates import CaseNumbers, RunNumbers
from evaldesk.desk.runs.numbers import other_verdicts, played_cases, run_numbers
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import Conclusion, Counts
from evaldesk.model.comparison import Baseline, PlayedCase, RunChange
from evaldesk.model.conclusion import Interval
from evaldesk.model.evalset import CaseKey
from evaldesk.model.run import option_values
from evaldesk.model.stored import MetricRow, RunSummary
from evaldesk.pages.run_facts import run_fingerprint
from evaldesk.pages.run_reliability import metric_interval
from evaldesk.store import Store
from evaldesk.wording.comparison import change_sentence
from evaldesk.wording.metrics import asserted_lines


def result_json(store: Store, played: Sequence[Played], conclusion: Conclusion, change: RunChange | None = None) -> str:
    """The runs with their cases and the conclusion, as one JSON object; `change` is against the baseline."""
    whole: dict[str, Any] = {"evaldesk_version": __version__, "version": VERSION, **conclusion_object(conclusion)}
    if change is not None:
        whole["baseline"] = _baseline_object(change)
    cases = iter(played_cases(store.runs, [each.run for each in played]))
    whole["runs"] = [_run_object(store, each.run, list(islice(cases, each.run.n_cases))) for each in played]
    return json.dumps(whole, indent=2, ensure_ascii=False)


def conclusion_object(conclusion: Conclusion) -> dict[str, Any]:
    """The conclusion as JSON says it; `is_held` is whether it is `passed`."""
    return {
        "outcome": conclusion.outcome,
        "is_held": conclusion.is_passed,
        "reasons": list(conclusion.reasons),
        "counts": counts_object(conclusion.counts),
        "gates": [
            {"name": each.name, "answer": each.answer, "is_held": each.is_held, "sentence": each.sentence}
            for each in conclusion.gates
        ],
    }


def counts_object(counts: Counts) -> dict[str, int]:
    """How the planned trials ended."""
    return {
        "n_planned": counts.planned,
        "n_passed": counts.passed,
        "n_failed": counts.failed,
        "n_errored": counts.errored,
        "n_unscored": counts.unscored,
        "n_not_applicable": counts.not_applicable,
        "n_unplayed": counts.unplayed,
        "n_scored": counts.scored,
    }


def _baseline_object(change: RunChange) -> dict[str, Any]:
    """The change of each case since the baseline."""
    return {
        "name": change.name,
        "sentence": change_sentence(change),
        "n_regressed": len(change.regressed),
        "cases": [
            {
                "evalset": case.key.evalset,
                "case_id": case.key.case_id,
                "ordinal": case.key.ordinal,
                "state": case.state,
                "is_regression": case.is_regression,
            }
            for case in change.cases
        ],
    }


def run_object(run: RunSummary, numbers: RunNumbers) -> dict[str, Any]:
    """One run with its numbers, as JSON says it; unknown is null."""
    curve = numbers.curve
    return {
        "run_id": run.id,
        "status": run.status,
        "reason": run.reason,
        "agent": run.config.agent.id,
        "model": run.config.model or run.config.agent_model,
        "evalset_id": run.config.evalset_id,
        "n": run.config.n,
        "options": option_values(run.config),
        "fingerprint": run_fingerprint(run.config),
        "n_cases": run.n_cases,
        "n_trials": run.n_trials,
        **counts_object(run.counts),
        "not_applicable": not_applicable(run),
        "pass_rate": run.counts.rate,
        "interval": ends(numbers.interval),
        "pass_at_k": {str(point.k): point.pass_at_k for point in curve},
        "pass_at_k_interval": {str(point.k): ends(point.at_interval) for point in curve},
        "pass_hat_k": {str(point.k): point.pass_hat_k for point in curve},
        "pass_hat_k_interval": {str(point.k): ends(point.hat_interval) for point in curve},
        "tokens": run.tokens_in + run.tokens_out,
        "cost": None if run.n_unpriced else run.cost,
        "n_unpriced": run.n_unpriced,
        "duration_ms": run.duration_ms,
        "active_ms": run.active_ms,
    }


def ends(interval: Interval | None) -> list[float] | None:
    """Both ends of an interval, as JSON says them."""
    return [interval.low, interval.high] if interval else None


def not_applicable(run: RunSummary) -> list[dict[str, Any]]:
    """The metrics that do not apply to every case: in how many they do."""
    asserted = run.config.n_asserted
    return [
        {"metric": metric, "n_cases_asserted": n, "n_cases": run.n_cases, "sentence": sentence}
        for (metric, n), sentence in zip(asserted.items(), asserted_lines(run.config, run.n_cases), strict=True)
    ]


def _run_object(store: Store, run: RunSummary, played: Sequence[PlayedCase]) -> dict[str, Any]:
    numbers = run_numbers(store, run)
    others = [asdict(found) for found in other_verdicts(store, run)]
    cases = [case_object(each) | _case_object(case) for each, case in zip(played, numbers.cases, strict=True)]
    return {**run_object(run, numbers), "metrics": metric_objects(store, run), "cases": cases, "other_verdicts": others}


def metric_objects(store: Store, run: RunSummary) -> list[dict[str, Any]]:
    """The numbers of each metric over its `n` scored trials.

    Only `mean_unscored_as_0` counts the others, as Osmosis.
    """
    return [
        {
            "metric": row.metric,
            "threshold": row.threshold,
            "n": row.n,
            "mean": row.mean,
            "mean_unscored_as_0": mean_unscored_as_0(row, run),
            "interval": ends(metric_interval(row)),
            "std": row.std_population,
            "min": row.low,
            "max": row.high,
        }
        for row in store.runs.metric_rows(run.id)
    ]


def mean_unscored_as_0(row: MetricRow, run: RunSummary) -> float:
    """The `mean` of Osmosis' results.json: over all trials, 0 for those that the metric did not score."""
    return row.mean * row.n / max(row.n, run.n_done)


def _case_object(case: CaseNumbers) -> dict[str, Any]:
    return {
        "case_id": case.key.case_id,
        "is_passed": case.is_passed,
        **counts_object(case.counts),
        "pass_rate": case.counts.rate,
    }


VERSION = 2
_OF_PATH = re.compile(r"-[0-9a-f]{8}$")
"""Ends the id of an eval set: a digest of its path, which is another one on another machine."""


def read_baseline(store: Store, given: str) -> Baseline:
    """The cases of an earlier run. Raises UsageError for another content."""
    path = Path(given)
    if path.is_file():
        return _of_file(path)
    if not given.isdecimal():
        raise UsageError(f"--baseline {given}: neither a file nor the number of a run; `evaldesk run list` shows them")
    try:
        summary = store.runs.summary(int(given))
    except NotFoundError as error:
        raise NotFoundError(f"--baseline {given}: {error}") from error
    return Baseline(f"run {given}", played_cases(store.runs, [summary]))


def case_object(case: PlayedCase) -> dict[str, Any]:
    """The facts of a case that a later baseline needs; `_played_case` reads them."""
    return {
        "evalset": case.key.evalset,
        "case_id": case.key.case_id,
        "ordinal": case.key.ordinal,
        "digest": case.key.digest,
        "trials": case.strip,
        "pass_threshold": case.pass_threshold,
        "errors_are_failures": case.errors_are_failures,
        "asserted": dict(case.asserted or {}),
    }


def _of_file(path: Path) -> Baseline:
    try:
        value = json.loads(path.read_text("utf-8-sig"))
        version = value.get("version", 1)
        cases = tuple(_first_version(value)) if version == 1 else ()
        if version == VERSION:
            cases = tuple(_played_case(case) for run in value["runs"] for case in run["cases"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        said = f"this is not JSON: {error}" if isinstance(error, ValueError) else "this holds no runs"
        raise UsageError(f"--baseline {path}: {said}; name a file that `evaldesk eval -o FILE.json` wrote") from error
    if version not in (1, VERSION):
        raise UsageError(f"--baseline {path}: version {version!r} is not known, versions 1 to {VERSION} are")
    return Baseline(path.name, cases)


def _played_case(case: Any) -> PlayedCase:
    key = CaseKey(str(case["evalset"]), str(case["case_id"]), int(case["ordinal"]), str(case["digest"]))
    return PlayedCase(
        key=key,
        strip=str(case["trials"]),
        pass_threshold=float(case["pass_threshold"]),
        errors_are_failures=bool(case["errors_are_failures"]),
        asserted={str(kind): int(n) for kind, n in case["asserted"].items()},
    )


def _first_version(value: Any) -> Iterator[PlayedCase]:
    """Cases by counts: the order of their trials and their content are not known."""
    for run in value["runs"]:
        evalset = _OF_PATH.sub("", str(run.get("evalset_id", "")))
        seen: dict[str, int] = {}
        for case in run["cases"]:
            name = str(case["case_id"])
            ordinal = seen[name] = seen.get(name, -1) + 1
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
        strip="p" * n_passed + "f" * n_failed + "e" * n_errored,
        pass_threshold=float(rate) if is_passed and rate is not None else 1.0,
        errors_are_failures=counts_errors or (not n_scored and rate is not None),
        is_ordered=False,
    )
