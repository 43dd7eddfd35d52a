"""The merged result of the shards of a run, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import fsum
from typing import Any, get_args

from evaldesk import __version__
from evaldesk.desk.runs.baseline import VERSION, days_object, days_of_runs
from evaldesk.desk.runs.gates.conclusion import CaseNumbers, Ending, RunNumbers, Spent, conclude
from evaldesk.desk.runs.shard_files import ShardFile, joined_metrics
from evaldesk.desk.runs.stored_runs import joined_numbers
from evaldesk.model import Capture, Conclusion, Counts
from evaldesk.model.evalset import CaseKey
from evaldesk.model.run import NOTHING_SHARED, SharedState
from evaldesk.pages.runs.objects import (
    asserted_objects,
    conclusion_object,
    counts_object,
    curve_object,
    ends,
    metric_object,
)

_SUMS = ("tokens", "n_uncounted", "n_unpriced", "duration_ms", "active_ms")


def merged_numbers(shards: Sequence[ShardFile]) -> RunNumbers:
    """The numbers of the one run, with its cases in the order of the file of the set."""
    broken_run = _ending_run(shards)
    cases, left_out = (
        [
            CaseNumbers(each["case_id"], _counts(each), each["pass_threshold"], _key(each))
            for each in _cases(shards)
            if bool(each.get("is_left_out")) == is_left_out
        ]
        for is_left_out in (False, True)
    )
    sums = _sums(shards)
    costs = Spent(_known_cost(shards), sums["n_unpriced"], sums["n_uncounted"])
    endings = (Ending(broken_run["status"], broken_run["reason"]),)
    numbers = RunNumbers.of_cases(cases, costs=costs, endings=endings)
    return joined_numbers([replace(numbers, left_out=tuple(left_out))])


def merged_result(shards: Sequence[ShardFile]) -> tuple[str, Conclusion, RunNumbers]:
    """The result of the one run as JSON, its conclusion by the gates of the shards, and its numbers.

    `shards` are those of one run, each case once.
    """
    numbers, gates, cases = merged_numbers(shards), shards[0].gates, _cases(shards)
    conclusion = conclude(gates, numbers)
    first, ending_run, runs, sums = shards[0].run, _ending_run(shards), [shard.run for shard in shards], _sums(shards)
    case_places = {each["case_id"]: place for place, each in enumerate(cases)}
    verdicts = [verdict for run in runs for verdict in run["other_verdicts"]]
    run = {
        **first,
        "run_id": None,
        "status": ending_run["status"],
        "reason": ending_run["reason"],
        "options": {**first["options"], "shard": None},
        "n_cases": len(cases),
        "n_trials": numbers.counts.planned,
        **counts_object(numbers.counts),
        "not_applicable": asserted_objects(_n_asserted(shards), len(cases)),
        "pass_rate": numbers.counts.rate,
        "interval": ends(numbers.interval),
        "shared_state": asdict(_shared_state(shards)),
        **curve_object(numbers, max(each["n_most"] for each in runs), gates),
        **sums,
        **_costs(shards),
        "capture": [way for way in get_args(Capture) if any(way in each["capture"] for each in runs)],
        "metrics": [
            metric_object(row, interval, numbers.counts.done)
            for row, interval in joined_metrics(shards, numbers.counts)
        ],
        "history_days": days_object(days_of_runs(runs)),
        "cases": cases,
        "other_verdicts": sorted(verdicts, key=lambda each: case_places.get(each["case_id"], 0)),
    }
    del run["shard"]
    result = {"evaldesk_version": __version__, "version": VERSION, **conclusion_object(conclusion), "runs": [run]}
    return json.dumps(result, indent=2, ensure_ascii=False), conclusion, numbers


def _cases(shards: Sequence[ShardFile]) -> list[dict[str, Any]]:
    """The cases in the order of the file of the set; by shards where a shard does not know it."""
    if not all(shard.places for shard in shards):
        return [case for shard in shards for case in shard.run["cases"]]
    placed_cases = [pair for shard in shards for pair in zip(shard.places, shard.run["cases"], strict=True)]
    return [case for _, case in sorted(placed_cases, key=lambda pair: pair[0])]


def _ending_run(shards: Sequence[ShardFile]) -> dict[str, Any]:
    """The first shard that was not played to its end, which says how the one run ended; else the first."""
    return next((shard.run for shard in shards if shard.run["status"] != "finished"), shards[0].run)


def _sums(shards: Sequence[ShardFile]) -> dict[str, Any]:
    return {name: sum(shard.run[name] for shard in shards) for name in _SUMS}


def _known_cost(shards: Sequence[ShardFile]) -> float:
    return fsum(shard.run["known_cost"] or 0 for shard in shards)


def _costs(shards: Sequence[ShardFile]) -> dict[str, float | None]:
    """The costs as `RunSummary` tells them: None where no model was called, or they are not known."""
    known_cost, sums = _known_cost(shards), _sums(shards)
    is_unknown = sums["n_unpriced"] + sums["n_uncounted"] > 0
    has_models = sums["tokens"] + sums["n_unpriced"] > 0 or known_cost > 0
    return {
        "cost": known_cost if has_models and not is_unknown else None,
        "known_cost": known_cost if has_models and (known_cost or not is_unknown) else None,
    }


def _shared_state(shards: Sequence[ShardFile]) -> SharedState:
    state = NOTHING_SHARED
    for shard in shards:
        own = shard.run["shared_state"]
        state = state.joined(SharedState(own["loop_bound"], tuple(own["changed_globals"])))
    return state


def _counts(case: dict[str, Any]) -> Counts:
    return Counts(
        case["n_planned"],
        case["n_passed"],
        case["n_failed"],
        case["n_errored"],
        case["n_unscored"],
        case["n_not_applicable"],
        case["errors_are_failures"],
    )


def _key(case: dict[str, Any]) -> CaseKey:
    return CaseKey(case["evalset"], case["case_id"], case["ordinal"], case["digest"])


def _n_asserted(shards: Sequence[ShardFile]) -> dict[str, int]:
    """The number of cases to which each metric applies that does not apply to all, in the order of the criteria."""
    shares = [
        (shard.run["n_cases"], {each["metric"]: each["n_cases_asserted"] for each in shard.run["not_applicable"]})
        for shard in shards
    ]
    return {
        metric: sum(n_asserted.get(metric, n_cases) for n_cases, n_asserted in shares)
        for metric, _ in shards[0].criteria
        if any(metric in n_asserted for _, n_asserted in shares)
    }
