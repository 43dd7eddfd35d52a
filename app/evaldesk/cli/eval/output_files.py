"""The files that `evaldesk eval` writes: JSON, JSON lines, CSV and Parquet, JUnit, Markdown, GitHub annotations."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from evaldesk.cli.eval.playing import Played
from evaldesk.cli.eval.request import EvalRequest
from evaldesk.cli.eval.result_json import result_json
from evaldesk.cli.eval.spellings import spelled_results
from evaldesk.cli.files.exchange_files import show_masked
from evaldesk.desk.evalsets.masking import Masked, mask_file, masked_words, without_secrets
from evaldesk.desk.runs.case_reports import CaseReport
from evaldesk.desk.runs.shard_files import suite_name, summary_title
from evaldesk.desk.runs.stored_runs import StoredRuns, named_together
from evaldesk.desk.runs.trial_rows import (
    AGENT_COLUMNS,
    SCORE_COLUMNS,
    TRIAL_COLUMNS,
    Cell,
    agent_rows,
    score_row,
    trial_row,
)
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
from evaldesk.registry import is_installed
from evaldesk.wording.comparison import again_notes
from evaldesk.wording.places import shared_globals_sentence
from evaldesk.wording.printable import cell
from evaldesk.wording.words import asserted_lines
from evaldesk.wording.writer import show, show_command

Rows = Iterator[dict[str, Cell]]


def is_folder(name: str) -> bool:
    """Whether `-o` names a folder: an existing one, or a name without an ending."""
    return name.endswith("/") or Path(name).is_dir() or not Path(name).suffix


def check_outputs(request: EvalRequest) -> None:
    """Refuse names of files that cannot be written, before anything is played. Raises UsageError."""
    spelled = spelled_results(request)
    for name in request.outputs:
        if spelled and is_folder(name):
            continue
        if _ending(name) not in WRITERS:
            others = "--summary FILE writes Markdown, --junit FILE JUnit XML"
            raise UsageError(f"-o {name}: the ending says the form; there are: {', '.join(WRITERS)}; {others}")
        if name.endswith(".parquet") and not is_installed("pyarrow"):
            raise UsageError("Parquet needs pyarrow: pip install pyarrow, or name a .csv or .jsonl file")
    every = [name for name in (*request.outputs, request.junit, request.summary) if name]
    for file_name in every if spelled_results(request) is None else every[len(request.outputs) :]:
        if Path(file_name).is_dir():
            raise UsageError(f"{file_name} is a folder; name a file")
    for at, file_name in enumerate(every):
        if Path(file_name).absolute() in (Path(other).absolute() for other in every[:at]):
            raise UsageError(f"{file_name} is named twice, and each result needs a file of its own")
        _check_place(Path(file_name))


def _check_place(path: Path) -> None:
    """Raise UsageError where no file can be made."""
    place = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not os.access(place, os.W_OK) or (place != path and not place.is_dir()):
        raise UsageError(f"{path}: {place} cannot be written to; name another place")


def write_outputs(
    runs: StoredRuns,
    request: EvalRequest,
    played_runs: Sequence[Played],
    conclusion: Conclusion,
    change: RunChange | None,
) -> None:
    """Write every file that was asked for."""
    every, played_runs = played_runs, [each for each in played_runs if not each.job.is_baseline]
    spelled = spelled_results(request)
    for name in request.outputs:
        if spelled and is_folder(name):
            path, data = spelled.folder_results(runs, request, every, name)
            write_result(path, data)
            show(f"Results: {path}", err=True)
        elif spelled and _ending(name) == ".json":
            write_result(Path(name), spelled.as_json(runs, every, conclusion))
        else:
            write_result(Path(name), WRITERS[_ending(name)](runs, played_runs, conclusion, change))
    if request.junit:
        names = _names(runs, played_runs)
        write_junit(request.junit, [_suite(runs, each, conclusion, names, change) for each in played_runs], conclusion)
    if request.summary:
        write_summary(request.summary, [_part(runs, each) for each in played_runs], conclusion, change)


def write_junit(name: str, suites: Sequence[Element], conclusion: Conclusion) -> None:
    """Write the suites of the runs and that of the gates as JUnit XML. Raises UsageError."""
    write_result(Path(name), junit_xml([*suites, gate_suite(conclusion)]))


def write_summary(name: str, parts: Sequence[SummaryPart], conclusion: Conclusion, change: RunChange | None) -> None:
    """Write the runs as Markdown, after what other steps wrote in the summary of GitHub. Raises UsageError."""
    is_shared = name == os.environ.get("GITHUB_STEP_SUMMARY")
    write_result(Path(name), markdown_summary(parts, conclusion, change).encode(), is_appended=is_shared)


def show_annotations(
    runs: StoredRuns, played_runs: Sequence[Played], conclusion: Conclusion, change: RunChange | None, *, is_json: bool
) -> None:
    """Print the workflow commands that mark the trials that did not pass."""
    for line in (*conclusion_annotations(conclusion), *_annotations(runs, played_runs, conclusion, change)):
        show_command(line, err=is_json)


def _json(runs: StoredRuns, played_runs: Sequence[Played], conclusion: Conclusion, change: RunChange | None) -> bytes:
    return result_json(runs, played_runs, conclusion, change).encode() + b"\n"


def _json_lines(runs: StoredRuns, played_runs: Sequence[Played], _: Conclusion, __: RunChange | None) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in trial_rows(runs, played_runs)).encode()


def _csv_of(rows: Callable[[StoredRuns, Sequence[Played]], Rows], columns: Sequence[str]) -> Writer:
    def write(runs: StoredRuns, played_runs: Sequence[Played], _: Conclusion, __: RunChange | None) -> bytes:
        import csv
        import io

        all_rows = list(rows(runs, played_runs))
        names = _names_of(columns, all_rows)
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(cell(name) for name in names)
        writer.writerows([cell(row.get(name)) for name in names] for row in all_rows)
        return text.getvalue().encode()

    return write


def _parquet_of(rows: Callable[[StoredRuns, Sequence[Played]], Rows], columns: Sequence[str]) -> Writer:
    def write(runs: StoredRuns, played_runs: Sequence[Played], _: Conclusion, __: RunChange | None) -> Masked:
        import io

        import pandas as pd

        data = io.BytesIO()
        masked_counts: Counter[str] = Counter()
        # A packed file cannot be searched.
        clean = list(without_secrets(rows(runs, played_runs), os.environ, masked_counts))
        pd.DataFrame(clean, columns=_names_of(columns, clean)).to_parquet(data, index=False)
        return Masked(data.getvalue(), masked_words(masked_counts, {}) if masked_counts else "")

    return write


def _names_of(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    """The columns of a table: those that each has, then those of its rows."""
    return list(dict.fromkeys((*columns, *(name for row in rows for name in row))))


def trial_rows(runs: StoredRuns, played_runs: Sequence[Played]) -> Rows:
    """A row for each trial that was played."""
    for each in played_runs:
        for case in runs.cases(each.run.id):
            for trial in case:
                yield trial_row(case.case, trial, each.run.config)


def score_rows(runs: StoredRuns, played_runs: Sequence[Played]) -> Rows:
    """A row for each score."""
    for each in played_runs:
        for case in runs.cases(each.run.id):
            for trial in case:
                yield from (score_row(case.case, trial, score, each.run.config) for score in trial.scores)


def rows_of_agents(runs: StoredRuns, played_runs: Sequence[Played]) -> Rows:
    """A row for each agent of each trial in which several acted."""
    for each in played_runs:
        for case in runs.cases(each.run.id):
            for trial in case:
                yield from agent_rows(case.case, trial, each.run.config)


Writer = Callable[[StoredRuns, Sequence[Played], Conclusion, RunChange | None], bytes | Masked]
WRITERS: Mapping[str, Writer] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".csv": _csv_of(trial_rows, TRIAL_COLUMNS),
    ".scores.csv": _csv_of(score_rows, SCORE_COLUMNS),
    ".agents.csv": _csv_of(rows_of_agents, AGENT_COLUMNS),
    ".parquet": _parquet_of(trial_rows, TRIAL_COLUMNS),
    ".scores.parquet": _parquet_of(score_rows, SCORE_COLUMNS),
    ".agents.parquet": _parquet_of(rows_of_agents, AGENT_COLUMNS),
}


def _ending(name: str) -> str:
    ending = "".join(Path(name).suffixes[-2:])
    return ending if ending in WRITERS else Path(name).suffix


def write_result(path: Path, data: bytes | Masked, *, is_appended: bool = False) -> None:
    """Write a result without the secrets of the environment. Raises UsageError."""
    masked_data = data if isinstance(data, Masked) else mask_file(data, os.environ)
    show_masked(f"{path.name}: {masked_data.words}" if masked_data.words else "")
    try:
        make_folder(path.parent)
        if is_appended:
            append_file(path, masked_data.data)
        else:
            write_output(path, masked_data.data)
    except DiskError as error:
        raise UsageError(
            f"{path}: {error.strerror}; the run is stored, name another file with `evaldesk run export`"
        ) from error


def _names(runs: StoredRuns, played_runs: Sequence[Played]) -> Iterator[str]:
    """The names by which gates know the cases, one after the other."""
    return (case.id for case in named_together([case for each in played_runs for case in runs.case_numbers(each.run)]))


def _suite(
    runs: StoredRuns, each: Played, conclusion: Conclusion, names: Iterator[str], change: RunChange | None
) -> Element:
    run = each.run
    named_cases = zip(map(CaseReport.of, runs.cases(run.id)), names, strict=False)
    return junit_suite(
        suite_name(run, each.job.evalset),
        named_cases,
        conclusion,
        notes=again_notes(change),
        started_at=run.started_at,
    )


def _part(runs: StoredRuns, each: Played) -> SummaryPart:
    reports = map(CaseReport.of, runs.cases(each.run.id))
    reasons = {report.id: report.reason for report in reports if report.reason}
    title = summary_title(each.run, each.job.evalset)
    notes = [*asserted_lines(each.run.config, each.run.n_cases)]
    notes += filter(None, [shared_globals_sentence(each.run.shared_state).rstrip(".")])
    agents = runs.agent_totals(each.run.id)
    return SummaryPart(title, runs.numbers(each.run), reasons, each.run.config.evalset_name, notes, agents)


def _annotations(
    runs: StoredRuns, played_runs: Sequence[Played], conclusion: Conclusion, change: RunChange | None
) -> Iterator[str]:
    """A line for each case with a failed trial; a warning where fresh trials did not confirm that it regressed."""
    n_left = MOST_CASES
    is_tolerated = conclusion.outcome in ("passed", "neutral")
    broken = {case_name for gate in conclusion.gates if gate.is_failed for case_name in gate.names}
    left_out = frozenset(conclusion.case_ids_in_no_gate)
    notes, names = again_notes(change), _names(runs, played_runs)
    confirmed = {case.name for case in change.regressions} if change else set()
    for each in played_runs:
        path = _relative(each.job.path)
        for case in runs.cases(each.run.id):
            name = next(names)
            is_chance = name in notes and name not in confirmed
            is_unnamed = name in left_out or (conclusion.outcome == "failed" and name not in broken)
            note = notes.get(name, "")
            line = case_annotation(case, path, is_tolerated=is_tolerated or is_chance or is_unnamed, note=note)
            if line and n_left:
                n_left -= 1
                yield line


def _relative(path: Path) -> str:
    here = Path.cwd()
    real_path = path.resolve()
    return real_path.relative_to(here).as_posix() if real_path.is_relative_to(here) else str(path)
