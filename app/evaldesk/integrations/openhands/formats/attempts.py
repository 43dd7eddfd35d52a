"""The folder of a run of OpenHands' benchmarks on its SDK (V1) whose instances had several attempts.

    output.critic_attempt_N.jsonl    the rows of attempt N: those that the critic failed before
    output.jsonl                     for each instance the attempt that the critic chose, without errors
    metadata.json                    the EvalMetadata
    output.report.json               the instances that a benchmark found resolved
    cost_report.jsonl                the costs of these files
    conversations/ID.tar.gz          the events of the conversation

(benchmarks/utils/evaluation.py, iterative.py, report_costs.py)
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported, ResultFolder
from evaldesk.integrations.openhands.formats.rows import ERRORS, OpenHands
from evaldesk.integrations.openhands.formats.writing import NOTE
from evaldesk.model import RecordedPlan
from evaldesk.model.conclusion import counted
from evaldesk.model.transcript import is_score
from evaldesk.reading.json_lines import read_recorded_lines, write_lines
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES, parse_json, parse_recorded_json
from evaldesk.transcripts.recorded import RecordedRun, SummaryValue

ATTEMPT = re.compile(r"output\.critic_attempt_(\d{1,3})\.jsonl")
OUTPUT, METADATA, REPORT, COSTS = "output.jsonl", "metadata.json", "output.report.json", "cost_report.jsonl"
ARCHIVES = re.compile(r"conversations/(.+)\.tar\.gz")
_EVENT = re.compile(r"(?:^|/)events/[^/]+\.json$")
MAX_EVENTS = 20_000


class AttemptsFolder:
    """The attempts of each instance as its trials."""

    parts = "output.critic_attempt_1.jsonl with metadata.json (OpenHands)"

    @staticmethod
    def holds(paths: Sequence[str]) -> bool:
        """Whether rows are there, with those of attempts or archives of conversations."""
        has_attempts = any(map(ATTEMPT.fullmatch, paths))
        has_archives = OUTPUT in paths and any(map(ARCHIVES.fullmatch, paths))
        return has_attempts or has_archives or (OUTPUT in paths and (REPORT in paths or COSTS in paths))

    @staticmethod
    def beside(_: str, paths: Sequence[str]) -> Sequence[str]:
        """Its metadata, errors, report and archives: the other attempts are no part of the chosen one."""
        return [path for path in paths if path in (METADATA, ERRORS, REPORT) or ARCHIVES.fullmatch(path)]

    @staticmethod
    def read_folder(folder: ResultFolder, outcome: str) -> Imported:
        """A run with a trial for each attempt. Raises FormatError."""
        report, lines, n_archives, n_attempts = _report(folder), list[dict[str, Any]](), 0, Counter[str]()
        for number, row in _rows(folder):
            instance = str(row.get("instance_id"))
            n_attempts[instance] += 1
            if not row.get("history") and (events := _archived_events(folder, instance)):
                row = {**row, "history": events}  # noqa: PLW2901
                n_archives += 1
            if instance in report and not row.get("test_result"):
                row = {**row, "test_result": {"resolved": report[instance]}}  # noqa: PLW2901
            lines.append({**row, NOTE: {"trial": number - 1}} if number > 1 else row)
        data = write_lines(lines, folder.name)
        if METADATA in folder.paths:
            metadata = parse_json(folder.read(METADATA), source=f"{folder.name}/{METADATA}")
            data = data.rstrip() + b"\n" + write_lines([metadata.value], folder.name)
        imported = OpenHands.read_by(data, source=f"{folder.name}/{OUTPUT}", outcome=outcome)
        (run,) = imported.runs
        n_lacking = max((run.plan.n_planned or 0) - len(n_attempts), 0)
        plan = RecordedPlan(len(run.results) + n_lacking, 1, run.plan.status, run.plan.reason)
        words = list(imported.understood)
        if max(n_attempts.values(), default=1) > 1:
            words.append(
                "Attempts are trials. Those after the first were made only where the critic failed the one before, so "
                "a rate over all trials is not that of single attempts."
            )
        if n_archives:
            words.append(f"The conversations of {counted(n_archives, 'trial')} are those of their archives.")
        new_run = replace(run, plan=plan, summary=tuple(_summary(folder, run, report)))
        return replace(imported, runs=(new_run,), understood=tuple(words))


def _rows(folder: ResultFolder) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows with the numbers of their attempts; those of output.jsonl where no attempt is about their instance."""
    attempted_ids: set[str] = set()
    attempts = sorted((int(match[1]), match[0]) for match in filter(None, map(ATTEMPT.fullmatch, folder.paths)))
    for number, path in attempts:
        for row in _rows_of(folder, path):
            attempted_ids.add(str(row.get("instance_id")))
            yield number, row
    for path in (OUTPUT, ERRORS):
        rows = _rows_of(folder, path) if path in folder.paths else iter(())
        yield from ((1, row) for row in rows if str(row.get("instance_id")) not in attempted_ids)


def _rows_of(folder: ResultFolder, path: str) -> Iterator[dict[str, Any]]:
    for line in read_recorded_lines(folder.read(path), f"{folder.name}/{path}"):
        if isinstance(line.value, dict):
            yield line.value


def _report(folder: ResultFolder) -> dict[str, bool]:
    """Whether each instance was resolved, by the report of the benchmark."""
    if REPORT not in folder.paths:
        return {}
    value = parse_recorded_json(folder.read(REPORT), source=f"{folder.name}/{REPORT}").value
    if not isinstance(value, dict):
        return {}
    states = (("completed_ids", False), ("unresolved_ids", False), ("empty_patch_ids", False), ("resolved_ids", True))
    report: dict[str, bool] = {}
    for key, is_resolved in states:
        ids = value.get(key)
        report |= dict.fromkeys(map(str, ids if isinstance(ids, list) else ()), is_resolved)
    return report


def _archived_events(folder: ResultFolder, instance: str) -> list[Any]:
    """The events in the archive of an instance's conversation, in the order of their names; none where it is broken."""
    path = f"conversations/{instance}.tar.gz"
    if path not in folder.paths:
        return []
    events: dict[str, Any] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(folder.read(path)), mode="r:gz") as archive:
            n_bytes = 0
            for member in archive:
                if not member.isfile() or not _EVENT.search(member.name):
                    continue
                n_bytes += member.size
                if n_bytes > MAX_RECORDED_BYTES or len(events) >= MAX_EVENTS:
                    break
                file = archive.extractfile(member)
                events[member.name] = json.loads(file.read()) if file else None
    except (tarfile.TarError, OSError, EOFError, ValueError, RecursionError):
        return []
    return [events[name] for name in sorted(events) if isinstance(events[name], dict)]


def _summary(folder: ResultFolder, run: RecordedRun, report: dict[str, bool]) -> Iterator[SummaryValue]:
    """The costs and the resolved instances that the files of the tool state, beside those of the trials."""
    if COSTS in folder.paths:
        try:
            costs = json.loads(folder.read(COSTS))
        except ValueError as error:
            raise FormatError(f"{COSTS} is not JSON", source=folder.name) from error
        summary = costs.get("summary") if isinstance(costs, dict) else None
        total = summary.get("total_cost") if isinstance(summary, dict) else None
        if is_score(total):
            yield SummaryValue("total_cost", float(total), sum(result.cost or 0.0 for result in run.results))
    if report:
        passed = {run.cases[each.case_index].id for each in run.results if each.verdict == "passed"}
        yield SummaryValue("resolved", sum(report.values()), len(passed))
