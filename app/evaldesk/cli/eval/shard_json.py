"""The merged result of the shards of a run, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import fsum
from typing import Any, TypeVar, get_args
from xml.etree.ElementTree import Element

from evaldesk import __version__
from evaldesk.cli.eval.result_json import baseline_object
from evaldesk.desk.runs.baseline import VERSION, bars_of_run, days_object, days_of_runs, played_case
from evaldesk.desk.runs.gates.conclusion import CaseNumbers, Ending, RunNumbers, Spent, conclude
from evaldesk.desk.runs.shard_files import ShardFile, joined_metrics
from evaldesk.desk.runs.stored_runs import changed_since, joined_numbers, named_together
from evaldesk.model import Capture, Conclusion, Counts
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.comparison import RunChange
from evaldesk.model.evalset import CaseKey
from evaldesk.model.run import NOTHING_SHARED, SharedState
from evaldesk.pages.reports.junit import junit_suite
from evaldesk.pages.reports.markdown import SummaryPart
from evaldesk.pages.runs.objects import (
    agent_object,
    asserted_objects,
    conclusion_object,
    counts_object,
    curve_object,
    ends,
    metric_object,
)
from evaldesk.wording.comparison import again_notes
from evaldesk.wording.places import shared_globals_sentence

T = TypeVar("T")
_OF_AGENT = [field.name for field in fields(AgentTotals) if field.name not in ("name", "parent", "tool", "depth")]
_SUMS = ("tokens", "n_uncounted", "n_unpriced", "duration_ms", "active_ms")


def merged_numbers(shards: Sequence[ShardFile]) -> RunNumbers:
    """The numbers of the one run, with its cases in the order of the file of the set."""
    broken_run = _ending_run(shards)
    pairs = list(zip(_case_numbers(shards), _cases(shards), strict=True))
    cases = [numbers for numbers, case in pairs if not case.get("is_left_out")]
    left_out = tuple(numbers for numbers, case in pairs if case.get("is_left_out"))
    sums = _sums(shards)
    costs = Spent(_known_cost(shards), sums["n_unpriced"], sums["n_uncounted"])
    endings = (Ending(broken_run["status"], broken_run["reason"]),)
    numbers = RunNumbers.of_cases(cases, costs=costs, endings=endings)
    return joined_numbers([replace(numbers, left_out=left_out)])


@dataclass(frozen=True, slots=True)
class MergedRun:
    """The one run of some shards: its numbers, its change against the baseline, and its conclusion by their gates.

    `text` is its result as JSON, `suite` and `part` are it in JUnit XML and in Markdown.
    """

    numbers: RunNumbers
    conclusion: Conclusion
    change: RunChange | None
    text: str
    suite: Element
    part: SummaryPart


def merge_shards(shards: Sequence[ShardFile]) -> MergedRun:
    """The one run of shards that have each case once."""
    numbers, gates, cases = merged_numbers(shards), shards[0].gates, _cases(shards)
    change, agents = _change(shards), joined_agents(shards)
    conclusion = conclude(gates, numbers, change)
    every_case = _case_numbers(shards)
    counts = Counts.total(case.counts for case in every_case)  # also of the cases in quarantine, as of one run
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
        "n_trials": counts.planned,
        **counts_object(counts),
        "not_applicable": asserted_objects(_n_asserted(shards), len(cases)),
        "pass_rate": counts.rate,
        "interval": ends(numbers.interval),
        "shared_state": asdict(_shared_state(shards)),
        **curve_object(numbers, max(each["n_most"] for each in runs), gates),
        **sums,
        **_costs(shards),
        "capture": [way for way in get_args(Capture) if any(way in each["capture"] for each in runs)],
        "metrics": [metric_object(row, interval, counts.done) for row, interval in joined_metrics(shards, counts)],
        "agents": list(map(agent_object, agents)),
        "history_days": days_object(days_of_runs(runs)),
        "cases": cases,
        "other_verdicts": sorted(verdicts, key=lambda each: case_places.get(each["case_id"], 0)),
    }
    del run["shard"]
    result = {"evaldesk_version": __version__, "version": VERSION, **conclusion_object(conclusion)}
    if change is not None:
        result["baseline"] = baseline_object(change)
    text = json.dumps({**result, "runs": [run]}, indent=2, ensure_ascii=False)
    reports = _in_order(shards, [shard.reports.cases for shard in shards])
    names = (case.id for case in named_together(every_case))
    started_at = min((each for shard in shards if (each := shard.reports.started_at)), default=None)
    suite = junit_suite(
        shards[0].reports.suite,
        zip(reports, names, strict=True),
        conclusion,
        notes=again_notes(change),
        started_at=started_at,
    )
    notes = [each["sentence"] for each in run["not_applicable"]]
    notes += filter(None, [shared_globals_sentence(_shared_state(shards)).rstrip(".")])
    reasons = {report.id: report.reason for report in reports if report.reason}
    part = SummaryPart(shards[0].reports.title, numbers, reasons, cases[0]["evalset"], notes, agents)
    return MergedRun(numbers, conclusion, change, text, suite, part)


def joined_agents(shards: Sequence[ShardFile]) -> list[AgentTotals]:
    """The actions of each agent in all shards, in the order of the first shard that knows it."""
    totals: dict[tuple[str, str, str], AgentTotals] = {}
    for agent in [each for shard in shards for each in shard.reports.agents]:
        key = agent.name, agent.parent, agent.tool
        known = totals.get(key)
        sums = {name: getattr(known, name) + getattr(agent, name) for name in _OF_AGENT} if known else {}
        totals[key] = replace(known, depth=min(known.depth, agent.depth), **sums) if known else agent
    return list(totals.values())


def _change(shards: Sequence[ShardFile]) -> RunChange | None:
    """The change of all cases against the baseline that the shards have; None without one."""
    baseline = shards[0].baseline
    if baseline is None:
        return None
    confirming = _in_order(shards, [shard.confirming for shard in shards])
    played_cases = [
        replace(played_case(case), history=None, confirming=letters)
        for case, letters in zip(_cases(shards), confirming, strict=True)
    ]
    asserted_metrics = frozenset[str]().union(*(shard.asserted for shard in shards))
    return changed_since(
        replace(baseline, is_of_part=any(shard.baseline and shard.baseline.is_of_part for shard in shards)),
        played_cases,
        shards[0].gates,
        bars={played_cases[0].key.evalset: bars_of_run(shards[0].run)},
        applies=asserted_metrics.__contains__,
        is_replayed=any(shard.is_replayed for shard in shards),
        refusal=next((shard.refusal for shard in shards if shard.refusal), ""),
    )


def _case_numbers(shards: Sequence[ShardFile]) -> list[CaseNumbers]:
    """Every case, also those in quarantine, in order."""
    return [
        CaseNumbers(
            each["case_id"], _counts(each), each["pass_threshold"], _key(each), tag_author=each.get("tag_author")
        )
        for each in _cases(shards)
    ]


def _cases(shards: Sequence[ShardFile]) -> list[dict[str, Any]]:
    return _in_order(shards, [shard.run["cases"] for shard in shards])


def _in_order(shards: Sequence[ShardFile], values: Sequence[Sequence[T]]) -> list[T]:
    """A value for each case in the order of the file of the set; by shards where a shard does not know it.

    `values` are those of each shard, in the order of its cases.
    """
    if not all(shard.places for shard in shards):
        return [value for own_values in values for value in own_values]
    placed_values = [
        pair
        for shard, own_values in zip(shards, values, strict=True)
        for pair in zip(shard.places, own_values, strict=True)
    ]
    return [value for _, value in sorted(placed_values, key=lambda pair: pair[0])]


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
