"""`evaldesk run submit configs/eval/NAME.toml`: a run that goes on in the background."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evaldesk.cli.eval.dataset import REWARD, read_dataset
from evaldesk.cli.eval.options import Sectioned, asked_gates, asked_options, gate_options, how_options, place_options
from evaldesk.cli.eval.playing import plan_jobs, warn_of_false_alarms
from evaldesk.cli.eval.report import report_error
from evaldesk.cli.eval.request import EvalRequest, Job
from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import json_option, n_workers, workspace_option
from evaldesk.desk.imports.files import bytes_of
from evaldesk.desk.runs.file import AT_ONCE, RunFile, read_run_file
from evaldesk.desk.runs.file_places import at_revision, dataset_path, placed_agent, read_secrets, secrets_of
from evaldesk.desk.runs.handover import hand_over
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.provenance import run_digest
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import EvalSet, Gates
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import Asked
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import choose, confirm, show, show_json, style

if TYPE_CHECKING:
    from evaldesk.settings import Settings

SAMPLE_SEED = 42
SHARE = 10


@click.command(cls=Sectioned)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", "-y", is_flag=True, help="Do not ask; an omitted limit means all rows.")
@click.option("--sample", is_flag=True, help="Where the limit is omitted, run a seeded 10 % of the rows.")
@click.option("--name", help="Name of the run; default: name of the file and the time.")
@click.option("--secrets-file", metavar="FILE|-", help="NAME=value lines; - reads them from standard input.")
@json_option
@workspace_option
@how_options
@place_options
@gate_options
def submit(
    file: Path,
    yes: bool,
    sample: bool,
    name: str | None,
    secrets_file: str | None,
    is_json: bool,
    workspace: str | None,
    **values: Any,
) -> None:
    """Submit the run of FILE, in Osmosis' TOML; all settings are checked before the start.

    An option of a run that is given here wins over the file, which has them under [evaldesk].
    `evaldesk run info RUN` shows the answers of the gates; without one every trial must pass.

    \b
    evaldesk run submit configs/eval/my-run.toml
    evaldesk run submit configs/eval/my-run.toml --yes --secrets-file .env
    evaldesk run submit configs/eval/my-run.toml --yes --baseline 12 --regression-rule confirm
    """
    run_file = _with_options(read_run_file(file), asked_options(values))
    request = EvalRequest((), run_file.run_options, asked_gates(values), **values)
    gates = request.gates
    run_file, commit = at_revision(run_file, open_home(workspace).state_folder / "revisions")
    agent, path = placed_agent(run_file, open_home(workspace), request.python, request.image), dataset_path(run_file)
    evalset = read_dataset(path)
    secrets = secrets_of(run_file, _given_secrets(secrets_file), os.environ)
    may_ask = not (yes or is_json) and sys.stdin.isatty()
    case_ids, words = _chosen_rows(run_file, evalset, is_sample=sample, may_ask=may_ask)
    run_name = name or f"{run_file.path.stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    note = f"{run_name}\n{run_file.path}{f', commit {commit[:7]}' if commit else ''}; {words}"
    if given_note := run_file.run_options.get("note"):
        note = f"{note}\n{given_note}"
    job = Job(agent, evalset, path, _options(run_file, case_ids, note, gates))
    if not is_json:
        _show_plan(run_file, run_name, path, words, commit)
    if may_ask:
        confirm("Submit this evaluation run?", abort=True)
    elif not (yes or is_json):
        raise UsageError("no terminal for the question; add --yes to submit the run")
    own = {**run_file.env, **secrets}
    os.environ.update(own)
    try:
        run, digest = asyncio.run(_submit(_settings(workspace, run_file), job, request.baseline))
    except AgentError as error:
        report_error(agent.id, error)
        sys.exit(3)
    who = hand_over(open_home(workspace), run.id, digest, environment=own or None)
    _show_submitted(run, run_name, who, is_json=is_json)


def _settings(workspace: str | None, run_file: RunFile) -> Settings:
    settings = open_home(workspace)
    models = (*settings.models, run_file.model_path)
    return replace(settings, models=models, n_workers=n_workers(run_file.run_options.get("concurrency") or AT_ONCE))


async def _submit(settings: Settings, job: Job, compared_with: str | None) -> tuple[RunSummary, str]:
    from evaldesk.desk.desk import Desk

    desk = Desk.open(settings)
    try:
        gates = job.options.gates
        baseline = None if compared_with is None else await asyncio.to_thread(desk.stored_runs.baseline, compared_with)
        (plan,) = await plan_jobs(desk, [job], gates=gates, baseline=baseline)
        warn_of_false_alarms(gates, [plan])
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
