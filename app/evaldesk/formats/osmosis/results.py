"""The format "osmosis-results": the output of `osmosis eval -o`, its cache, and the index of a local run.

Four shapes are read: rows with runs (0.2.13 to 0.2.17), the flat list of runs of the cache, the same with a `reward`
instead of scores (0.2.18 on), and lines of `index.jsonl` or `summary.jsonl` (0.3). The first is written.
(reference/osmosis.md 5.5)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb, fsum, sqrt
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Holding, Imported
from evaldesk.model import Case, Criterion, ErrorRecord, EvalSet, Score, TrialResult, Turn, Usage, trial_verdict
from evaldesk.reading.json_lines import read_lines
from evaldesk.reading.json_text import to_text
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES, Place, parse_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_text, read_text, wanted
from evaldesk.transcripts.recorded import RecordedRun, file_stem, recorded_score

BASELINE = "baseline"
REWARD = "reward"
MAX_INDEX = 1_000_000
_INDEX = {"row_index", "run_index"}


class OsmosisResults:
    """`{"config", "summary", "rows": [{"row_index", "runs": [...]}]}` and its descendants."""

    title = "Osmosis results"
    suffixes = (".json", ".jsonl")
    writes: tuple[Holding, ...] = ("run",)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with a configuration and rows or runs, or lines of an index."""
        seen = peek(data)
        value = seen.whole
        if isinstance(value, dict) and isinstance(value.get("config"), dict):
            found = {"n_runs", "eval_fns", "pass_threshold"} & set(value["config"])
            return bool(found) and ("rows" in value or "runs" in value)
        if _is_metrics(value):
            return True
        line = seen.line
        is_alone = value is None or source.lower().endswith(".jsonl")
        return is_alone and isinstance(line, dict) and set(line) >= _INDEX and "messages" not in line

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A run with the trials of the primary model, and one with those of the baseline. Raises FormatError."""
        seen = peek(data)
        if isinstance(seen.line, dict) and set(seen.line) >= _INDEX:
            lines = list(read_lines(data, source))
            return _imported(_Header(file_stem(source)), [_flat(Place(line), line.value) for line in lines])
        if _is_metrics(seen.whole):
            reason = "this is the metrics.json of a run, which has no trials; import the index.jsonl beside it"
            raise FormatError(reason, source=source)
        document = parse_json(data, source=source, max_bytes=MAX_RECORDED_BYTES)
        place = Place(document)
        raw = read_mapping(place, document.value)
        header = _header(place.at("config"), raw.get("config", ABSENT), source)
        rows = list(_rows(place, raw)) if "rows" in raw else _runs(place.at("runs"), raw.get("runs", ABSENT))
        return _imported(header, rows)

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The results of a run; values without a place there are under `evaldesk`. Raises FormatError."""
        if isinstance(what, EvalSet):
            raise FormatError("a file of results holds a run, not an eval set; write it as osmosis-jsonl")
        rows: dict[int, list[dict[str, Any]]] = {}
        for result in what.results:
            rows.setdefault(result.case_index, []).append(_write_run(result))
        threshold = next((each.threshold for each in what.criteria if each.threshold is not None), 1.0)
        config = {
            "model": what.model or "",
            "n_runs": max((len(runs) for runs in rows.values()), default=0),
            "pass_threshold": threshold,
            "eval_fns": [criterion.metric for criterion in what.criteria],
        }
        ours = {
            "name": what.name,
            "agent": what.agent,
            "note": what.note,
            "cases": [case.id for case in what.cases],
            "thresholds": {criterion.metric: criterion.threshold for criterion in what.criteria},
        }
        written = [{"row_index": index, "runs": runs} for index, runs in sorted(rows.items())]
        summary = summary_of(what, threshold)
        return to_text({"config": config, "summary": summary, "rows": written, "evaldesk": ours}, {}, what.name)


def _is_metrics(value: Any) -> bool:
    return isinstance(value, dict) and {"eval_run", "summary"} <= set(value)


@dataclass(frozen=True, slots=True)
class _Header:
    """The configuration of all runs; `cases` are our own names of rows."""

    name: str
    model: str = ""
    baseline: str = ""
    agent: str = ""
    threshold: float = 1.0
    functions: tuple[str, ...] = ()
    note: str = ""
    cases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """One attempt: the place of its row, its number, and its values."""

    place: Place
    row_index: int
    run_index: int
    tag: str
    raw: dict[str, Any]


def _header(place: Place, raw: Any, source: str) -> _Header:
    raw = read_mapping(place, raw)
    own = read_mapping(Place(place.document), place.document.value).get("evaldesk")
    own = own if isinstance(own, dict) else {}
    threshold = raw.get("pass_threshold", 1.0)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise wanted(place.at("pass_threshold"), threshold, "a number")
    functions = read_list(place.at("eval_fns"), raw.get("eval_fns", []), read_text)
    names = own.get("cases") if isinstance(own.get("cases"), list) else []
    model = read_optional_text(place.at("model"), raw.get("model")) or ""
    module = read_optional_text(place.at("module"), raw.get("module")) or ""
    return _Header(
        name=_text(own.get("name")) or _text(raw.get("dataset")) or file_stem(source),
        model=model,
        baseline=read_optional_text(place.at("baseline_model"), raw.get("baseline_model")) or "",
        agent=_text(own.get("agent")) or module or model,
        threshold=float(threshold),
        functions=functions,
        note=_text(own.get("note")),
        cases=tuple(name for name in names or () if isinstance(name, str)),
    )


def _rows(place: Place, raw: dict[str, Any]) -> Iterator[_Run]:
    rows_at = place.at("rows")
    for index, item in enumerate(read_list(rows_at, raw["rows"], read_mapping)):
        here = rows_at.at(index)
        row_index = _index(here.at("row_index"), item.get("row_index", ABSENT))
        for number, run in enumerate(read_list(here.at("runs"), item.get("runs", ABSENT), read_mapping)):
            yield _flat(here.at("runs", number), {**run, "row_index": row_index})


def _runs(place: Place, raw: Any) -> list[_Run]:
    return list(read_list(place, raw, _flat))


def _flat(place: Place, raw: Any) -> _Run:
    raw = read_mapping(place, raw)
    row_index = _index(place.at("row_index"), raw.get("row_index", ABSENT))
    run_index = _index(place.at("run_index"), raw.get("run_index", ABSENT))
    return _Run(place, row_index, run_index, read_optional_text(place.at("model_tag"), raw.get("model_tag")) or "", raw)


def _imported(header: _Header, runs: list[_Run]) -> Imported:
    notes = Notes()
    functions = header.functions or ((REWARD,) if any(REWARD in run.raw for run in runs) else ())
    criteria = tuple(Criterion(name, header.threshold) for name in functions)
    primary = _recorded(header, [run for run in runs if run.tag != BASELINE], criteria, header.model, notes)
    baseline = _recorded(header, [run for run in runs if run.tag == BASELINE], criteria, header.baseline, notes)
    found = tuple(run for run in (primary, baseline) if run is not None)
    if not found:
        raise FormatError("the file contains no run of a row", source=runs[0].place.document.source if runs else "")
    words = (f"A trial passes when every score reaches {header.threshold:g}; the file has no conversations.",)
    return Imported("osmosis-results", runs=found, understood=words, refused=notes.sentences)


def _recorded(
    header: _Header, runs: list[_Run], criteria: tuple[Criterion, ...], model: str, notes: Notes
) -> RecordedRun | None:
    if not runs:
        return None
    indexes = sorted({run.row_index for run in runs})
    is_whole = indexes == list(range(len(indexes))) and len(header.cases) == len(indexes)
    names = header.cases if is_whole else [f"row_{index}" for index in indexes]
    cases = tuple(Case(name, turns=(Turn(""),)) for name in names)
    at = {index: number for number, index in enumerate(indexes)}
    ranks = _ranks(runs)
    results: dict[tuple[int, int], TrialResult] = {}
    for run in runs:
        key = (at[run.row_index], ranks[run.row_index, run.run_index])
        if key in results:
            notes.refuse(f"a second result of row {run.row_index}, run {run.run_index}", run.place)
        elif run.raw.get("status") == "skipped":
            notes.refuse("a skipped sample without a score", run.place)
        else:
            results[key] = _result(run, key, criteria, model)
    return RecordedRun(header.name, header.agent, cases, tuple(results.values()), criteria, model or None, header.note)


def _ranks(runs: list[_Run]) -> dict[tuple[int, int], int]:
    """The trial index of each run of a row: the tool's own number, counted without gaps."""
    by_row: dict[int, set[int]] = {}
    for run in runs:
        by_row.setdefault(run.row_index, set()).add(run.run_index)
    return {(row, number): rank for row, found in by_row.items() for rank, number in enumerate(sorted(found))}


def _result(run: _Run, key: tuple[int, int], criteria: tuple[Criterion, ...], model: str) -> TrialResult:
    raw, place = run.raw, run.place
    reason = read_optional_text(place.at("error"), raw.get("error")) or _text(raw.get("error_type"))
    is_ok = raw["success"] is True if "success" in raw else raw.get("status", "success") == "success"
    error = None if is_ok else ErrorRecord("failed_run", reason or "Osmosis counts this run as failed.")
    values = raw.get("scores")
    values = read_mapping(place.at("scores"), values) if values is not None else {REWARD: raw.get(REWARD)}
    scores = [] if error else [_score(place, criterion, values) for criterion in criteria]
    tokens = _number(place.at("tokens"), raw.get("tokens"))
    usages = (Usage(model, tokens_in=int(tokens)),) if tokens >= 1 else ()
    return TrialResult(
        0,
        *key,
        status="errored" if error else "finished",
        verdict=trial_verdict(scores, criteria, error),
        scores=tuple(scores),
        usages=usages,
        duration_ms=_number(place.at("duration_ms"), raw.get("duration_ms")),
        error=error,
    )


def _score(place: Place, criterion: Criterion, values: dict[str, Any]) -> Score:
    value = values.get(criterion.metric)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e100):
        raise wanted(place.at("scores", criterion.metric), value, "a number")
    return recorded_score(criterion, None if value is None else float(value))


def _write_run(result: TrialResult) -> dict[str, Any]:
    whole = {score.metric: score.value for score in result.scores if score.turn is None and score.value is not None}
    found: dict[str, Any] = {
        "run_index": result.trial_index,
        "success": result.error is None,
        "scores": whole,
        "duration_ms": result.duration_ms,
        "tokens": result.tokens,
    }
    return found | ({"error": result.error.message} if result.error else {})


def _index(place: Place, raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw <= MAX_INDEX:
        raise wanted(place, raw, f"a number from 0 to {MAX_INDEX:,}")
    return raw


def _number(place: Place, raw: Any) -> float:
    if raw is None:
        return 0.0
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw < 2**53:
        raise wanted(place, raw, "a number that is not negative")
    return float(raw)


def _text(raw: Any) -> str:
    return raw if isinstance(raw, str) else ""


KS = (1, 3, 5, 10)


def summary_of(run: RecordedRun, threshold: float) -> dict[str, Any]:
    """Totals and, for each metric, mean, population deviation, range and pass@k; a failed run scores 0 there."""
    rows: dict[int, list[TrialResult]] = {}
    for result in run.results:
        rows.setdefault(result.case_index, []).append(result)
    n = max((len(trials) for trials in rows.values()), default=0)
    found = {each.metric: _of_metric(each.metric, list(rows.values()), n, threshold) for each in run.criteria}
    return {
        "total_rows": len(rows),
        "total_runs": len(run.results),
        "eval_fns": found,
        "total_tokens": sum(result.tokens for result in run.results),
        "total_duration_ms": fsum(result.duration_ms for result in run.results),
    }


def _of_metric(metric: str, rows: Sequence[Sequence[TrialResult]], n: int, threshold: float) -> dict[str, float]:
    scores = [[_summary_score(trial, metric) for trial in trials] for trials in rows]
    values = [value for row in scores for value in row]
    mean = fsum(values) / len(values) if values else 0.0
    std = sqrt(fsum((value - mean) * (value - mean) for value in values) / len(values)) if values else 0.0
    found = {"mean": mean, "std": std, "min": min(values, default=0.0), "max": max(values, default=0.0)}
    for k in KS:
        if 1 < n >= k:
            each = [_pass_at_k(len(row), sum(value >= threshold for value in row), k) for row in scores]
            found[f"pass_at_{k}"] = fsum(each) / len(each)
    return found


def _summary_score(trial: TrialResult, metric: str) -> float:
    found = (score.value for score in trial.scores if score.metric == metric and score.turn is None)
    value = next(found, None)
    return 0.0 if value is None else value


def _pass_at_k(n: int, c: int, k: int) -> float:
    """Osmosis' own: with fewer trials than k it is whether any passed, where ours is undefined."""
    if c == 0:
        return 0.0
    return 1.0 if n - c < k else 1.0 - comb(n - c, k) / comb(n, k)
