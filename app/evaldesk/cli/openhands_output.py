"""The output folder of an OpenHands benchmark: `metadata.json`, and `output.jsonl` that grows with every instance."""

from __future__ import annotations

import json
import os
from collections.abc import Container
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evaldesk.cli.eval_request import EvalRequest
from evaldesk.desk.run_file_places import git_head
from evaldesk.desk.run_results import case_rows
from evaldesk.errors import UsageError
from evaldesk.formats.atomic_file import write_atomically
from evaldesk.formats.exchange import RecordedRun
from evaldesk.formats.openhands_writing import row_of
from evaldesk.model import Case, EvalSet, TrialResult
from evaldesk.model.reports import reported_values
from evaldesk.store import RunSummary, Store
from evaldesk.wire import plain

DEFAULT_ROOT = "evaluation/evaluation_outputs/outputs"
AGENT_CLASS = "CodeActAgent"
MASK = "**********"
OUTPUT, METADATA, ERRORED = "output.jsonl", "metadata.json", "output_errored.jsonl"


class InstanceOutput:
    """Rows of instances; those with an error are run again, and a last line that was torn is taken off.

    `finished` are the instances that need not be run again. With n above 1 each trial has a folder of its own, whose
    name ends in `-run_1` and so on.
    """

    def __init__(self, folder: Path, metadata: dict[str, Any], evalset: EvalSet, *, n: int) -> None:
        self._folders = [folder] if n == 1 else [folder.with_name(f"{folder.name}-run_{i + 1}") for i in range(n)]
        self._metadata = metadata
        self._cases = {case.id: case for case in evalset.cases}
        self._has_begun = False
        self._written: set[tuple[int, int]] = set()
        self._rows = [_kept_rows(each / OUTPUT) for each in self._folders]
        finished = [{_id(row) for row in rows if not row.get("error")} for rows in self._rows]
        self.finished = set.intersection(*finished)
        if n > 1 and any(finished) and any(each != self.finished for each in finished):
            raise UsageError(f"{folder}-run_*: these outputs are of different instances; go on with each by --n 1")

    @property
    def place(self) -> str:
        """The files of the rows, in words; empty where there are none."""
        files = [file for folder in self._folders if (file := folder / OUTPUT).is_file()]
        more = f", and {len(files) - 1:,} more for the other trials" if len(files) > 1 else ""
        return f"{files[0]}{more}" if files else ""

    def _begin(self, todo: Container[str]) -> None:
        """Make the folders, write the metadata, and move the rows that are run again out of the way."""
        for folder, rows in zip(self._folders, self._rows, strict=True):
            folder.mkdir(parents=True, exist_ok=True)
            _write_metadata(folder / METADATA, {**self._metadata, "eval_output_dir": str(folder)})
            again = [row for row in rows if _id(row) in todo]
            if again:
                with (folder / ERRORED).open("a", encoding="utf-8") as file:
                    file.writelines(_line(row) for row in again)
            kept = [row for row in rows if _id(row) not in todo]
            write_atomically(folder / OUTPUT, "".join(map(_line, kept)).encode())

    def update(self, store: Store, run: RunSummary) -> None:
        """Append the rows of the trials that ended since the last call; the first one begins the files."""
        if not self._has_begun:
            self._has_begun = True
            self._begin(set(store.runs.case_ids(run.id).values()))
        if run.n_done == len(self._written):
            return
        for row in case_rows(store, run.id):
            for index, mark in enumerate(row.strip):
                key = (row.case_index, index)
                if mark != "." and key not in self._written:
                    self._written.add(key)
                    self._append(index, row.case_id, store.runs.trial(run.id, *key))

    def _append(self, index: int, case_id: str, result: TrialResult) -> None:
        folder = self._folders[index]
        metadata = {**self._metadata, "eval_output_dir": str(folder)}
        with (folder / OUTPUT).open("a", encoding="utf-8") as file:
            file.write(_line(instance_row(self._cases[case_id], result, metadata)))
            file.flush()
            os.fsync(file.fileno())


def instance_row(case: Case, result: TrialResult, metadata: dict[str, Any]) -> dict[str, Any]:
    """The EvalOutput of a trial, with the test result as the benchmark reported it."""
    run = RecordedRun(str(metadata["dataset"]), AGENT_CLASS, (case,), (result,))
    place = {**row_of(run, replace(result, case_index=0)), "metadata": metadata, "instance": dict(case.extra)}
    reported = reported_values(result.transcript).get("test_result")
    place["test_result"] = plain(reported) if isinstance(reported, dict) else {}
    return place


def metadata_of(request: EvalRequest, dataset: str, max_iterations: int) -> dict[str, Any]:
    """What OpenHands calls EvalMetadata; the key of the model is masked. Raises UsageError for an unknown profile."""
    return {
        "agent_class": AGENT_CLASS,
        "llm_config": _llm_config(request),
        "agent_config": None,
        "max_iterations": max_iterations,
        "eval_output_dir": "",
        "start_time": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        "git_commit": git_head(Path.cwd()),
        "dataset": dataset,
        "data_split": None,
        "details": {},
        "condenser_config": None,
        "instruction_template_name": os.environ.get("INSTRUCTION_TEMPLATE_NAME"),
    }


def output_folder(request: EvalRequest, metadata: dict[str, Any]) -> Path:
    """`<root>/<dataset>/<agent>/<model>_maxiter_<N>[_N_<note>]`."""
    model = str(metadata["llm_config"]["model"]).rpartition("/")[2].replace(":", "_").replace("@", "-")
    note = f"_N_{request.eval_note}" if request.eval_note else ""
    name = f"{model}_maxiter_{metadata['max_iterations']}{note}".replace(os.sep, "_")
    return Path(request.eval_output_dir or DEFAULT_ROOT) / str(metadata["dataset"]) / AGENT_CLASS / name


def _llm_config(request: EvalRequest) -> dict[str, Any]:
    if not request.llm_config:
        return {"model": request.model or "none", "base_url": request.base_url, "api_key": None}
    from evaldesk.agents.llm_profiles import read_profile

    profile = read_profile(Path(request.config_file), request.llm_config, os.environ)
    shown = {
        "model": profile.model,
        "api_key": MASK if profile.api_key else None,
        "base_url": profile.base_url,
        "temperature": profile.temperature,
        "top_p": profile.top_p,
        "max_output_tokens": profile.max_output_tokens,
        "num_retries": profile.num_retries,
        "timeout": profile.timeout,
        "custom_llm_provider": profile.custom_llm_provider,
        "seed": profile.seed,
    }
    return shown | {name: value for name, value in profile.extra.items() if "key" not in name.lower()}


def _kept_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of an earlier start; the last row of an instance counts. Raises UsageError for a broken line inside."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rows[_id(row)] = row
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):  # without a line end: the process died while it wrote
                continue
            raise UsageError(f"{path}, line {number}: no row of an instance ({error}); repair or remove it") from error
    return list(rows.values())


def _write_metadata(path: Path, metadata: dict[str, Any]) -> None:
    """An earlier start keeps what it said; later ones are added to its `evaldesk.sessions`."""
    now = {"start_time": metadata["start_time"], "git_commit": metadata["git_commit"]}
    try:
        first = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        first = metadata
    sessions = [*first.get("evaldesk", {}).get("sessions", []), now]
    whole = {**first, "evaldesk": {"sessions": sessions}}
    write_atomically(path, (json.dumps(whole, indent=2, ensure_ascii=False) + "\n").encode())


def _id(row: dict[str, Any]) -> str:
    return str(row["instance_id"])


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
