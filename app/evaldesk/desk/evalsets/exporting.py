"""Runs and eval sets given out as files of any format that can hold them."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

from evaldesk.desk.evalsets.data_sets import tag_changes, tagged_set
from evaldesk.desk.evalsets.evalsets import Export
from evaldesk.desk.evalsets.masking import Masked, masked_file, masked_words, places_of
from evaldesk.desk.evalsets.names import plain_name
from evaldesk.desk.other_tools import as_tool_judges
from evaldesk.desk.runs.run_result import CaseResult, RunResult
from evaldesk.desk.runs.stored_runs import StoredRuns, open_run_store
from evaldesk.desk.runs.trial_rows import TRIAL_COLUMNS, trial_row
from evaldesk.errors import VALUE_LIMIT, FormatError, NotFoundError
from evaldesk.formats import EVALSET_FORMS, losses
from evaldesk.formats.criteria_file import CriteriaFile, write_criteria_file
from evaldesk.formats.files import names_for, run_parts, suffix_of, title_of, write_file
from evaldesk.model import Case, EvalSet, RecordedPlan, RunConfig, TrialResult
from evaldesk.model.run import LIVE, RecordedStatus
from evaldesk.model.stored import RunSummary
from evaldesk.model.tagged_cases import TagChange
from evaldesk.secrets import known_values, scrubber_of
from evaldesk.settings import Settings
from evaldesk.store.evalsets.files import EvalSetFiles
from evaldesk.store.evalsets.large import is_data_set
from evaldesk.store.store import is_made
from evaldesk.transcripts.recorded import ReadItems, RecordedRun
from evaldesk.wording.printable import cell

PART = 64 * 1024
CASES_AT_ONCE = 200
CSV = "csv"
CSV_TITLE = "CSV, one line for each trial"
CRITERIA = "criteria"
CRITERIA_TITLE = "Criteria, as a test_config.json"
MEDIA_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".csv": "text/csv; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class ExportForm:
    """A format for the export of an eval set: the parts that it leaves out, or why it cannot hold this set at all."""

    name: str
    title: str
    losses: tuple[str, ...] = ()
    refusal: str = ""


def export_forms(evalset: EvalSet, own_format: str) -> list[ExportForm]:
    """The formats that the eval set can be given out in; one flat list of turns only where its file is one."""
    names = [name for name in names_for("evalset") if name != "adk-flat" or own_format == name]
    return [export_form(evalset, name) for name in names]


def export_form(evalset: EvalSet, name: str) -> ExportForm:
    """The losses of the eval set in this format."""
    if name in EVALSET_FORMS:
        return ExportForm(name, title_of(name), losses(evalset, name))
    try:
        write_file(evalset, name)
    except FormatError as error:
        return ExportForm(name, title_of(name), refusal=error.reason)
    return ExportForm(name, title_of(name))


@cache
def run_formats() -> tuple[tuple[str, str], ...]:
    """The formats for the export of a run, each with its common name."""
    return (*((name, title_of(name)) for name in names_for("run")), (CSV, CSV_TITLE), (CRITERIA, CRITERIA_TITLE))


def export_evalset(settings: Settings, name: str, format_name: str) -> Masked:
    """The eval set of that name or id as a file. Raises NotFoundError, and FormatError when it cannot be said so."""
    files = EvalSetFiles(
        settings.roots, settings.evalset_folder, settings.state_folder / "trash", home=settings.workspace
    )
    listing = files.list()
    file = next((each for each in listing if name in (each.name, each.id)), None)
    if file is None:
        raise NotFoundError.among("eval set", name, [each.name for each in listing])
    evalset = tagged_set(files.read(file.id)[0], _tag_changes(settings, file.id, file.path))
    return masked_file(evalset, format_name, settings.environment)


def _tag_changes(settings: Settings, evalset_id: str, path: Path) -> Mapping[str, TagChange]:
    """The tags of a data set that are in the database, where there is one; the file of any other set has its tags."""
    if not (is_data_set(path.stat().st_size) and is_made(settings.database)):
        return {}
    with open_run_store(settings) as store:
        return tag_changes(store, evalset_id, path)


def export_run(runs: StoredRuns, run_id: int, format_name: str, environment: Mapping[str, str] = os.environ) -> Export:
    """The finished trials of a run, or its criteria, as a file without the secrets of the environment.

    Raises NotFoundError for the run or the format, and FormatError.
    """
    stream = stream_run(runs, run_id, format_name, environment)
    data = b"".join(stream.parts)
    return Export(stream.file_name, data, stream.masking_note)


@dataclass(slots=True)
class ExportStream:
    """A file to give out, part by part; `masking_note` lists the masked secrets, once the last part was read."""

    file_name: str
    parts: Iterator[bytes]
    masking_note: str = ""


def stream_run(
    runs: StoredRuns,
    run_id: int,
    format_name: str,
    environment: Mapping[str, str] = os.environ,
    watch: Callable[[int, int], None] = lambda _, __: None,
) -> ExportStream:
    """As `export_run`, in parts that are made while they are read: a run of any size takes the same memory.

    `watch` gets the numbers of written cases and of all cases.
    """
    names = [name for name, _ in run_formats()]
    if format_name not in names:
        raise NotFoundError.among("format", format_name[:VALUE_LIMIT], names)
    summary = runs.summary(run_id)
    ending, parts = _run_file(runs, summary, format_name, watch)
    stream = ExportStream(f"{file_stem(run_id, summary.config)}{ending}", iter(()))
    stream.parts = _clean(parts, environment, (runs, run_id, format_name), stream)
    return stream


def _clean(
    parts: Iterator[bytes], environment: Mapping[str, str], of: tuple[StoredRuns, int, str], into: ExportStream
) -> Iterator[bytes]:
    """The parts without secrets, in larger ones. No text of a trial goes over the end of a part."""
    secret_values = known_values(environment)
    n_masked: Counter[str] = Counter()
    clean = scrubber_of(secret_values, n_masked)
    buffer = b""
    for part in parts:
        buffer += clean(part.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if len(buffer) >= PART:
            yield buffer
            buffer = b""
    yield buffer
    if n_masked:
        runs, run_id, format_name = of
        cases = () if format_name == CRITERIA else runs.cases(run_id)
        into.masking_note = masked_words(
            n_masked, places_of(secret_values, ((each.id, (each.case, tuple(each))) for each in cases))
        )


def file_stem(run_id: int, config: RunConfig) -> str:
    """The name of a file of the run, without its ending: `run_7_support`."""
    return f"run_{run_id}_{plain_name(config.evalset_name)}"


def _run_file(
    runs: StoredRuns, run: RunSummary, format_name: str, watch: Callable[[int, int], None]
) -> tuple[str, Iterator[bytes]]:
    """The ending of the file's name, and the parts of the file."""
    if format_name == CRITERIA:
        return ".test_config.json", iter((write_criteria_file(CriteriaFile(run.config.criteria)),))
    if format_name == CSV:
        return ".csv", (text.encode("utf-8", "surrogateescape") for text in _table(runs, run, watch))
    return suffix_of(format_name), run_parts(recorded_run(runs, run.id, watch), format_name)


def adk_results(result: RunResult, app_name: str) -> bytes:
    """The results of a run of an app in ADK's form, judged as ADK judges them."""
    config = result.config
    trials = (
        replace(as_tool_judges("adk", case.case, trial, config.criteria), run_id=0, case_index=index)
        for index, case in enumerate(result)
        for trial in case
    )
    cases = tuple(case.case for case in result)
    run = RecordedRun(config.evalset_name, app_name, cases, tuple(trials), config.criteria)
    return b"".join(run_parts(run, "adk-results"))


def recorded_run(runs: StoredRuns, run_id: int, watch: Callable[[int, int], None] = lambda _, __: None) -> RecordedRun:
    """A stored run as a value of the formats, whose trials are read while they are asked for.

    Trials that were not played are not in it. Raises NotFoundError.
    """
    run = runs.summary(run_id)
    config, now = run.config, dict[int, Case]()

    def trials() -> Iterator[TrialResult]:
        for index, case_result in enumerate(_report_progress(runs.cases(run_id), run, watch)):
            now.clear()
            now[index] = case_result.case
            yield from (replace(trial, run_id=0, case_index=index) for trial in case_result)

    def cases(first: int) -> Iterator[Case]:
        if first in now:  # that of the trial which was asked for last
            yield now[first]
            first += 1
        for start in range(first, run.n_cases, CASES_AT_ONCE):
            page = runs.store.some_cases(run.id, range(start, min(start + CASES_AT_ONCE, run.n_cases)))
            yield from (page[index] for index in sorted(page))

    return RecordedRun(
        name=config.evalset_name,
        agent=config.agent.id,
        cases=ReadItems(run.n_cases, cases),
        results=ReadItems(run.counts.done, lambda first: islice(trials(), first, None)),
        criteria=config.criteria,
        model=config.model or config.agent_model,
        note=run.note,
        plan=config.recorded or RecordedPlan(run.counts.planned, run.n_least, _ending_of(run), run.reason),
    )


def _ending_of(run: RunSummary) -> RecordedStatus:
    if run.status in LIVE:
        return "unfinished"
    return "stopped" if run.status == "stopped" else "failed" if run.status == "failed" else "finished"


def media_type(file_name: str) -> str:
    """The media type of a file for a browser."""
    ending = "." + file_name.rpartition(".")[2]
    return MEDIA_TYPES.get(ending, "application/octet-stream")


def _report_progress(
    cases: Iterable[CaseResult], run: RunSummary, watch: Callable[[int, int], None]
) -> Iterator[CaseResult]:
    watch(0, run.n_cases)
    for n_done, each in enumerate(cases, 1):
        yield each
        watch(n_done, run.n_cases)


def _table(runs: StoredRuns, run: RunSummary, watch: Callable[[int, int], None]) -> Iterator[str]:
    """The head of the table, then the lines of each case."""
    columns = [*TRIAL_COLUMNS, *(criterion.metric for criterion in run.config.criteria)]
    yield _lines([[cell(name) for name in columns]])
    for case_result in _report_progress(runs.cases(run.id, is_whole=False), run, watch):  # it has no results of tools
        rows = [trial_row(case_result.case, trial, run.config) for trial in case_result]
        yield _lines([[cell(row[name]) for name in columns] for row in rows])


def _lines(rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue()
