"""Result files of the shards of an eval set: the facts for a merge, the reader, and the scores of all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evaldesk.codec import msgspec
from evaldesk.desk.runs.case_reports import CaseReport
from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.desk.runs.gates.bars import is_asserted
from evaldesk.desk.runs.shards import place_of, shard_of
from evaldesk.desk.runs.stored_runs import StoredRuns, interval_of, refusal_of
from evaldesk.errors import UsageError
from evaldesk.model import Counts, EvalSet, Gates
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.comparison import Baseline
from evaldesk.model.conclusion import Interval, counted
from evaldesk.model.stored import MetricRow, RunSummary
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.run_options import RUN_OPTIONS
from evaldesk.store.runs.totals import CaseTotals, joined_metric_row
from evaldesk.wire import converted, to_json
from evaldesk.wording.words import named_words

MOST_NAMED = 10
_WRITER = "name files that `evaldesk eval --shard I/N -o FILE.json` wrote"


@dataclass(frozen=True, slots=True)
class ShardReports:
    """The words of a shard for JUnit XML and Markdown: the names of its suite and its part, and its cases in order.

    `agents` are the agents of trials with several.
    """

    suite: str
    title: str
    started_at: datetime | None
    cases: tuple[CaseReport, ...]
    agents: tuple[AgentTotals, ...] = ()


def suite_name(run: RunSummary, evalset: EvalSet) -> str:
    """The name of a run as a suite of JUnit."""
    return f"{run.config.agent.id}.{evalset.id}"


def summary_title(run: RunSummary, evalset: EvalSet) -> str:
    """The heading of a run in Markdown."""
    return f"{run.config.agent.id} on {evalset.name or evalset.id}"


def shard_object(runs: StoredRuns, run: RunSummary, evalset: EvalSet) -> dict[str, Any]:
    """The facts of a shard that only a merge reads; `ShardFile` has them.

    `evalset` is the file as it is now, without cases where it is gone. `scores` has the totals of each metric by case.
    """
    number, n = shard_of(run.config.shard or "")
    ids = runs.case_ids(run.id)
    place_by_id = {case.id: place for place, case in enumerate(evalset.cases)}
    places = [place_by_id[each] for each in ids] if place_by_id.keys() >= {*ids} else []
    totals = runs.store.case_totals(run.id)
    baseline, confirming = None, [""] * len(ids)
    if run.config.gates.compares:
        stored_baseline = runs.store.baseline(run.id)
        is_of_part = len(place_by_id) > sum(run.config.shard_sizes)
        baseline = stored_baseline and replace(stored_baseline, run_id=None, is_of_part=is_of_part)
        confirming = [case.confirming for case in runs.played_cases([run])]
    reports = ShardReports(
        suite_name(run, evalset),
        summary_title(run, evalset),
        run.started_at,
        tuple(map(CaseReport.of, runs.cases(run.id))),
        tuple(runs.agent_totals(run.id)),
    )
    return {
        "number": number,
        "n": n,
        "sizes": list(run.config.shard_sizes),
        "places": places,
        "gates": json.loads(to_json(run.config.gates)),
        "criteria": [[each.metric, each.threshold] for each in run.config.criteria],
        "scores": [
            {metric: list(astuple(each)) for metric, each in sorted(totals.get(index, {}).items())}
            for index in range(len(ids))
        ],
        "baseline": json.loads(to_json(baseline)),
        "confirming": confirming,
        "is_replayed": repeats_recorded(run.config),
        "refusal": refusal_of(run.config, run.config.gates),
        "asserted": _asserted_metrics(runs, run, baseline),
        "reports": json.loads(to_json(reports)),
    }


def _asserted_metrics(runs: StoredRuns, run: RunSummary, baseline: Baseline | None) -> list[str]:
    """The metrics of the baseline that apply to a case of the shard; `weaker_words` asks for the removed ones."""
    metrics = {bar.metric for bars in baseline.bars.values() for bar in bars} if baseline else set()
    return sorted(metric for metric in metrics if is_asserted(lambda: runs.snapshots(run.id), metric))


@dataclass(frozen=True, slots=True)
class ShardFile:
    """The result file of a shard: its number from 1, the number of cases of each shard, and the run as its JSON.

    `places` are those of its cases in the file of the set; empty where that was not there any more. `scores` are the
    totals of each metric in each case, `criteria` the metrics with their thresholds. `baseline` is the whole earlier
    run that a gate compares with, None without such a gate, and `confirming` are the letters of the fresh trials of
    each case. `asserted` are the metrics of the baseline that apply to a case; `is_replayed` and `refusal` are fields
    of a `RunChange`.
    """

    name: str
    number: int
    sizes: tuple[int, ...]
    places: tuple[int, ...]
    gates: Gates
    criteria: tuple[tuple[str, float | None], ...]
    scores: tuple[Mapping[str, CaseTotals], ...]
    run: dict[str, Any]
    baseline: Baseline | None
    confirming: tuple[str, ...]
    is_replayed: bool
    refusal: str
    asserted: frozenset[str]
    reports: ShardReports

    @property
    def case_ids(self) -> list[str]:
        """The ids of its cases, in order."""
        return [str(case["case_id"]) for case in self.run["cases"]]


def read_shards(names: Sequence[str]) -> list[ShardFile]:
    """The shards of one set in these files, by their numbers. Raises UsageError naming the file at fault."""
    shards = [_read(name) for name in names]
    for shard in shards[1:]:
        _check_same(shards[0], shard)
    _check_disjoint(shards)
    first, numbers = shards[0], {shard.number for shard in shards}
    missing = [(number, n) for number, n in enumerate(first.sizes, 1) if n and number not in numbers]
    if missing:
        words = named_words([f"{at}/{len(first.sizes)} ({counted(n, 'case')})" for at, n in missing], MOST_NAMED)
        raise UsageError(
            f"shard {words} is missing; add its result file" if len(missing) == 1 else f"shards are missing: {words}"
        )
    return sorted(shards, key=lambda shard: shard.number)


def _read(name: str) -> ShardFile:
    try:
        value = json.loads(read_regular_file(Path(name)).decode("utf-8-sig"))
        (run,) = value["runs"]
        shard = run["shard"]
        sizes, places = converted(shard["sizes"], tuple[int, ...]), converted(shard["places"], tuple[int, ...])
        criteria = converted(shard["criteria"], tuple[tuple[str, float | None], ...])
        gates, number = converted(shard["gates"], Gates), int(shard["number"])
        scores = tuple({metric: CaseTotals(*row) for metric, row in each.items()} for each in shard["scores"])
        file = ShardFile(
            name,
            number,
            sizes,
            places,
            gates,
            criteria,
            scores,
            run,
            converted(shard["baseline"], Baseline) if shard["baseline"] is not None else None,
            converted(shard["confirming"], tuple[str, ...]),
            converted(shard["is_replayed"], bool),
            converted(shard["refusal"], str),
            converted(shard["asserted"], frozenset[str]),
            converted(shard["reports"], ShardReports),
        )
        lengths = {len(file.case_ids), len(scores), len(file.confirming), len(file.reports.cases)}
        is_whole = number > 0 and lengths == {sizes[number - 1]}
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}; {_WRITER}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, msgspec.ValidationError) as error:
        raise UsageError(f"{name}: this is not the result file of a shard; {_WRITER}") from error
    if not is_whole or len(places) not in (0, len(file.case_ids)):
        raise UsageError(f"{name}: it has not all cases of its shard; {_WRITER}")
    stranger = next((each for each in file.case_ids if place_of(each, len(sizes)) != file.number - 1), None)
    if stranger is not None:
        raise UsageError(f"{name}: case {stranger!r} is not of shard {file.number}/{len(sizes)}; {_WRITER}")
    return file


def _check_same(first: ShardFile, other: ShardFile) -> None:
    """Raise UsageError where two shards are not of one run."""
    if len(first.sizes) != len(other.sizes):
        raise UsageError(
            f"{other.name} is one of {len(other.sizes)} shards, {first.name} one of {len(first.sizes)}; "
            "name the shards of one set"
        )
    if first.run["fingerprint"] != other.run["fingerprint"]:
        titles = [
            option.title.lower()
            for option in RUN_OPTIONS
            if option.is_measured and first.run["options"].get(option.name) != other.run["options"].get(option.name)
        ]
        what = named_words(titles, MOST_NAMED) if titles else "the agent, the eval set or the criteria"
        raise UsageError(
            f"{other.name} has fingerprint {other.run['fingerprint']}, {first.name} {first.run['fingerprint']}: "
            f"they differ in {what}; play all shards alike"
        )
    if first.run["n"] != other.run["n"]:
        raise UsageError(
            f"{other.name} has {counted(other.run['n'], 'trial')} of each case, {first.name} {first.run['n']:,}; "
            "play all shards alike"
        )
    tags, other_tags = (shard.run["options"].get("without") or "none" for shard in (first, other))
    if tags != other_tags:
        raise UsageError(f"{other.name} has in no gate: {other_tags}, {first.name} {tags}; play all shards alike")
    if first.gates != other.gates:
        raise UsageError(f"{other.name} and {first.name} were played with other gates; play all shards alike")
    if _played_facts(first.baseline) != _played_facts(other.baseline):
        raise UsageError(
            f"{other.name} and {first.name} were compared with other baselines; play all shards against one file"
        )
    if first.sizes != other.sizes:
        raise UsageError(f"{other.name} and {first.name} are shards of different cases; choose the same for all")


def _played_facts(baseline: Baseline | None) -> list[object] | None:
    """The cases of a baseline with their verdicts; histories grow while shards are played against one database."""
    return None if baseline is None else [(case.key, case.verdicts, case.pass_threshold) for case in baseline.cases]


def _check_disjoint(shards: Sequence[ShardFile]) -> None:
    """Raise UsageError where a case is in two files."""
    file_by_case: dict[str, str] = {}
    for shard in shards:
        for case_id in shard.case_ids:
            if case_id in file_by_case:
                raise UsageError(
                    f"case {case_id!r} is in {file_by_case[case_id]} and in {shard.name}; name each shard once"
                )
            file_by_case[case_id] = shard.name


def joined_metrics(shards: Sequence[ShardFile], counts: Counts) -> Iterator[tuple[MetricRow, Interval | None]]:
    """Each metric over the cases of all shards with the interval of its mean, in the order of the criteria.

    `counts` are those of all trials.
    """
    scores = [each for shard in shards for each in shard.scores]
    thresholds = dict(shards[0].criteria)
    order = {name: place for place, name in enumerate(thresholds)}
    names = {name for each in scores for name in each}
    for metric in sorted(names, key=lambda name: (order.get(name, len(order)), name)):
        row = joined_metric_row(metric, [each[metric] for each in scores if metric in each], thresholds.get(metric))
        if row.n:
            yield row, interval_of(row, counts, len(scores))
