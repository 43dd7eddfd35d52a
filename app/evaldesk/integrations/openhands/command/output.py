"""The output folder of an OpenHands benchmark: `metadata.json`, and `output.jsonl` that grows with every instance."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evaldesk.agents import agent_ref
from evaldesk.agents.containers import container_client
from evaldesk.agents.discovery import commands_in
from evaldesk.desk.runs.file_places import git_head
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.durable_files import append_file, make_folder, replace_file
from evaldesk.engine.launch import placed
from evaldesk.errors import UsageError
from evaldesk.integrations.openhands.benchmark import KIND, encode_options
from evaldesk.integrations.openhands.formats.writing import row_of
from evaldesk.integrations.openhands.recorded_rows import FORM, test_result
from evaldesk.model import AgentRef, Case, EvalSet, TrialResult, Turn
from evaldesk.model.run import checked_container
from evaldesk.model.stored import RunSummary
from evaldesk.model.transcript import artefact_text, reported_values
from evaldesk.paths import did_you_mean
from evaldesk.reading.json_lines import read_lines
from evaldesk.secrets import known_values, mask_values, scrubber_of
from evaldesk.settings import Settings
from evaldesk.transcripts.recorded import RecordedRun
from evaldesk.wire import plain_json

AGENT_CLASS = "CodeActAgent"
MASK = "**********"
QUESTIONS = ("instruction", "question", "problem_statement", "prompt")
OUTPUT, METADATA, ERRORED = "output.jsonl", "metadata.json", "output_errored.jsonl"


class InstanceOutput:
    """Rows of instances; those with an error are run again, and a last line that was torn is taken off.

    `finished_ids` are the instances that need not be run again. With n above 1 each trial has a folder of its own,
    whose name ends in `-run_1` and so on.
    """

    def __init__(self, folder: Path, metadata: dict[str, Any], evalset: EvalSet, *, n: int) -> None:
        self._files = self._places(folder, n)
        self._metadata = metadata
        self._cases = {case.id: case for case in evalset.cases}
        self._has_begun = False
        self._written_keys: set[tuple[int, int]] = set()
        self._rows = [_kept_rows(each) for each in self._files]
        finished_of_folders = [{_id(row) for row in rows if not row.get("error")} for rows in self._rows]
        self.finished_ids = set.intersection(*finished_of_folders)
        if (
            self._is_even
            and any(finished_of_folders)
            and any(each != self.finished_ids for each in finished_of_folders)
        ):
            raise UsageError(f"{folder}-run_*: these outputs are of different instances; go on with each by --n 1")

    @property
    def place(self) -> str:
        """The files of the rows, in words; empty where there are none."""
        files = [file for file in self._files if file.is_file()]
        more = f", and {len(files) - 1:,} more for the other trials" if len(files) > 1 else ""
        return f"{files[0]}{more}" if files else ""

    _is_even = True
    """Whether the files of all trials must have the same instances."""

    @staticmethod
    def _places(folder: Path, n: int) -> list[Path]:
        """The file of the rows of each trial."""
        folders = [folder] if n == 1 else [folder.with_name(f"{folder.name}-run_{i + 1}") for i in range(n)]
        return [each / OUTPUT for each in folders]

    def _write_facts(self, folder: Path) -> None:
        _write_metadata(folder / METADATA, {**self._metadata, "eval_output_dir": str(folder)})

    def _begin(self, todo: Container[str]) -> None:
        """Make the folders, write the metadata, and move the rows that are run again out of the way."""
        for file, rows in zip(self._files, self._rows, strict=True):
            folder = file.parent
            make_folder(folder)
            self._write_facts(folder)
            again = [row for row in rows if _id(row) in todo]
            if again:
                append_file(folder / ERRORED, "".join(map(_line, again)).encode())
            other_rows = [row for row in rows if _id(row) not in todo]
            replace_file(file, "".join(map(_line, other_rows)).encode())

    def update(self, runs: StoredRuns, run: RunSummary) -> None:
        """Append the rows of the trials that ended since the last call; the first one begins the files."""
        if not self._has_begun:
            self._has_begun = True
            self._begin(set(runs.case_ids(run.id)))
        if run.n_done == len(self._written_keys):
            return
        for row in runs.rows(run.id):
            for index, mark in enumerate(row.verdicts):
                key = (row.case_index, index)
                if mark != "." and key not in self._written_keys:
                    self._written_keys.add(key)
                    self._append(index, row.case_id, runs.case(run.id, row, index)[0])

    def _append(self, index: int, case_id: str, result: TrialResult) -> None:
        file = self._files[index]
        metadata = {**self._metadata, "eval_output_dir": str(file.parent)}
        append_file(file, instance_row(self._cases[case_id], result, metadata).encode())

    def finish(self) -> None:
        """Do nothing: every row is in its file."""


class AttemptOutput(InstanceOutput):
    """The files of a benchmark on OpenHands' SDK: `output.critic_attempt_N.jsonl` of each attempt, and `output.jsonl`.

    The latter has for each instance the row that the critic chose: of a success before another one, of these the last.
    Rows with an error are in the files of attempts only. `metadata.json` is written by the benchmark.
    (OpenHands/benchmarks benchmarks/utils/iterative.py: aggregate_results)
    """

    _is_even = False

    def __init__(self, folder: Path, metadata: dict[str, Any], evalset: EvalSet, *, n: int) -> None:
        super().__init__(folder, metadata, evalset, n=n)
        self._chosen_file = folder / OUTPUT
        self._chosen: dict[str, tuple[tuple[bool, int], str]] = {}

    @property
    def place(self) -> str:
        """The file of the chosen rows; empty where there is none."""
        return str(self._chosen_file) if self._chosen_file.is_file() else ""

    @staticmethod
    def _places(folder: Path, n: int) -> list[Path]:
        return [folder / f"output.critic_attempt_{i + 1}.jsonl" for i in range(n)]

    def _write_facts(self, folder: Path) -> None:
        """Write nothing: the benchmark has written its metadata."""

    def _append(self, index: int, case_id: str, result: TrialResult) -> None:
        line = attempt_row(self._cases[case_id], result)
        append_file(self._files[index], line.encode())
        if result.error is None and json.loads(line).get("error") is None:
            critic = reported_values(result.transcript).get("critic")
            rank = (not isinstance(critic, dict) or bool(critic.get("success")), index)
            if case_id not in self._chosen or rank > self._chosen[case_id][0]:
                self._chosen[case_id] = rank, line

    def finish(self) -> None:
        """Write `output.jsonl` with the chosen rows; those of instances that were not played stay."""
        if not self._has_begun:
            return
        lines = {_id(row): _line(row) for row in _kept_rows(self._chosen_file)}
        lines |= {case_id: line for case_id, (_, line) in self._chosen.items()}
        replace_file(self._chosen_file, "".join(lines.values()).encode())


def instance_row(case: Case, result: TrialResult, metadata: dict[str, Any]) -> str:
    """The line of a trial: the benchmark's result, unchanged, with the missing keys added at its end.

    The result of `teardown` is added to its test result. Without a row of the benchmark, one is made of the trial.
    """
    run = RecordedRun(str(metadata["dataset"]), AGENT_CLASS, (case,), (result,))
    new_row = {**row_of(run, replace(result, case_index=0)), "metadata": metadata, "instance": dict(case.extra)}
    reported_result = reported_values(result.transcript).get("test_result")
    new_row["test_result"] = plain_json(reported_result) if isinstance(reported_result, dict) else {}
    text = artefact_text(result.transcript, FORM)
    if text is None:
        return _line(new_row)
    row = json.loads(text)
    corrections = {"test_result": new_row["test_result"]} if new_row["test_result"] != test_result(row) else {}
    additions = {key: value for key, value in new_row.items() if key not in row and key not in ("history", "metrics")}
    return _line({**row, **corrections, **additions}) if corrections or additions else f"{text}\n"


def attempt_row(case: Case, result: TrialResult) -> str:
    """The line of an attempt: the benchmark's EvalOutput, unchanged, or one with the error of the trial."""
    text = artefact_text(result.transcript, FORM)
    if text is not None:
        return f"{text}\n"
    error = result.error.message if result.error else result.stop_reason
    facts = {"instance_id": case.id, "attempt": result.trial_index + 1, "test_result": {}, "instruction": None}
    return _line({**facts, "history": [], "metrics": None, "error": error, "instance": dict(case.extra)})


def metadata_of(dataset: str, max_iterations: int, llm_config: Mapping[str, Any]) -> dict[str, Any]:
    """The EvalMetadata of OpenHands."""
    return {
        "agent_class": AGENT_CLASS,
        "llm_config": llm_config,
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


def output_folder(root: Path, metadata: Mapping[str, Any], note: str = "") -> Path:
    """`<root>/<dataset>/<agent>/<model>_maxiter_<N>[_N_<note>]`."""
    model = str(metadata["llm_config"]["model"]).rpartition("/")[2].replace(":", "_").replace("@", "-")
    note = f"_N_{note}" if note else ""
    name = f"{model}_maxiter_{metadata['max_iterations']}{note}".replace(os.sep, "_")
    return root / str(metadata["dataset"]) / AGENT_CLASS / name


def masked_profile(config_file: Path, name: str) -> dict[str, Any]:
    """The LLM profile of that name without its key and other secrets. Raises UsageError for an unknown one."""
    from evaldesk.integrations.openhands.llm_profiles import OPTIONS, read_profile

    profile = read_profile(config_file, name, os.environ)
    values: dict[str, Any] = {"model": profile.model}
    values |= {option: getattr(profile, option) for option in OPTIONS}
    values |= profile.extra
    scrub = scrubber_of(known_values({name: value for name, value in values.items() if isinstance(value, str)}))
    return {**mask_values(values, scrub=scrub, without="key"), "api_key": MASK if profile.api_key else None}


def placed_benchmark(
    spec: str,
    settings: Settings,
    image: str | None,
    environment: str | None,
    command_image: str | None,
    *,
    is_script: bool,
    python: str | None = None,
) -> AgentRef:
    """The function `spec` of a benchmark, in the image or environment that is named, or with one for its commands.

    The image of the workspace is that of the function, or of the commands of a script. Raises UsageError.
    """
    ref = replace(agent_ref(spec), kind=KIND)
    if python:
        return placed(ref, settings, python)
    if image or environment:
        if command_image:
            raise UsageError("an image plays the whole benchmark, its commands, too; leave --command-image out")
        placed_ref = placed(ref, settings, None, image, environment)
        if placed_ref.python:
            raise UsageError("--environment: the stand-ins of a benchmark run on Evaldesk's own interpreter")
        return placed_ref
    own = settings.container.image
    image_name = command_image or (own if is_script else "")
    if image_name:
        placed_ref = replace(ref, commands=checked_container(commands_in(image_name, settings.container)))
        container_client(placed_ref.commands or settings.container, os.environ)
        return placed_ref
    return placed(ref, settings, None, own) if own else ref


def benchmark_agent(
    ref: AgentRef,
    folder: Path,
    metadata: Mapping[str, Any],
    *,
    llm: str,
    config_file: Path,
    note: str,
    script_metadata: Mapping[str, Any],
    script: Mapping[str, Any],
) -> AgentRef:
    """The function of a benchmark as an agent that writes under `folder`; `script_metadata` is its script's metadata.

    `script` is that of an `Evaluation`, empty without one.

    Raises UsageError.
    """
    options = {
        "llm": llm,
        "config_file": str(config_file.resolve()),
        "max_iterations": metadata["max_iterations"],
        "dataset": metadata["dataset"],
        "note": note,
        "output_folder": str(folder),
        **({"metadata": dict(script_metadata)} if script_metadata else {}),
        **({"evaluation": dict(script)} if script else {}),
    }
    return replace(ref, declared=encode_options(**options))


def read_instances(path: Path) -> EvalSet:
    """Rows with `instance_id` as cases; every column is kept. Raises UsageError, FormatError with the line."""
    if not path.is_file():
        hint = did_you_mean(path, "name the instances, one JSON object a line")
        raise UsageError(f"{path} is not a file; {hint}")
    cases: dict[str, Case] = {}
    for line in read_lines(path.read_bytes(), str(path)):
        row = line.value
        if not isinstance(row, dict) or not isinstance(row.get("instance_id"), str | int):
            raise line.error("wanted an object with instance_id")
        case = _case(row)
        if case.id in cases:
            raise line.error(f"the instance_id {case.id!r} is there twice")
        cases[case.id] = case
    if not cases:
        raise UsageError(f"{path} contains no instance")
    return EvalSet(path.stem, cases=tuple(cases.values()))


def _case(row: dict[str, Any]) -> Case:
    query = next((row[name] for name in QUESTIONS if isinstance(row.get(name), str)), str(row["instance_id"]))
    return Case(str(row["instance_id"]), (Turn(query),), extra=row)


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
    """An earlier start keeps its contents; later ones are added to its `evaldesk.sessions`."""
    now = {"start_time": metadata["start_time"], "git_commit": metadata["git_commit"]}
    try:
        first = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        first = metadata
    sessions = [*first.get("evaldesk", {}).get("sessions", []), now]
    content = {**first, "evaldesk": {"sessions": sessions}}
    replace_file(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def _id(row: dict[str, Any]) -> str:
    return str(row["instance_id"])


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
