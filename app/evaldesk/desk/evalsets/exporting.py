"""Runs and eval sets given out as files of any format that can hold them."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from evaldesk.desk.evalsets.evalsets import Export
from evaldesk.desk.evalsets.masking import Masked, masked, masked_file
from evaldesk.desk.runs.stored_runs import StoredRuns, evalset_name
from evaldesk.desk.runs.trial_rows import TRIAL_COLUMNS, cell, trial_row
from evaldesk.errors import FormatError, NotFoundError
from evaldesk.formats import EVALSET_FORMS, losses
from evaldesk.formats.criteria_file import CriteriaFile, write_criteria_file
from evaldesk.formats.files import names_for, suffix_of, title_of, write_file
from evaldesk.model import EvalSet, RunConfig
from evaldesk.settings import Settings
from evaldesk.store.evalsets.files import EvalSetFiles
from evaldesk.transcripts.recorded import RecordedRun

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


def file_stem(run_id: int, config: RunConfig) -> str:
    """The name of a file of the run, without its ending: `run_7_support`."""
    return f"run_{run_id}_{_plain(evalset_name(config))}"


def _run_file(runs: StoredRuns, run_id: int, format_name: str) -> tuple[str, bytes]:
    """The ending of the file's name, and the file."""
    if format_name == CRITERIA:
        return ".test_config.json", write_criteria_file(CriteriaFile(runs.summary(run_id).config.criteria))
    if format_name == CSV:
        return ".csv", _table(runs, run_id)
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


def _table(runs: StoredRuns, run_id: int) -> bytes:
    config = runs.summary(run_id).config
    columns = [*TRIAL_COLUMNS, *(criterion.metric for criterion in config.criteria)]
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([cell(name) for name in columns])
    for played in runs.cases(run_id):
        for trial in played:
            row = trial_row(played.case, trial, config)
            writer.writerow([cell(row[name]) for name in columns])
    return out.getvalue().encode()


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:100] or "evalset"
