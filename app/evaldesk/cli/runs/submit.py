"""`evaldesk run submit` and `run play`: the run of a file in Osmosis' TOML, in the background or in this process."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from evaldesk.cli.eval.adk import eval_adk
from evaldesk.cli.eval.dataset import REWARD, read_dataset, rows_between
from evaldesk.cli.eval.options import (
    Sectioned,
    asked_gates,
    asked_options,
    gate_options,
    gate_variant_option,
    how_options,
    place_options,
)
from evaldesk.cli.eval.playing import plan_jobs, warn_of_false_alarms
from evaldesk.cli.eval.report import report_error
from evaldesk.cli.eval.request import EvalRequest, Job
from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import json_option, n_workers, workspace_option
from evaldesk.desk.experiments.file import ExperimentFile, is_experiment_file, read_experiment_file
from evaldesk.desk.imports.files import bytes_of
from evaldesk.desk.runs.file import AT_ONCE, RunFile, read_run_file
from evaldesk.desk.runs.file_places import at_revision, dataset_path, placed_agent, read_secrets, secrets_of
from evaldesk.desk.runs.handover import hand_over
from evaldesk.desk.runs.plan import RunOptions, RunPlan
from evaldesk.desk.runs.provenance import run_digest
from evaldesk.desk.runs.rows import chosen_rows
from evaldesk.errors import AgentError, UsageError
from evaldesk.gate_options import AskedGates
from evaldesk.model import EvalSet, Gates
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import MAX_RUN_NAME, OF_NAMED_RUN, Asked
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import choose, confirm, show, show_json, style

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk
    from evaldesk.settings import Settings

SAMPLE_SEED = 42
SHARE = 10


def _file_options(command: Any) -> Any:
    """The options of a command that reads a run file."""
    for option in reversed(
        (
            click.argument("file", type=click.Path(path_type=Path)),
            click.option("--yes", "-y", is_flag=True, help="Do not ask; an omitted limit means all rows."),
            click.option("--sample", is_flag=True, help="Where the limit is omitted, run a seeded 10 % of the rows."),
            click.option("--limit", type=click.IntRange(1), metavar="N", help="Most rows to run."),
            click.option("--offset", type=click.IntRange(0), metavar="N", default=0, help="Rows to leave out first."),
            click.option("--dataset-file", metavar="FILE", help="The data set, in place of that of the file."),
            gate_variant_option,
            click.option(
                "--secrets-file", metavar="FILE|-", help="NAME=value lines; - reads them from standard input."
            ),
        )
    ):
        command = option(command)
    return command


@click.command(cls=Sectioned)
@_file_options
@json_option
@workspace_option
@how_options
@place_options
@gate_options
def submit(is_json: bool, workspace: str | None, **values: Any) -> None:
    """Submit the run of FILE, in Osmosis' TOML, or its experiment; all settings are checked before the start.

    Without --name it is a new run, with the name of the file and the time. An option of a run that is given here wins
    over the file, which has them under [evaldesk]. `evaldesk run info RUN` shows the answers of the gates; without one
    every trial must pass.

    \b
    evaldesk run submit configs/eval/my-run.toml
    evaldesk run submit configs/eval/my-run.toml --yes --secrets-file .env
    evaldesk run submit configs/eval/my-run.toml --yes --baseline 12 --regression-rule confirm
    """
    if is_experiment_file(values["file"]):
        sys.exit(_play_experiment(values, workspace, is_submitted=True, is_json=is_json))
    _check_one_run(values)
    is_asked = not (values["yes"] or is_json)
    time = f"-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    name = values["file"].stem[: MAX_RUN_NAME - len(time)] + time
    file_run = _read(read_run_file(values["file"]), values, workspace, name, is_asked, is_new=True)
    if not is_json:
        file_run.show_plan()
    if file_run.may_ask:
        confirm("Submit this evaluation run?", abort=True)
    elif is_asked:
        raise UsageError("no terminal for the question; add --yes to submit the run")
    os.environ.update(file_run.own_environment)
    try:
        run, digest = asyncio.run(_submit(_settings(workspace, file_run.run_file), file_run.job, file_run.baseline))
    except AgentError as error:
        report_error(file_run.job.agent.id, error)
        sys.exit(3)
    who = hand_over(open_home(workspace), run.id, digest, environment=file_run.own_environment or None)
    _show_submitted(run, file_run.name, who, is_json=is_json)


@click.command(cls=Sectioned)
@_file_options
@workspace_option
@how_options
@place_options
@gate_options
def play(workspace: str | None, **values: Any) -> None:
    """Play the run of FILE, in Osmosis' TOML, to its end; `evaldesk eval run FILE` is the same.

    Without --name it has that of the file. A run of the same name is continued: its finished trials count. If its
    inputs changed since (agent, rows, criteria, options), nothing is played, and they are named.

    \b
    evaldesk run play configs/eval/my-run.toml --rows 3,7,10-20
    evaldesk run play configs/eval/my-run.toml --fresh
    """
    if is_experiment_file(values["file"]):
        sys.exit(_play_experiment(values, workspace))
    _check_one_run(values)
    name = values["file"].stem[:MAX_RUN_NAME]
    file_run = _read(read_run_file(values["file"]), values, workspace, name, is_asked=not values["yes"])
    file_run.show_plan()
    os.environ.update(file_run.own_environment)
    try:
        code = asyncio.run(_play(_settings(workspace, file_run.run_file), file_run))
    except AgentError as error:
        report_error(file_run.job.agent.id, error)
        code = 3
    sys.exit(code)


def _check_one_run(values: Mapping[str, Any]) -> None:
    """Raise UsageError for an option of an experiment beside a file without variants."""
    if values["gate_variants"]:
        raise UsageError(f"--gate-variant is of an experiment, and {values['file']} has no variants; leave it out")


def _play_experiment(
    values: dict[str, Any],
    workspace: str | None,
    *,
    is_submitted: bool = False,
    is_json: bool = False,
) -> int:
    """Play the variants of an experiment file to their end, or submit them; options of the command win over the file.

    Raises UsageError for an option that only the run of a data set has.
    """
    file = read_experiment_file(values["file"])
    if file.run_file:
        return _play_variants(file, file.run_file, values, workspace, is_submitted=is_submitted, is_json=is_json)
    for option in ("sample", "limit", "offset", "dataset_file", "secrets_file"):
        if values[option]:
            flag = f"--{option.replace('_', '-')}"
            raise UsageError(f"{flag} is of a run file, and {values['file']} is an experiment; leave it out")
    if is_submitted:
        _ask_to_submit(is_asked=not (values["yes"] or is_json))
    options = {**file.run_options, **asked_options(values)}
    name = options.pop("name", None)
    request = EvalRequest(
        words=(file.agent, file.evalset),
        run_options=cast("Asked", options),
        config_file_path=file.criteria,
        workspace=workspace,
        vary=file.vary,
        listed=file.variants,
        experiment=str(name) if name else file.name,
        baseline_variant=file.baseline,
        allow_equal=file.allow_equal,
        drop_worse=file.drop_worse,
        is_submitted=is_submitted,
        is_json=is_json,
        asked_gates=asked_gates(values),
        gate_variants=values["gate_variants"],
        python=values["python"],
        image=values["image"],
    )
    return eval_adk(request)


def _play_variants(
    file: ExperimentFile,
    run_file: RunFile,
    values: dict[str, Any],
    workspace: str | None,
    *,
    is_submitted: bool,
    is_json: bool,
) -> int:
    """Play the variants of a run file of Osmosis, or submit them, with its rows, its variables and its secrets.

    Raises UsageError for an option that only a single run has.
    """
    from evaldesk.cli.eval.experiment import play_experiment  # most commands play one run

    is_asked = not (values["yes"] or is_json)
    file_run = _read(run_file, values, workspace, file.name or run_file.path.stem[:MAX_RUN_NAME], is_asked)
    named_option = next((each for each in OF_NAMED_RUN[1:] if file_run.run_file.run_options.get(each)), None)
    if named_option:
        raise UsageError(f"--{named_option.replace('_', '-')} is of one run, and {run_file.path} has variants")
    if not is_json:
        file_run.show_plan()
    if is_submitted:
        _ask_to_submit(is_asked=is_asked)
    os.environ.update(file_run.own_environment)
    run_options = {key: value for key, value in file_run.run_file.run_options.items() if key not in OF_NAMED_RUN}
    request = EvalRequest(
        words=(file_run.run_file.rollout, file_run.run_file.dataset),
        run_options=cast("Asked", run_options),
        workspace=workspace,
        more_models=(file_run.run_file.model_path,),
        vary=file.vary,
        listed=file.variants,
        experiment=file_run.name,
        baseline_variant=file.baseline,
        allow_equal=file.allow_equal,
        drop_worse=file.drop_worse,
        is_submitted=is_submitted,
        is_json=is_json,
        asked_gates=file_run.asked_gates,
        gate_variants=values["gate_variants"],
        python=values["python"],
        image=values["image"],
        own_environment=file_run.own_environment,
    )
    job = replace(file_run.job, options=file_run.job.options.but(name=None, fresh=None))
    try:
        return play_experiment(request, [job])
    except AgentError as error:
        report_error(job.agent.id, error)
        return 3


def _ask_to_submit(*, is_asked: bool) -> None:
    """Ask whether to submit an experiment. Raises Abort for a no, and UsageError without a terminal."""
    if not is_asked:
        return
    if not sys.stdin.isatty():
        raise UsageError("no terminal for the question; add --yes to submit the experiment")
    confirm("Submit this experiment?", abort=True)


@dataclass(frozen=True, slots=True)
class _FileRun:
    """The run that a file and the options beside it ask for."""

    run_file: RunFile
    job: Job
    name: str
    words: str
    commit: str
    baseline: str | None
    may_ask: bool
    own_environment: dict[str, str]
    asked_gates: AskedGates

    def show_plan(self) -> None:
        """Print the settings."""
        _show_plan(self.run_file, self.name, self.job.path, self.words, self.commit)


def _read(
    run_file: RunFile,
    values: dict[str, Any],
    workspace: str | None,
    default_name: str,
    is_asked: bool,
    *,
    is_new: bool = False,
) -> _FileRun:
    """Check the options beside a file, and read its data set. Raises UsageError, FormatError.

    Without a name the run has `default_name`; where it `is_new`, it continues no other of that name.
    """
    names = ("file", "yes", "sample", "limit", "offset", "dataset_file", "secrets_file")
    of_file = {each: values.pop(each) for each in names}
    run_file = _with_options(run_file, asked_options(values))
    if of_file["dataset_file"]:
        run_file = replace(run_file, dataset=of_file["dataset_file"])
    if of_file["limit"] is not None:
        run_file = replace(run_file, limit=of_file["limit"])
    name = str(run_file.run_options.get("name") or default_name)
    is_new = is_new and name == default_name and not run_file.run_options.get("retry_failed")
    fresh: Asked = {"fresh": True} if is_new else {}
    run_file = replace(run_file, run_options={**run_file.run_options, "name": name, **fresh})
    request = EvalRequest((), run_file.run_options, asked_gates(values), **values)
    run_file, commit = at_revision(run_file, open_home(workspace).state_folder / "revisions")
    agent = placed_agent(run_file, open_home(workspace), request.python, request.image)
    path = Path(of_file["dataset_file"]) if of_file["dataset_file"] else dataset_path(run_file)
    evalset = read_dataset(path)
    secrets = secrets_of(run_file, _given_secrets(of_file["secrets_file"]), os.environ)
    may_ask = is_asked and sys.stdin.isatty()
    if request.rows is not None:
        case_ids = rows_between(evalset, rows=request.rows, offset=of_file["offset"], limit=of_file["limit"])
        n_chosen = len(chosen_rows(evalset.cases, request.rows))
        words = f"rows {request.rows}: {n_chosen:,} of {len(evalset.cases):,}"
    elif of_file["offset"]:
        case_ids = rows_between(evalset, rows=None, offset=of_file["offset"], limit=run_file.limit)
        words = f"rows from {of_file['offset']}: {len(case_ids or ()):,} of {len(evalset.cases):,}"
    else:
        case_ids, words = _chosen_rows(run_file, evalset, is_sample=of_file["sample"], may_ask=may_ask)
    note = f"{name}\n{run_file.path}{f', commit {commit[:7]}' if commit else ''}; {words}"
    if given_note := run_file.run_options.get("note"):
        note = f"{note}\n{given_note}"
    job = Job(agent, evalset, path, _options(run_file, case_ids, note, request.gates))
    own_environment = {**run_file.env, **secrets}
    return _FileRun(run_file, job, name, words, commit, request.baseline, may_ask, own_environment, request.asked_gates)


async def _play(settings: Settings, file_run: _FileRun) -> int:
    """Play a new run, or continue the one of this name; gives the exit code."""
    from evaldesk.cli.runs.change import follow_run
    from evaldesk.desk.desk import Desk

    desk = Desk.open(settings)

    async def begin(desk: Desk) -> int:
        plan = await _plan(desk, file_run.job, file_run.baseline)
        run = await desk.runs.run_to_continue(plan)
        if run and not plan.config.retry_failed:
            show(f"Run {run.id} is continued: {run.n_done:,} of {run.n_trials:,} trials are there.", err=True)
        return await desk.runs.start(plan)

    return await follow_run(desk, begin)


async def _plan(desk: Desk, job: Job, compared_with: str | None) -> RunPlan:
    gates = job.options.gates
    baseline = None if compared_with is None else await asyncio.to_thread(desk.stored_runs.baseline, compared_with)
    (plan,) = await plan_jobs(desk, [job], gates=gates, baseline=baseline)
    warn_of_false_alarms(gates, [plan])
    return plan


def _settings(workspace: str | None, run_file: RunFile) -> Settings:
    settings = open_home(workspace)
    models = (*settings.models, run_file.model_path)
    return replace(settings, models=models, n_workers=n_workers(run_file.run_options.get("concurrency") or AT_ONCE))


async def _submit(settings: Settings, job: Job, compared_with: str | None) -> tuple[RunSummary, str]:
    from evaldesk.desk.desk import Desk

    desk = Desk.open(settings)
    try:
        plan = await _plan(desk, job, compared_with)
        run_id = await desk.runs.submit(plan)
        return await desk.runs.summary(run_id), run_digest(plan.config)
    finally:
        await desk.close()


def _with_options(file: RunFile, option_values: Asked) -> RunFile:
    """The file with the options that the command was given in the place of its own."""
    threshold = option_values.pop("pass_threshold", None)
    return replace(
        file,
        run_options={**file.run_options, **option_values},
        model_path=option_values.get("model") or file.model_path,
        pass_threshold=file.pass_threshold if threshold is None else threshold,
    )


def _options(run_file: RunFile, case_ids: tuple[str, ...] | None, note: str, gates: Gates) -> RunOptions:
    """The grader rewards inside the trial, so that both times count there."""
    workflow_s, grader_s = run_file.agent_workflow_timeout_s, run_file.run_options.get("judge_timeout_s") or 0.0
    option_values: Asked = {"timeout_s": min(workflow_s + grader_s, 86_400.0), **run_file.run_options}
    return RunOptions(
        case_ids=case_ids,
        criteria=(replace(REWARD, threshold=run_file.pass_threshold),),
        gates=gates,
        **option_values,
    ).but(model=run_file.model_path, note=note)


def _chosen_rows(
    run_file: RunFile, evalset: EvalSet, *, is_sample: bool, may_ask: bool
) -> tuple[tuple[str, ...] | None, str]:
    """The rows, None for all, and words that say which; an omitted limit is asked about or said aloud."""
    n = len(evalset.cases)
    if run_file.limit is not None:
        ids = tuple(case.id for case in evalset.cases[: run_file.limit])
        return ids, f"limit {run_file.limit}: the first {len(ids):,} of {n:,} rows"
    n_sample = max(1, round(n / SHARE))
    if may_ask and not is_sample:
        question = f"limit is omitted: run all {n:,} rows, or a seeded sample of {n_sample:,}?"
        is_sample = choose(question, ("all", "sample"), default="all") == "sample"
    if not is_sample:
        return None, f"limit omitted: all {n:,} rows"
    indexes = random.Random(SAMPLE_SEED).sample(range(n), n_sample)  # noqa: S311 - the same rows every time
    ids = tuple(evalset.cases[index].id for index in sorted(indexes))
    return ids, f"limit omitted: {n_sample:,} of {n:,} rows, drawn with seed {SAMPLE_SEED}"


def _given_secrets(name: str | None) -> dict[str, str]:
    if name is None:
        return {}
    if name == "-":
        return read_secrets(sys.stdin.read())
    try:
        return read_secrets(bytes_of(Path(name)).decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--secrets-file {name}: {error}") from error


def _show_plan(run_file: RunFile, run_name: str, path: Path, words: str, commit: str) -> None:
    rows = [
        ("Name", run_name),
        ("Rollout", run_file.rollout),
        ("Entrypoint", run_file.entrypoint),
        ("Model", run_file.model_path),
        ("Dataset", str(path)),
        ("Rows", words),
        ("Trials a row", str(run_file.run_options.get("n") or 1)),
        ("Pass threshold", f"{run_file.pass_threshold:g}"),
    ]
    rows += [("Branch", run_file.branch)] if run_file.branch else []
    rows += [("Commit", commit[:7])] if commit else []
    rows += [("Code", f"{run_file.code_root}, a git worktree of that commit")] if run_file.code_root else []
    rows += (
        [("Environment", ", ".join(f"{key}={value}" for key, value in run_file.env.items()))] if run_file.env else []
    )
    rows += [("Secrets", ", ".join(run_file.secrets))] if run_file.secrets else []
    rows += [("Advanced", "recorded but not consumed: " + ", ".join(run_file.advanced))] if run_file.advanced else []
    for label, text in rows:
        show(style(f"{label:<16}", dim=True) + in_one_line(text))


def _show_submitted(run: RunSummary, run_name: str, who: str, *, is_json: bool) -> None:
    if is_json:
        created = run.created_at.isoformat()
        show_json({"id": run.id, "name": run_name, "status": run.status, "created_at": created})
        return
    show(f"Evaluation run submitted: {in_one_line(run_name)}")
    where = "by the desk that is open" if who == "desk" else "in the background"
    show(f"Run {run.id} is played {where}. `evaldesk run info {run.id}` shows its progress.")
