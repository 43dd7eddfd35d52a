"""The files that `evaldesk eval` writes: JSON, JSON lines, CSV and Parquet, JUnit, Markdown, GitHub annotations."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from evaldesk.cli.eval_request import EvalRequest
from evaldesk.cli.osmosis_folder import folder_results, is_folder
from evaldesk.cli.playing import Played
from evaldesk.cli.result_json import result_json
from evaldesk.desk.run_numbers import run_numbers
from evaldesk.desk.run_results import read_cases
from evaldesk.errors import UsageError
from evaldesk.report.annotations import MOST_CASES, case_annotation, gate_annotations
from evaldesk.report.gates import Baseline, GateOutcome
from evaldesk.report.junit import junit_suite, junit_xml
from evaldesk.report.markdown import SummaryPart, markdown_summary
from evaldesk.report.run_frame import SCORE_COLUMNS, TRIAL_COLUMNS, Cell, score_row, trial_row
from evaldesk.report.spreadsheet import cell
from evaldesk.report.turn_text import first_words
from evaldesk.store import Store

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
    files = (name for name in request.outputs if not request.module)
    for named in (*files, request.junit, request.summary):
        if named and Path(named).is_dir():
            raise UsageError(f"{named} is a folder; name a file")
    for named in (*request.outputs, request.junit, request.summary):
        if named:
            _check_place(Path(named))


def _check_place(path: Path) -> None:
    """Raise UsageError where no file can be made."""
    place = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not os.access(place, os.W_OK) or (place != path and not place.is_dir()):
        raise UsageError(f"{path}: {place} cannot be written to; name another place")


def write_outputs(
    store: Store,
    request: EvalRequest,
    played: Sequence[Played],
    outcomes: Sequence[GateOutcome],
    baseline: Baseline | None,
) -> None:
    """Write every file that was asked for."""
    every, played = played, [each for each in played if not each.job.is_baseline]
    for name in request.outputs:
        if request.module and is_folder(name):
            path, data = folder_results(store, request, every, name)
            _write(path, data)
            click.echo(f"Results: {path}", err=True)
        elif request.module and _ending(name) == ".json":
            from evaldesk.cli.osmosis_results import osmosis_json

            _write(Path(name), osmosis_json(store, every, outcomes))
        else:
            _write(Path(name), WRITERS[_ending(name)](store, played, outcomes))
    if request.junit:
        suites = [_suite(store, each) for each in played]
        _write(Path(request.junit), junit_xml(suites))
    if request.summary:
        parts = [_part(store, each) for each in played]
        text = markdown_summary(parts, outcomes, baseline)
        is_shared = request.summary == os.environ.get("GITHUB_STEP_SUMMARY")
        _write(Path(request.summary), text.encode(), is_appended=is_shared)


def show_annotations(store: Store, played: Sequence[Played], outcomes: Sequence[GateOutcome], *, is_json: bool) -> None:
    """Print the workflow commands that mark what did not pass."""
    for line in (*gate_annotations(outcomes), *_annotations(store, played)):
        click.echo(line, err=is_json)


def _json(store: Store, played: Sequence[Played], outcomes: Sequence[GateOutcome]) -> bytes:
    return result_json(store, played, outcomes).encode() + b"\n"


def _json_lines(store: Store, played: Sequence[Played], _: Sequence[GateOutcome]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in trial_rows(store, played)).encode()


def _csv_of(rows: Callable[[Store, Sequence[Played]], Rows], columns: Sequence[str]) -> Writer:
    def write(store: Store, played: Sequence[Played], _: Sequence[GateOutcome]) -> bytes:
        import csv
        import io

        found = list(rows(store, played))
        names = dict.fromkeys((*columns, *(name for row in found for name in row)))
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(cell(name) for name in names)
        writer.writerows([cell(row.get(name)) for name in names] for row in found)
        return text.getvalue().encode()

    return write


def _parquet_of(rows: Callable[[Store, Sequence[Played]], Rows]) -> Writer:
    def write(store: Store, played: Sequence[Played], _: Sequence[GateOutcome]) -> bytes:
        import io

        import pandas as pd

        data = io.BytesIO()
        pd.DataFrame(list(rows(store, played))).to_parquet(data, index=False)
        return data.getvalue()

    return write


def trial_rows(store: Store, played: Sequence[Played]) -> Rows:
    """A row for each trial that was played."""
    for each in played:
        for case in read_cases(store, each.run.id):
            for trial in case:
                yield trial_row(case.case, trial, each.run.config)


def score_rows(store: Store, played: Sequence[Played]) -> Rows:
    """A row for each score."""
    for each in played:
        for case in read_cases(store, each.run.id):
            for trial in case:
                yield from (score_row(case.case, trial, score, each.run.config) for score in trial.scores)


Writer = Callable[[Store, Sequence[Played], Sequence[GateOutcome]], bytes]
WRITERS: Mapping[str, Writer] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".csv": _csv_of(trial_rows, TRIAL_COLUMNS),
    ".scores.csv": _csv_of(score_rows, SCORE_COLUMNS),
    ".parquet": _parquet_of(trial_rows),
    ".scores.parquet": _parquet_of(score_rows),
}


def _ending(name: str) -> str:
    path = Path(name)
    return "".join(path.suffixes[-2:]) if path.suffixes[-2:-1] == [".scores"] else path.suffix


def _write(path: Path, data: bytes, *, is_appended: bool = False) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_appended:
            with path.open("ab") as file:
                file.write(data)
        else:
            path.write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; the run is stored, name another file with `evaldesk run export`"
        ) from error


def _suite(store: Store, each: Played) -> Any:
    run = each.run
    cases = read_cases(store, run.id)
    name = f"{run.config.agent.id}.{each.job.evalset.id}"
    return junit_suite(name, cases, started_at=run.started_at, pass_threshold=run.config.pass_threshold)


def _part(store: Store, each: Played) -> SummaryPart:
    reasons = {}
    for case in read_cases(store, each.run.id):
        worst = next((trial for trial in case if trial.verdict != "passed"), None)
        if worst:
            reasons[case.id] = first_words(case.case, worst)
    title = f"{each.run.config.agent.id} on {each.job.evalset.name or each.job.evalset.id}"
    return SummaryPart(title, run_numbers(store, each.run), reasons)


def _annotations(store: Store, played: Sequence[Played]) -> Iterator[str]:
    n_left = MOST_CASES
    for each in played:
        path = _relative(each.job.path)
        for case in read_cases(store, each.run.id):
            line = case_annotation(case, path)
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
