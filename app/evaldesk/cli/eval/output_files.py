"""The files that `evaldesk eval` writes: JSON, JSON lines, CSV and Parquet, JUnit, Markdown, GitHub annotations."""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from math import comb, fsum
from pathlib import Path
from typing import Any

import click

from evaldesk.cli.eval.osmosis_results import row_results
from evaldesk.cli.eval.playing import Played
from evaldesk.cli.eval.request import EvalRequest
from evaldesk.cli.eval.result_json import result_json
from evaldesk.cli.files.exchange_files import show_masked
from evaldesk.desk.evalsets.masking import Masked, masked, masked_words, without_secrets
from evaldesk.desk.runs.stored_runs import StoredRuns, joined_numbers
from evaldesk.desk.runs.trial_rows import SCORE_COLUMNS, TRIAL_COLUMNS, Cell, cell, score_row, trial_row
from evaldesk.durable_files import append_file, make_folder, write_output
from evaldesk.errors import DiskError, UsageError
from evaldesk.model import Conclusion
from evaldesk.model.comparison import RunChange
from evaldesk.pages.reports.junit import gate_suite, junit_suite, junit_xml
from evaldesk.pages.reports.markdown import (
    MOST_CASES,
    SummaryPart,
    case_annotation,
    conclusion_annotations,
    markdown_summary,
)
from evaldesk.wording.trial_text import first_words
from evaldesk.wording.words import asserted_lines

Rows = Iterator[dict[str, Cell]]


def check_outputs(request: EvalRequest) -> None:
    """Refuse names of files that cannot be written, before anything is played. Raises UsageError."""
    for name in request.outputs:
        if request.module and is_folder(name):
            continue
        if _ending(name) not in WRITERS:
            others = "--summary FILE writes Markdown, --junit FILE JUnit XML"
            raise UsageError(f"-o {name}: the ending says the form; there are: {', '.join(WRITERS)}; {others}")
        if name.endswith(".parquet"):
            _check_parquet()
    every = [name for name in (*request.outputs, request.junit, request.summary) if name]
    for named in every if not request.module else every[len(request.outputs) :]:
        if Path(named).is_dir():
            raise UsageError(f"{named} is a folder; name a file")
    for at, named in enumerate(every):
        if Path(named).absolute() in (Path(other).absolute() for other in every[:at]):
            raise UsageError(f"{named} is named twice, and each result needs a file of its own")
        _check_place(Path(named))


def _check_place(path: Path) -> None:
    """Raise UsageError where no file can be made."""
    place = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not os.access(place, os.W_OK) or (place != path and not place.is_dir()):
        raise UsageError(f"{path}: {place} cannot be written to; name another place")


def write_outputs(
    runs: StoredRuns,
    request: EvalRequest,
    played: Sequence[Played],
    conclusion: Conclusion,
    change: RunChange | None,
) -> None:
    """Write every file that was asked for."""
    every, played = played, [each for each in played if not each.job.is_baseline]
    for name in request.outputs:
        if request.module and is_folder(name):
            path, data = folder_results(runs, request, every, name)
            _write(path, data)
            click.echo(f"Results: {path}", err=True)
        elif request.module and _ending(name) == ".json":
            from evaldesk.cli.eval.osmosis_results import osmosis_json

            _write(Path(name), osmosis_json(runs, every, conclusion))
        else:
            _write(Path(name), WRITERS[_ending(name)](runs, played, conclusion, change))
    if request.junit:
        names = (case.id for case in joined_numbers([runs.numbers(each.run) for each in played]).cases)
        suites = [_suite(runs, each, conclusion, names) for each in played]
        _write(Path(request.junit), junit_xml([*suites, gate_suite(conclusion)]))
    if request.summary:
        parts = [_part(runs, each) for each in played]
        text = markdown_summary(parts, conclusion, change)
        is_shared = request.summary == os.environ.get("GITHUB_STEP_SUMMARY")
        _write(Path(request.summary), text.encode(), is_appended=is_shared)


def show_annotations(runs: StoredRuns, played: Sequence[Played], conclusion: Conclusion, *, is_json: bool) -> None:
    """Print the workflow commands that mark the trials that did not pass."""
    for line in (*conclusion_annotations(conclusion), *_annotations(runs, played, conclusion)):
        click.echo(line, err=is_json)


def _json(runs: StoredRuns, played: Sequence[Played], conclusion: Conclusion, change: RunChange | None) -> bytes:
    return result_json(runs, played, conclusion, change).encode() + b"\n"


def _json_lines(runs: StoredRuns, played: Sequence[Played], _: Conclusion, __: RunChange | None) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in trial_rows(runs, played)).encode()


def _csv_of(rows: Callable[[StoredRuns, Sequence[Played]], Rows], columns: Sequence[str]) -> Writer:
    def write(runs: StoredRuns, played: Sequence[Played], _: Conclusion, __: RunChange | None) -> bytes:
        import csv
        import io

        found = list(rows(runs, played))
        names = dict.fromkeys((*columns, *(name for row in found for name in row)))
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(cell(name) for name in names)
        writer.writerows([cell(row.get(name)) for name in names] for row in found)
        return text.getvalue().encode()

    return write


def _parquet_of(rows: Callable[[StoredRuns, Sequence[Played]], Rows]) -> Writer:
    def write(runs: StoredRuns, played: Sequence[Played], _: Conclusion, __: RunChange | None) -> Masked:
        import io

        import pandas as pd

        data = io.BytesIO()
        found: Counter[str] = Counter()
        clean = list(without_secrets(rows(runs, played), os.environ, found))  # a packed file cannot be searched
        pd.DataFrame(clean).to_parquet(data, index=False)
        return Masked(data.getvalue(), masked_words(found, {}) if found else "")

    return write


def trial_rows(runs: StoredRuns, played: Sequence[Played]) -> Rows:
    """A row for each trial that was played."""
    for each in played:
        for case in runs.cases(each.run.id):
            for trial in case:
                yield trial_row(case.case, trial, each.run.config)


def score_rows(runs: StoredRuns, played: Sequence[Played]) -> Rows:
    """A row for each score."""
    for each in played:
        for case in runs.cases(each.run.id):
            for trial in case:
                yield from (score_row(case.case, trial, score, each.run.config) for score in trial.scores)


Writer = Callable[[StoredRuns, Sequence[Played], Conclusion, RunChange | None], bytes | Masked]
WRITERS: Mapping[str, Writer] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".csv": _csv_of(trial_rows, TRIAL_COLUMNS),
    ".scores.csv": _csv_of(score_rows, SCORE_COLUMNS),
    ".parquet": _parquet_of(trial_rows),
    ".scores.parquet": _parquet_of(score_rows),
}


def _ending(name: str) -> str:
    whole = "".join(Path(name).suffixes[-2:])
    return whole if whole in WRITERS else Path(name).suffix


def _write(path: Path, data: bytes | Masked, *, is_appended: bool = False) -> None:
    found = data if isinstance(data, Masked) else masked(data, os.environ)
    show_masked(f"{path.name}: {found.words}" if found.words else "")
    try:
        make_folder(path.parent)
        if is_appended:
            append_file(path, found.data)
        else:
            write_output(path, found.data)
    except DiskError as error:
        raise UsageError(
            f"{path}: {error.strerror}; the run is stored, name another file with `evaldesk run export`"
        ) from error


def _suite(runs: StoredRuns, each: Played, conclusion: Conclusion, names: Iterator[str]) -> Any:
    run = each.run
    cases = runs.cases(run.id)
    name = f"{run.config.agent.id}.{each.job.evalset.id}"
    return junit_suite(name, zip(cases, names, strict=False), conclusion, started_at=run.started_at)


def _part(runs: StoredRuns, each: Played) -> SummaryPart:
    reasons = {}
    for case in runs.cases(each.run.id):
        worst = next((trial for trial in case if trial.verdict != "passed"), None)
        if worst:
            reasons[case.id] = first_words(case.case, worst)
    title = f"{each.run.config.agent.id} on {each.job.evalset.name or each.job.evalset.id}"
    asserted = asserted_lines(each.run.config, each.run.n_cases)
    return SummaryPart(title, runs.numbers(each.run), reasons, each.run.config.evalset_name, asserted)


def _annotations(runs: StoredRuns, played: Sequence[Played], conclusion: Conclusion) -> Iterator[str]:
    n_left = MOST_CASES
    is_tolerated = conclusion.outcome in ("passed", "neutral")
    for each in played:
        path = _relative(each.job.path)
        for case in runs.cases(each.run.id):
            line = case_annotation(case, path, is_tolerated=is_tolerated)
            if line and n_left:
                n_left -= 1
                yield line


def _relative(path: Path) -> str:
    here = Path.cwd()
    whole = path.resolve()
    return whole.relative_to(here).as_posix() if whole.is_relative_to(here) else str(path)


def _check_parquet() -> None:
    if find_spec("pyarrow") is None:
        raise UsageError("Parquet needs pyarrow: pip install pyarrow, or name a .csv or .jsonl file")


LONGEST_PART = 60


def is_folder(name: str) -> bool:
    """Whether `-o` names a folder: one that is there, or a name without an ending."""
    return name.endswith("/") or Path(name).is_dir() or not Path(name).suffix


def folder_results(
    stored: StoredRuns, request: EvalRequest, played: Sequence[Played], folder: str
) -> tuple[Path, bytes]:
    """The file of the runs and its contents: every trial of every model in one flat list, and the totals."""
    first = played[0]
    config = _config(request, first)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    runs = [
        {**run, "model_tag": tag}
        for each, tag in zip(played, ("primary", "baseline"), strict=False)
        for run in row_results(stored, each)
    ]
    finished = max(each.run.finished_at or each.run.created_at for each in played)
    whole = {
        "version": 1,
        "task_id": digest[:12],
        "config_hash": digest[:32],
        "status": "completed" if all(each.run.status == "finished" for each in played) else "in_progress",
        "created_at": first.run.created_at.isoformat(),
        "updated_at": finished.isoformat(),
        "config": config,
        "runs": runs,
        "summary": _summary([run for run in runs if run["model_tag"] == "primary"], runs, config),
        "evaldesk": {"run_ids": [each.run.id for each in played]},
    }
    name = f"results_{int(first.run.created_at.timestamp())}_{digest[:12]}.json"
    place = Path(folder, path_part(config["model"] or first.job.agent.id), path_part(first.job.path.stem))
    return place / name, json.dumps(whole, indent=2, ensure_ascii=False).encode() + b"\n"


def path_part(text: str) -> str:
    """A name of a folder that every system takes; a long one is cut and ends with four digits of its hash."""
    bare = "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))
    part = re.sub(r"[^\w]+", "-", bare.lower()).strip("-") or "unnamed"
    if len(part) <= LONGEST_PART:
        return part
    return f"{part[:LONGEST_PART]}-{hashlib.sha256(text.encode()).hexdigest()[:4]}"


def _config(request: EvalRequest, first: Played) -> dict[str, Any]:
    asked = request.asked
    sampling = {name: asked.get(name) for name in ("temperature", "max_tokens")}
    config = {
        "model": asked.get("model") or first.run.config.agent_model or "",
        "base_url": asked.get("base_url"),
        "baseline_model": request.baseline_model,
        "baseline_base_url": request.baseline_base_url,
        "module": request.module,
        "dataset": request.dataset,
        "eval_fns": sorted(each.metric for each in first.run.config.criteria),
        "n_runs": request.value("n"),
        "max_turns": asked.get("max_turns"),
        "pass_threshold": request.value("pass_threshold"),
        "offset": request.offset,
        "limit": request.limit,
        "completion_params": {name: value for name, value in sampling.items() if value is not None},
        "dataset_fingerprint": hashlib.sha256(first.job.path.read_bytes()).hexdigest(),
        "module_fingerprint": first.run.config.agent_version,
    }
    return {name: value for name, value in config.items() if value is not None}


def _summary(primary: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]], config: dict[str, Any]) -> Any:
    return {
        "eval_fns": {name: _of_function(primary, name, config) for name in config["eval_fns"]},
        "total_runs": len(runs),
        "total_tokens": sum(run["tokens"] for run in runs),
        "total_duration_ms": fsum(run["duration_ms"] for run in runs),
    }


def _of_function(runs: Sequence[dict[str, Any]], name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Mean, median, deviation, range, quartiles and pass@k; a run without a score counts 0, as there."""
    rows: dict[int, list[float]] = {}
    for run in runs:
        rows.setdefault(run["row_index"], []).append(run["scores"].get(name, 0.0))
    values = [value for row in rows.values() for value in row] or [0.0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    n = config["n_runs"]
    counts = [sum(value >= config["pass_threshold"] for value in row) for row in rows.values()] or [0]
    return {
        "mean": fsum(values) / len(values),
        "median": statistics.median(values),
        "std": statistics.pstdev(values),
        "min": min(values),
        "max": max(values),
        "p25": low,
        "p75": high,
        "pass_at_k": {str(k): fsum(_pass_at_k(n, c, k) for c in counts) / len(counts) for k in _ks(n)},
    }


def _ks(n: int) -> list[int]:
    """1, 2, 4, … below n, and n; none where each row was run once."""
    return [] if n == 1 else [*(2**power for power in range(n.bit_length()) if 2**power < n), n]


def _pass_at_k(n: int, c: int, k: int) -> float:
    """Trials that are missing after an early stop count as failed, as there."""
    return 1.0 - comb(n - c, k) / comb(n, k)
