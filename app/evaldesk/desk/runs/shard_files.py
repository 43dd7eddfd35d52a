"""Result files of the shards of an eval set: what a merge needs of a run, the reader, and the scores of all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from evaldesk.codec import msgspec
from evaldesk.desk.runs.shards import place_of, shard_of
from evaldesk.desk.runs.stored_runs import StoredRuns, interval_of
from evaldesk.errors import UsageError
from evaldesk.model import Case, Counts, Gates
from evaldesk.model.conclusion import Interval, counted
from evaldesk.model.stored import MetricRow, RunSummary
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.run_options import RUN_OPTIONS
from evaldesk.store.runs.totals import CaseTotals, joined_metric_row
from evaldesk.wire import converted, to_json
from evaldesk.wording.words import named_words

MOST_NAMED = 10
_WRITER = "name files that `evaldesk eval --shard I/N -o FILE.json` wrote"


def shard_object(runs: StoredRuns, run: RunSummary, cases_of_set: Iterable[Case]) -> dict[str, Any]:
    """The facts of a shard that only a merge reads; `ShardFile` has them.

    `cases_of_set` are those of the file, empty where that is gone. `scores` has the totals of each metric by case.
    """
    number, n = shard_of(run.config.shard or "")
    ids = runs.case_ids(run.id)
    place_by_id = {case.id: place for place, case in enumerate(cases_of_set)}
    places = [place_by_id[each] for each in ids] if place_by_id.keys() >= {*ids} else []
    totals = runs.store.case_totals(run.id)
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
    }


@dataclass(frozen=True, slots=True)
class ShardFile:
    """The result file of a shard: its number from 1, the number of cases of each shard, and the run as its JSON.

    `places` are those of its cases in the file of the set; empty where that was not there any more. `scores` are the
    totals of each metric in each case, `criteria` the metrics with their thresholds.
    """

    name: str
    number: int
    sizes: tuple[int, ...]
    places: tuple[int, ...]
    gates: Gates
    criteria: tuple[tuple[str, float | None], ...]
    scores: tuple[Mapping[str, CaseTotals], ...]
    run: dict[str, Any]

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
        file = ShardFile(name, number, sizes, places, gates, criteria, scores, run)
        is_whole = number > 0 and len(file.case_ids) == len(scores) == sizes[number - 1]
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
    if first.gates != other.gates:
        raise UsageError(f"{other.name} and {first.name} were played with other gates; play all shards alike")
    if first.sizes != other.sizes:
        raise UsageError(f"{other.name} and {first.name} are shards of different cases; choose the same for all")


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
