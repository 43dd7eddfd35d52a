"""Runs and eval sets given out as files of any format that can hold them."""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from evaldesk.desk.evalsets.evalsets import Export
from evaldesk.desk.evalsets.masking import Masked, masked, masked_file, masked_words
from evaldesk.desk.runs.stored_runs import StoredRuns, evalset_name
from evaldesk.desk.runs.trial_rows import TRIAL_COLUMNS, cell, trial_row
from evaldesk.errors import FormatError, NotFoundError
from evaldesk.formats import EVALSET_FORMS, losses
from evaldesk.formats.criteria_file import CriteriaFile, write_criteria_file
from evaldesk.formats.files import names_for, suffix_of, title_of, write_file
from evaldesk.model import EvalSet, RunConfig
from evaldesk.model.stored import RunSummary
from evaldesk.secrets import known_values, scrubber_of
from evaldesk.settings import Settings
from evaldesk.store.evalsets.files import EvalSetFiles
from evaldesk.transcripts.recorded import RecordedRun

PART = 64 * 1024
MOST_PLACES = 100
"""Cases of a masked value that are counted beside those that are named."""
CSV = "csv"
CSV_TITLE = "CSV, one line for each trial"
CRITERIA = "criteria"
CRITERIA_TITLE = "Criteria, as a test_config.json"
MEDIA_TYPES = {".json": "application/json", ".jsonl": "application/x-ndjson", ".csv": "text/csv; charset=utf-8"}


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
    files = EvalSetFiles(settings.roots, settings.evalset_folder, settings.state_folder / "trash")
    found = files.list()
    file = next((each for each in found if name in (each.name, each.id)), None)
    if file is None:
        raise NotFoundError.among("eval set", name, [each.name for each in found])
    evalset = files.read(file.id)[0]
    return masked_file(evalset, format_name, settings.environment)


def export_run(runs: StoredRuns, run_id: int, format_name: str, environment: Mapping[str, str] = os.environ) -> Export:
    """The finished trials of a run, or its criteria, as a file without the secrets of the environment.

    Raises NotFoundError for the run or the format, and FormatError.
    """
    names = [name for name, _ in run_formats()]
    if format_name not in names:
        raise NotFoundError.among("format", format_name[:100], names)
    ending, data = _run_file(runs, run_id, format_name)
    played = ((each.case.id, (each.case, tuple(each))) for each in runs.cases(run_id))
    found = masked(data, environment, () if format_name == CRITERIA else played)
    return Export(f"{file_stem(run_id, runs.summary(run_id).config)}{ending}", found.data, found.words)


@dataclass(slots=True)
class ExportStream:
    """A file to give out, part by part; `masked` lists the secrets taken out of it, once the last part was read."""

    file_name: str
    parts: Iterator[bytes]
    masked: str = ""


def stream_run(
    runs: StoredRuns,
    run_id: int,
    format_name: str,
    environment: Mapping[str, str] = os.environ,
    watch: Callable[[int, int], None] = lambda _, __: None,
) -> ExportStream:
    """As `export_run`; the lines of CSV are made while they are read, so that a run of any size takes the same memory.

    `watch` is told how many of how many cases are written.
    """
    if format_name != CSV:
        whole = export_run(runs, run_id, format_name, environment)
        return ExportStream(whole.file_name, iter((whole.data,)), whole.masked)
    summary = runs.summary(run_id)
    found = ExportStream(f"{file_stem(run_id, summary.config)}.csv", iter(()))
    found.parts = _clean_lines(runs, summary, environment, watch, found)
    return found


def _clean_lines(
    runs: StoredRuns,
    run: RunSummary,
    environment: Mapping[str, str],
    watch: Callable[[int, int], None],
    into: ExportStream,
) -> Iterator[bytes]:
    """The table without secrets. No value goes over the end of its line, so each case is searched by itself."""
    counted: Counter[str] = Counter()
    clean = scrubber_of(known_values(environment), counted)
    places: dict[str, list[str]] = {}
    part = b""
    for n_done, (case_id, text) in enumerate(_table(runs, run)):
        before = counted.copy()
        part += clean(text).encode("utf-8", "surrogateescape")
        if len(part) >= PART:
            yield part
            part = b""
        for name in counted - before:
            if len(named := places.setdefault(name, [])) <= MOST_PLACES:
                named.append(case_id)
        watch(n_done, run.n_cases)
    yield part
    if counted:
        into.masked = masked_words(counted, places)


def file_stem(run_id: int, config: RunConfig) -> str:
    """The name of a file of the run, without its ending: `run_7_support`."""
    return f"run_{run_id}_{_plain(evalset_name(config))}"


def _run_file(runs: StoredRuns, run_id: int, format_name: str) -> tuple[str, bytes]:
    """The ending of the file's name, and the file."""
    if format_name == CRITERIA:
        return ".test_config.json", write_criteria_file(CriteriaFile(runs.summary(run_id).config.criteria))
    if format_name == CSV:
        lines = [text for _, text in _table(runs, runs.summary(run_id))]
        return ".csv", "".join(lines).encode()
    return suffix_of(format_name), write_file(recorded_run(runs, run_id), format_name)


def recorded_run(runs: StoredRuns, run_id: int) -> RecordedRun:
    """A stored run as a value of the formats; trials that were not played are not in it. Raises NotFoundError."""
    summary = runs.summary(run_id)
    config = summary.config
    cases, results = [], []
    for index, played in enumerate(runs.cases(run_id)):
        cases.append(played.case)
        results += [replace(trial, run_id=0, case_index=index) for trial in played]
    return RecordedRun(
        name=evalset_name(config),
        agent=config.agent.id,
        cases=tuple(cases),
        results=tuple(results),
        criteria=config.criteria,
        model=config.model or config.agent_model,
        note=summary.note,
    )


def media_type(file_name: str) -> str:
    """The media type of a file for a browser."""
    ending = "." + file_name.rpartition(".")[2]
    return MEDIA_TYPES.get(ending, "application/octet-stream")


def _table(runs: StoredRuns, run: RunSummary) -> Iterator[tuple[str, str]]:
    """The head of the table, then the id of each case with the lines of its trials."""
    columns = [*TRIAL_COLUMNS, *(criterion.metric for criterion in run.config.criteria)]
    yield "", _lines([[cell(name) for name in columns]])
    for played in runs.cases(run.id):
        rows = [trial_row(played.case, trial, run.config) for trial in played]
        yield played.case.id, _lines([[cell(row[name]) for name in columns] for row in rows])


def _lines(rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue()


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:100] or "evalset"
