"""The format "osmosis-results": the output of `osmosis eval -o`, its cache, and the index of a local run.

Four shapes are read: rows with runs (0.2.13 to 0.2.17), the flat list of runs of the cache, the same with a `reward`
instead of scores (0.2.18 on), and lines of `index.jsonl` or `summary.jsonl` (0.3). The first is written.
(reference/osmosis.md 5.5)
"""

from __future__ import annotations

import json
import sqlite3
import statistics
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import comb, exp, fsum, lgamma, sqrt
from typing import Any, BinaryIO, cast

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import MAX_ROW, Imported, WritesRuns
from evaldesk.formats.large_runs import TrialRowsOnDisk, scratch
from evaldesk.model import Case, Criterion, ErrorRecord, RecordedPlan, Score, TrialResult, Turn, Usage, trial_verdict
from evaldesk.model.conclusion import counted
from evaldesk.model.run import RecordedStatus
from evaldesk.model.transcript import is_score
from evaldesk.reading.json_lines import Line, read_recorded_lines, write_lines
from evaldesk.reading.json_stream import Item, NotStreamedError, StreamedList
from evaldesk.reading.json_text import text_parts
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import MAX_LINE, peek
from evaldesk.reading.strict_json import RECORDED_DECODER, JsonPosition, parse_json, parse_recorded_json
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_optional_count,
    read_optional_mapping,
    read_optional_number,
    read_optional_text,
    read_recorded_number,
    read_recorded_score,
    read_text,
    text_of,
    wrong_value,
)
from evaldesk.transcripts.recorded import RecordedRun, SummaryValue, TrialRows, file_stem, recorded_score
from evaldesk.transcripts.recorded_ends import bound_of
from evaldesk.transcripts.recorded_sessions import plan_note, read_plan, read_score, score_note

BASELINE = "baseline"
REWARD = "reward"
MAX_INDEX = 1_000_000
_INDEX = {"row_index", "run_index"}
NO_METRICS = (
    "The threshold and the summary of this run are in its metrics.json, which is not here, so 1 is taken as the "
    "threshold: import the folder of the run, or both files."
)
NO_THRESHOLD = "The metrics.json of this run has no threshold, so 1 is taken."
_NAME = "osmosis-results"


class OsmosisResults(WritesRuns):
    """`{"config", "summary", "rows": [{"row_index", "runs": [...]}]}` and its descendants."""

    title = "Osmosis results"
    suffixes = (".json", ".jsonl")
    no_evalset = "a file of results holds a run, not an eval set; write it as osmosis-jsonl"
    n_readings = 2
    main = "index.jsonl"
    companions = ("metrics.json",)

    @staticmethod
    def join(parts: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
        """Name and bytes of an index with its `metrics.json` as the last line. Raises FormatError."""
        metrics = [part for part in parts if part[0].endswith("metrics.json")]
        rows = [part for part in parts if part not in metrics]
        if len(metrics) > 1 or len(rows) != 1:
            raise FormatError("choose one index.jsonl with its metrics.json", source=parts[0][0])
        ((source, data),) = rows
        documents = [parse_json(each, source=name) for name, each in metrics]
        for document in documents:
            if not _is_metrics(document.value):
                raise document.error("no metrics of a run of Osmosis: it has no eval_run and no summary")
        lines = [data.rstrip(), *(write_lines([document.value], source) for document in documents)]
        return source, b"\n".join(line for line in lines if line)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with a configuration and rows or runs, or lines of an index."""
        preview = peek(data)
        value = preview.document
        if isinstance(value, dict) and isinstance(value.get("config"), dict):
            config_keys = {"n_runs", "eval_fns", "pass_threshold"} & set(value["config"])
            return bool(config_keys) and ("rows" in value or "runs" in value)
        if _is_metrics(value):
            return True
        line = preview.line
        is_alone = value is None or source.lower().endswith(".jsonl")
        return is_alone and isinstance(line, dict) and set(line) >= _INDEX and "messages" not in line

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A run with the trials of the primary model, and one with those of the baseline. Raises FormatError."""
        preview = peek(data)
        if isinstance(preview.line, dict) and set(preview.line) >= _INDEX:
            lines = list(read_recorded_lines(data, source))
            runs = [_flat(JsonPosition(line), line.value) for line in lines if not _is_metrics(line.value)]
            return _build_import(_index_header(lines, source), lambda: runs, TrialRows)
        if _is_metrics(preview.document):
            reason = "this is the metrics.json of a run without trials; import its folder, or the index.jsonl beside it"
            raise FormatError(reason, source=source)
        document = parse_recorded_json(data, source=source)
        place = JsonPosition(document)
        raw = read_mapping(place, document.value)
        header = _header(place.at("config"), raw.get("config", ABSENT), source)
        at = place.at("runs")
        rows = list(_rows(place, raw)) if "rows" in raw else read_list(at, raw.get("runs", ABSENT), _flat)
        return _build_import(header, lambda: rows, TrialRows)

    @staticmethod
    def read_large(file: BinaryIO, *, source: str, outcome: str) -> Imported:
        """As `read`, a row or a run at a time, twice: the first time for the configuration, which may stand last."""
        line = peek(file.readline(MAX_LINE)).line
        if isinstance(line, dict) and set(line) >= _INDEX:
            file.seek(0)
            header = _index_header(read_recorded_lines(file, source), source)
            return _build_import(header, lambda: _read_index(file, source), TrialRowsOnDisk)
        shell = _open_list(file, source)
        for _ in shell:
            pass
        raw = read_mapping(JsonPosition(shell.shell), shell.shell.value)
        if "rows" in raw and "runs" in raw:
            raise NotStreamedError
        header = _header(JsonPosition(shell.shell).at("config"), raw.get("config", ABSENT), source)
        return _build_import(header, lambda: _stream_runs(_open_list(file, source)), TrialRowsOnDisk)

    @staticmethod
    def parts(run: RecordedRun) -> Iterator[bytes]:
        """The results of a run, part by part; values without a place there are under `evaldesk`.

        The summary stands before the rows, so all trials are read before the first part.
        """
        threshold = next((each.threshold for each in run.criteria if each.threshold is not None), 1.0)
        with scratch(_TABLES) as database:
            trials = _Trials(database, run)
            config = {
                "model": run.model or "",
                "n_runs": trials.n_most,
                "pass_threshold": threshold,
                "eval_fns": [criterion.metric for criterion in run.criteria],
            }
            own_values = {
                "name": run.name,
                "agent": run.agent,
                "note": run.note,
                "cases": (case.id for case in run.cases),
                "thresholds": {criterion.metric: criterion.threshold for criterion in run.criteria},
                "plan": plan_note(run.plan),
            }
            summary = trials.summary([criterion.metric for criterion in run.criteria], threshold)
            document = {"config": config, "summary": summary, "rows": trials.rows(), "evaldesk": own_values}
            yield from text_parts(document, run.name)


def attempts_in(data: bytes, source: str) -> dict[tuple[int, int], str]:
    """The attempts of an index by row and run, each with the name of its trajectory."""
    rows: list[Any] = [line.value for line in read_recorded_lines(data, source)]
    return {
        (row["row_index"], row["run_index"]): text_of(row.get("trajectory_filename"))
        for row in rows
        if isinstance(row, dict) and set(row) >= _INDEX
    }


def _is_metrics(value: Any) -> bool:
    return isinstance(value, dict) and {"eval_run", "summary"} <= set(value)


@dataclass(frozen=True, slots=True)
class _Header:
    """The configuration of all runs; `cases` are our own names of rows, `own` are thresholds of single functions.

    Each row was to be played `n_runs` times. `total_runs` counts the runs that the summary is over, those of a baseline
    among them. `plan` is of a run of ours, else it says only how the run ended. `metrics` is the summary of the tool.
    `lack` is a sentence about a threshold that another file has.
    """

    name: str
    model: str = ""
    baseline: str = ""
    agent: str = ""
    threshold: float = 1.0
    functions: tuple[str, ...] = ()
    note: str = ""
    cases: tuple[str, ...] = ()
    own: Mapping[str, float | None] = field(default_factory=dict)
    n_runs: int | None = None
    total_runs: int = 0
    plan: RecordedPlan = field(default_factory=RecordedPlan)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    lack: str = ""


@dataclass(frozen=True, slots=True)
class _Run:
    """One attempt: the place of its row, its number, and its values."""

    place: JsonPosition
    row_index: int
    run_index: int
    tag: str
    raw: dict[str, Any]


def _index_header(lines: Iterable[Line], source: str) -> _Header:
    """The facts of a local run, of its metrics where they are among the lines."""
    for line in lines:
        if _is_metrics(line.value):
            return _metrics_header(JsonPosition(line), read_mapping(JsonPosition(line), line.value), source)
    return _Header(file_stem(source), lack=NO_METRICS)


def _metrics_header(place: JsonPosition, raw: dict[str, Any], source: str) -> _Header:
    run = read_mapping(place.at("eval_run"), raw["eval_run"])
    at, summary = place.at("summary"), read_mapping(place.at("summary"), raw["summary"])
    threshold = read_optional_number(at.at("pass_threshold"), summary.get("pass_threshold", run.get("pass_threshold")))
    status = text_of(run.get("status"))
    ending = {"finished": "finished", "stopped": "stopped", "failed": "failed"}.get(status, "unknown")
    return _Header(
        name=text_of(run.get("name")) or file_stem(source),
        model=text_of(run.get("model_name")) or text_of(run.get("model")),
        agent=text_of(run.get("rollout_name")),
        threshold=1.0 if threshold is None else threshold,
        lack=NO_THRESHOLD if threshold is None else "",
        n_runs=read_optional_count(at.at("n_runs"), summary.get("n_runs")),
        total_runs=read_optional_count(at.at("total_samples"), summary.get("total_samples")) or 0,
        plan=RecordedPlan(status=cast("RecordedStatus", ending)),
        metrics=summary,
    )


def _header(place: JsonPosition, raw: Any, source: str) -> _Header:
    raw = read_mapping(place, raw)
    root = JsonPosition(place.document)
    document = read_mapping(root, place.document.value)
    own = document.get("evaldesk")
    own = own if isinstance(own, dict) else {}
    summary = read_optional_mapping(root.at("summary"), document.get("summary")) or {}
    threshold = read_optional_number(place.at("pass_threshold"), raw.get("pass_threshold"))
    functions = read_list(place.at("eval_fns"), raw.get("eval_fns", []), read_text)
    names = own.get("cases") if isinstance(own.get("cases"), list) else []
    limits = own.get("thresholds") if isinstance(own.get("thresholds"), dict) else {}
    model = read_optional_text(place.at("model"), raw.get("model")) or ""
    module = read_optional_text(place.at("module"), raw.get("module")) or ""
    return _Header(
        name=text_of(own.get("name")) or text_of(raw.get("dataset")) or file_stem(source),
        model=model,
        baseline=read_optional_text(place.at("baseline_model"), raw.get("baseline_model")) or "",
        agent=text_of(own.get("agent")) or module or model,
        threshold=1.0 if threshold is None else threshold,
        functions=functions,
        note=text_of(own.get("note")),
        cases=tuple(name for name in names or () if isinstance(name, str)),
        own={name: limit for name, limit in (limits or {}).items() if limit is None or is_score(limit)},
        n_runs=None if own else read_optional_count(place.at("n_runs"), raw.get("n_runs")),
        total_runs=read_optional_count(root.at("summary", "total_runs"), summary.get("total_runs")) or 0,
        plan=read_plan(own.get("plan")) or _ending(document, summary),
        metrics={} if own else summary,
    )


def _ending(document: dict[str, Any], summary: dict[str, Any]) -> RecordedPlan:
    """How a run of Osmosis ended; only a cache and a summary tell it."""
    if summary.get("stopped_early") is True:
        return RecordedPlan(status="stopped", reason=text_of(summary.get("stop_reason")))
    status = text_of(document.get("status"))
    if status in ("", "completed"):
        return RecordedPlan(status="finished" if status or summary else "unknown")
    return RecordedPlan(status="unfinished" if status == "in_progress" else "failed", reason=status)


def _read_index(file: BinaryIO, source: str) -> Iterator[_Run]:
    file.seek(0)
    lines = (line for line in read_recorded_lines(file, source) if not _is_metrics(line.value))
    return (_flat(JsonPosition(line), line.value) for line in lines)


def _open_list(file: BinaryIO, source: str) -> StreamedList:
    file.seek(0)
    return StreamedList(file, source, lambda key: key in ("rows", "runs"), max_item=MAX_ROW, decoder=RECORDED_DECODER)


def _stream_runs(items: Iterable[Item]) -> Iterator[_Run]:
    for item in items:
        if item.path[0] == "rows":
            yield from _of_row(JsonPosition(item), read_mapping(JsonPosition(item), item.value))
        else:
            yield _flat(JsonPosition(item), item.value)


def _rows(place: JsonPosition, raw: dict[str, Any]) -> Iterator[_Run]:
    rows_at = place.at("rows")
    for index, item in enumerate(read_list(rows_at, raw["rows"], read_mapping)):
        yield from _of_row(rows_at.at(index), item)


def _of_row(place: JsonPosition, item: dict[str, Any]) -> Iterator[_Run]:
    row_index = _index(place.at("row_index"), item.get("row_index", ABSENT))
    for number, run in enumerate(read_list(place.at("runs"), item.get("runs", ABSENT), read_mapping)):
        yield _flat(place.at("runs", number), {**run, "row_index": row_index})


def _flat(place: JsonPosition, raw: Any) -> _Run:
    raw = read_mapping(place, raw)
    row_index = _index(place.at("row_index"), raw.get("row_index", ABSENT))
    run_index = _index(place.at("run_index"), raw.get("run_index", ABSENT))
    return _Run(place, row_index, run_index, read_optional_text(place.at("model_tag"), raw.get("model_tag")) or "", raw)


def _build_import(header: _Header, runs: Callable[[], Iterable[_Run]], rows: Callable[[], TrialRows]) -> Imported:
    notes = Notes()
    functions = header.functions or ((REWARD,) if any(REWARD in run.raw for run in runs()) else ())
    criteria = tuple(Criterion(name, header.own.get(name, header.threshold)) for name in functions)
    by_tag: dict[bool, TrialRows] = {}
    sums = {False: _Sums(), True: _Sums()}
    first, n_failed_passes = None, 0
    for run in runs():
        is_baseline = run.tag == BASELINE
        own = by_tag.get(is_baseline) or by_tag.setdefault(is_baseline, rows())
        model = header.baseline if is_baseline else header.model
        is_skipped = run.raw.get("status") == "skipped"
        result = None if is_skipped else _result(run, criteria, model)
        own.add(own.place(run.row_index), result, run.run_index)
        sums[is_baseline].add(result, run, header.threshold)
        if result is not None and result.error is not None and _is_at_least(run.raw.get(REWARD), header.threshold):
            n_failed_passes += 1
        if is_skipped:
            notes.refuse("a skipped sample without a score", run.place)
        first = first or run
    if first is None:
        raise FormatError("the file contains no run of a row", source="")
    models = {False: header.model, True: header.baseline}
    if len(by_tag) > 1:
        header = replace(header, total_runs=0)
    recorded_runs = tuple(
        replace(
            _recorded_run(header, by_tag[tag], criteria, models[tag]),
            summary=() if tag or by_tag[tag].n_replaced else tuple(sums[tag].compared(header.metrics)),
        )
        for tag in sorted(by_tag)
    )
    kept_words = tuple(words for tag in sorted(by_tag) for words in by_tag[tag].earlier_words)
    least = "its threshold" if header.own else f"{header.threshold:g}"
    words = [f"A trial passes when every score reaches {least}; the file has no conversations."]
    words += [header.lack] if header.lack else []
    if n_failed_passes:
        words.append(
            f"{counted(n_failed_passes, 'failed run')} with a reward of at least {header.threshold:g}: passed in "
            "Osmosis, errored here."
        )
    return Imported(_NAME, runs=recorded_runs, understood=tuple(words), kept=kept_words, refused=notes.sentences)


def _is_at_least(value: Any, threshold: float) -> bool:
    return is_score(value) and value >= threshold


@dataclass(slots=True)
class _Sums:
    """Counts of the trials as Osmosis counts them: a missing score is 0 in a mean, and its trial is not graded.

    A failed run with a reward is graded, and passes by it. (osmosis-ai 0.3.8 eval/local/results.py: aggregate_metrics)
    """

    n: int = 0
    skipped: int = 0
    failed: int = 0
    passed: int = 0
    graded: int = 0
    n_runs: int = 0
    rewards: array[float] = field(default_factory=lambda: array("d"))
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)

    def add(self, result: TrialResult | None, run: _Run, threshold: float) -> None:
        """Count one more trial; None is a skipped one."""
        self.n_runs = max(self.n_runs, run.run_index + 1)
        if result is None:
            self.skipped += 1
            return
        self.n += 1
        self.failed += result.status == "errored"
        reward = run.raw.get(REWARD)
        values = [(score.metric, score.value) for score in result.scores if score.value is not None]
        is_passed = _is_at_least(reward, threshold) if REWARD in run.raw else result.verdict == "passed"
        self.passed += is_passed
        self.graded += is_score(reward) if REWARD in run.raw else bool(values)
        if is_score(reward):
            self.rewards.append(float(reward))
        n_attempts, n_passes = self.rows.get(run.row_index, (0, 0))
        self.rows[run.row_index] = n_attempts + 1, n_passes + is_passed
        for metric, value in values:
            self.totals[metric] = self.totals.get(metric, 0.0) + value

    def compared(self, metrics: Mapping[str, Any]) -> Iterator[SummaryValue]:
        """The values of the summary of Osmosis, of a local run or of `-o`, beside these counts."""
        counts = {
            "total_samples": self.n + self.skipped,
            "total_runs": self.n,
            "completed_samples": self.n,
            "graded": self.graded,
            "passed": self.passed,
            "failed": self.failed,
            "skipped": self.skipped,
            "pass_rate": self.passed / self.n if self.n else 0.0,
            "n_runs": self.n_runs,
        }
        for name, count in counts.items():
            if is_score(metrics.get(name)):
                yield SummaryValue(name, float(metrics[name]), count)
        stats, points = metrics.get("reward_stats"), metrics.get("pass_at_k")
        for name, measure in _REWARD_STATS.items():
            if isinstance(stats, dict) and is_score(stats.get(name)) and self.rewards:
                yield SummaryValue(f"{name} of the reward", float(stats[name]), measure(self.rewards))
        rows = Counter(self.rows.values())
        for point in points[:MAX_POINTS] if isinstance(points, list) else ():
            if isinstance(point, dict) and isinstance(point.get("k"), int) and is_score(point.get("value")):
                yield SummaryValue(f"pass@{point['k']}", float(point["value"]), _pass_at(rows, point["k"]))
        functions = metrics.get("eval_fns")
        for metric, values in functions.items() if isinstance(functions, dict) else ():
            if isinstance(values, dict) and is_score(values.get("mean")) and self.n:
                yield SummaryValue(f"mean of {metric}", float(values["mean"]), self.totals.get(metric, 0.0) / self.n)


MAX_POINTS = 32
"""Points of pass@k that are compared; Osmosis writes the powers of two."""
_MAX_EXACT = 200
"""Attempts of a row up to which ways are counted in whole numbers, whose size grows with them."""


def _pass_at(rows: Mapping[tuple[int, int], int], k: int) -> float:
    """The mean over the rows with at least k attempts, 0 without any; `rows` counts them by attempts and passes."""
    shares = [(1.0 - _all_fail(n, passes, k), times) for (n, passes), times in rows.items() if 1 <= k <= n]
    n_rows = sum(times for _, times in shares)
    return fsum(share * times for share, times in shares) / n_rows if n_rows else 0.0


def _all_fail(n: int, passes: int, k: int) -> float:
    """The chance that none of k of n attempts is one of the passes."""
    if n - passes < k:
        return 0.0
    if n <= _MAX_EXACT:
        return comb(n - passes, k) / comb(n, k)
    return exp(lgamma(n - passes + 1) - lgamma(n - passes - k + 1) - lgamma(n + 1) + lgamma(n - k + 1))


_REWARD_STATS: Mapping[str, Callable[[array[float]], float]] = {
    "mean": lambda rewards: fsum(rewards) / len(rewards),
    "median": statistics.median,
    "std": statistics.pstdev,
    "min": min,
    "max": max,
}


def _recorded_run(header: _Header, rows: TrialRows, criteria: tuple[Criterion, ...], model: str) -> RecordedRun:
    n = sum(1 for _ in rows.sorted_keys())
    is_whole = n == len(header.cases) and max(index for _, index in rows.sorted_keys()) == n - 1
    for at, (place, index) in enumerate(rows.sorted_keys()):
        rows.offer(place, Case(header.cases[at] if is_whole else f"row_{index}", turns=(Turn(""),)))
    cases, results = rows.finish(by_key=True)
    plan = header.plan
    if plan.n_planned is None:
        grid = rows.plan_of(n, header.n_runs)
        n_planned = max(grid.n_planned or 0, header.total_runs)
        plan = RecordedPlan(n_planned, grid.n_each, plan.status, plan.reason)
    return RecordedRun(header.name, header.agent, cases, results, criteria, model or None, header.note, plan)


def _result(run: _Run, criteria: tuple[Criterion, ...], model: str) -> TrialResult:
    raw, place = run.raw, run.place
    reason = read_optional_text(place.at("error"), raw.get("error")) or text_of(raw.get("error_type"))
    is_ok = raw["success"] is True if "success" in raw else raw.get("status", "success") == "success"
    bound = None if is_ok else bound_of(reason)
    error = None if is_ok or bound else ErrorRecord("failed_run", reason or "Osmosis counts this run as failed.")
    values = raw.get("scores")
    values = read_mapping(place.at("scores"), values) if values is not None else {REWARD: raw.get(REWARD)}
    own = {score.metric: score for score in _own_scores(raw.get("evaldesk")) if score.value is None}
    all_scores = [_score(place, criterion, values) for criterion in criteria]
    scores = [] if error else [own.get(each.metric, each) if each.value is None else each for each in all_scores]
    if bound:
        scores = [
            recorded_score(each, score.value or 0.0, reason) for each, score in zip(criteria, all_scores, strict=True)
        ]
    tokens = _number(place.at("tokens"), raw.get("tokens"))
    usages = (Usage(model, tokens_in=int(tokens)),) if tokens >= 1 else ()
    return TrialResult(
        0,
        0,
        0,
        status="errored" if error else "finished",
        verdict=trial_verdict(scores, criteria, error),
        stop_reason=bound or "",
        scores=tuple(scores),
        usages=usages,
        duration_ms=_number(place.at("duration_ms"), raw.get("duration_ms")),
        error=error,
    )


def _own_scores(raw: Any) -> Iterator[Score]:
    noted = raw.get("scores") if isinstance(raw, dict) else None
    return filter(None, map(read_score, noted if isinstance(noted, list) else ()))


def _score(place: JsonPosition, criterion: Criterion, values: dict[str, Any]) -> Score:
    value = read_recorded_score(place.at("scores", criterion.metric), values.get(criterion.metric))
    return recorded_score(criterion, value)


def _write_run(result: TrialResult) -> dict[str, Any]:
    trial_scores = [score for score in result.scores if score.turn is None]
    noted = [score_note(score) for score in trial_scores if score.value is None and score.verdict != "unscored"]
    entry: dict[str, Any] = {
        "run_index": result.trial_index,
        "success": result.error is None,
        "scores": {score.metric: score.value for score in trial_scores if score.value is not None},
        "duration_ms": result.duration_ms,
        "tokens": result.tokens,
    }
    entry |= {"error": result.error.message} if result.error else {}
    return entry | ({"evaldesk": {"scores": noted}} if noted else {})


def _index(place: JsonPosition, raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw <= MAX_INDEX:
        raise wrong_value(place, raw, f"a number from 0 to {MAX_INDEX:,}")
    return raw


def _number(place: JsonPosition, raw: Any) -> float:
    return read_recorded_number(place, raw, "a number that is not negative", 0, 2**53) or 0.0


KS = (1, 3, 5, 10)
_TABLES = """
CREATE TABLE trial (
    case_index INT, number INT, tokens, duration_ms, written, PRIMARY KEY (case_index, number)
) WITHOUT ROWID;
CREATE TABLE score (
    metric INT, case_index INT, number INT, value, PRIMARY KEY (metric, case_index, number)
) WITHOUT ROWID;
"""


class _Trials:
    """The trials of a run on their way to the file: on the disk meanwhile, since their summary stands before them."""

    def __init__(self, database: sqlite3.Connection, run: RecordedRun) -> None:
        self._database = database
        metrics = [criterion.metric for criterion in run.criteria]
        for number, result in enumerate(run.results):
            place = (result.case_index, number)
            values = (str(result.tokens), result.duration_ms, json.dumps(_write_run(result)))
            self._database.execute("INSERT INTO trial VALUES (?, ?, ?, ?, ?)", (*place, *values))
            scores = [(at, *place, _summary_score(result, metric)) for at, metric in enumerate(metrics)]
            self._database.executemany("INSERT INTO score VALUES (?, ?, ?, ?)", scores)

    @property
    def n_most(self) -> int:
        """The trials of the row that has most."""
        cursor = self._database.execute(
            "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM trial GROUP BY case_index)"
        )
        return int(cursor.fetchone()[0])

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows in order, each with an iterator over its runs."""
        cursor = self._database.execute("SELECT case_index, written FROM trial ORDER BY case_index, number")
        for index, trials in groupby(cursor, lambda trial: trial[0]):
            yield {"row_index": index, "runs": (json.loads(text) for _, text in trials)}

    def summary(self, metrics: Sequence[str], threshold: float) -> dict[str, Any]:
        """Totals and, for each metric, mean, population deviation, range and pass@k; a failed run scores 0 there."""
        n_rows, n_runs = self._database.execute("SELECT count(DISTINCT case_index), count(*) FROM trial").fetchone()
        return {
            "total_rows": n_rows,
            "total_runs": n_runs,
            "eval_fns": {metric: self._of_metric(at, threshold) for at, metric in enumerate(metrics)},
            "total_tokens": sum(int(tokens) for (tokens,) in self._database.execute("SELECT tokens FROM trial")),
            "total_duration_ms": fsum(each for (each,) in self._database.execute("SELECT duration_ms FROM trial")),
        }

    def _of_metric(self, at: int, threshold: float) -> dict[str, float]:
        def values() -> Iterator[float]:
            return (value for (value,) in self._database.execute("SELECT value FROM score WHERE metric = ?", (at,)))

        count_sql = "SELECT count(*), sum(value >= ?) FROM score WHERE metric = ? GROUP BY case_index"
        n_rows, n = self._database.execute("SELECT count(DISTINCT case_index), count(*) FROM trial").fetchone()
        n_most = self.n_most
        mean = fsum(values()) / n if n else 0.0
        std = sqrt(fsum((value - mean) * (value - mean) for value in values()) / n) if n else 0.0
        summary = {"mean": mean, "std": std, "min": min(values(), default=0.0), "max": max(values(), default=0.0)}
        for k in KS:
            if 1 < n_most >= k:
                rows = self._database.execute(count_sql, (threshold, at))
                each = fsum(_pass_at_k(n_of_row, n_passed, k) for n_of_row, n_passed in rows)
                summary[f"pass_at_{k}"] = each / n_rows
        return summary


def _summary_score(trial: TrialResult, metric: str) -> float:
    values = (score.value for score in trial.scores if score.metric == metric and score.turn is None)
    value = next(values, None)
    return 0.0 if value is None else value


def _pass_at_k(n: int, c: int, k: int) -> float:
    """Osmosis' own: with fewer trials than k it is whether any passed, where ours is undefined."""
    if c == 0:
        return 0.0
    return 1.0 if n - c < k else 1.0 - comb(n - c, k) / comb(n, k)
