"""`evaldesk run submit configs/eval/NAME.toml`: a run that goes on in the background."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaldesk.cli.eval_osmosis import REWARD, read_dataset
from evaldesk.cli.eval_report import report_error
from evaldesk.cli.eval_request import Job
from evaldesk.cli.exchange_files import open_home
from evaldesk.cli.handover import hand_over
from evaldesk.cli.playing import plan_job
from evaldesk.cli.runs_of import json_option, n_workers, workspace_option
from evaldesk.desk.run_file import RunFile, read_run_file
from evaldesk.desk.run_file_places import agent_of, check_commit, dataset_path, read_secrets, secrets_of
from evaldesk.desk.run_plan import RunOptions
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import EvalSet
from evaldesk.report.turn_text import in_one_line
from evaldesk.store import RunSummary

if TYPE_CHECKING:
    from evaldesk.desk.run_plan import RunPlan
    from evaldesk.settings import Settings

SAMPLE_SEED = 42
SHARE = 10


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", "-y", is_flag=True, help="Do not ask; an omitted limit means all rows.")
@click.option("--sample", is_flag=True, help="Where the limit is omitted, run a seeded 10 % of the rows.")
@click.option("--name", help="What the run is called; the name of the file and the time unless given.")
@click.option("--secrets-file", metavar="FILE|-", help="NAME=value lines; - reads them from standard input.")
@json_option
@workspace_option
def submit(
    file: Path,
    yes: bool,
    sample: bool,
    name: str | None,
    secrets_file: str | None,
    is_json: bool,
    workspace: str | None,
) -> None:
    """Submit the run that FILE describes, in Osmosis' TOML; all of it is checked before anything runs.

    \b
    evaldesk run submit configs/eval/my-run.toml
    evaldesk run submit configs/eval/my-run.toml --yes --secrets-file .env
    """
    asked = read_run_file(file)
    agent, path, commit = agent_of(asked), dataset_path(asked), check_commit(asked)
    evalset = read_dataset(path)
    secrets = secrets_of(asked, _given_secrets(secrets_file), os.environ)
    may_ask = not (yes or is_json) and sys.stdin.isatty()
    case_ids, words = _chosen_rows(asked, evalset, is_sample=sample, may_ask=may_ask)
    called = name or f"{asked.path.stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    note = f"{called}\n{asked.path}{f', commit {commit[:7]}' if commit else ''}; {words}"
    job = Job(agent, evalset, path, _options(asked, case_ids, note))
    if not is_json:
        _show_plan(asked, called, path, words, commit)
    if may_ask:
        click.confirm("Submit this evaluation run?", abort=True)
    elif not (yes or is_json):
        raise UsageError("nobody can be asked here; say --yes to submit the run")
    own = {**asked.env, **secrets}
    os.environ.update(own)
    try:
        run = asyncio.run(_submit(_settings(workspace, asked), job, asked))
    except AgentError as error:
        report_error(agent.id, error)
        sys.exit(3)
    who = hand_over(open_home(workspace), run.id, environment=own or None)
    _tell(run, called, who, is_json=is_json)


def _settings(workspace: str | None, asked: RunFile) -> Settings:
    settings = open_home(workspace)
    models = (*settings.models, asked.model_path)
    return replace(settings, models=models, n_workers=n_workers(asked.batch_size))


async def _submit(settings: Settings, job: Job, asked: RunFile) -> RunSummary:
    from evaldesk.desk.desk import Desk

    desk = Desk.open(settings)
    try:
        plan = _with_limits(await plan_job(desk, job), asked)
        run_id = await desk.runs.submit(plan)
        return await desk.runs.summary(run_id)
    finally:
        await desk.close()


def _options(asked: RunFile, case_ids: tuple[str, ...] | None, note: str) -> RunOptions:
    """The grader rewards inside the trial, so that both times count there."""
    return RunOptions(
        case_ids=case_ids,
        n=asked.n,
        criteria=(replace(REWARD, threshold=asked.pass_threshold),),
        concurrency=asked.batch_size,
        timeout_s=min(asked.agent_workflow_timeout_s + asked.grader_timeout_s, 86_400.0),
        model=asked.model_path,
        note=note,
    )


def _with_limits(plan: RunPlan, asked: RunFile) -> RunPlan:
    limits = replace(plan.config.limits, judge_timeout_s=asked.grader_timeout_s)
    return replace(plan, config=replace(plan.config, limits=limits))


def _chosen_rows(
    asked: RunFile, evalset: EvalSet, *, is_sample: bool, may_ask: bool
) -> tuple[tuple[str, ...] | None, str]:
    """The rows, None for all, and words that say which; an omitted limit is asked about or said aloud."""
    n = len(evalset.cases)
    if asked.limit is not None:
        ids = tuple(case.id for case in evalset.cases[: asked.limit])
        return ids, f"limit {asked.limit}: the first {len(ids):,} of {n:,} rows"
    n_sample = max(1, round(n / SHARE))
    if may_ask and not is_sample:
        question = f"limit is omitted: run all {n:,} rows, or a seeded sample of {n_sample:,}?"
        is_sample = click.prompt(question, type=click.Choice(["all", "sample"]), default="all") == "sample"
    if not is_sample:
        return None, f"limit omitted: all {n:,} rows"
    drawn = random.Random(SAMPLE_SEED).sample(range(n), n_sample)  # noqa: S311 - the same rows every time
    ids = tuple(evalset.cases[index].id for index in sorted(drawn))
    return ids, f"limit omitted: {n_sample:,} of {n:,} rows, drawn with seed {SAMPLE_SEED}"


def _given_secrets(name: str | None) -> dict[str, str]:
    if name is None:
        return {}
    if name == "-":
        return read_secrets(sys.stdin.read())
    try:
        return read_secrets(Path(name).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--secrets-file {name}: {error}") from error


def _show_plan(asked: RunFile, called: str, path: Path, words: str, commit: str) -> None:
    rows = [
        ("Name", called),
        ("Rollout", asked.rollout),
        ("Entrypoint", asked.entrypoint),
        ("Model", asked.model_path),
        ("Dataset", str(path)),
        ("Rows", words),
        ("Trials a row", str(asked.n)),
        ("Pass threshold", f"{asked.pass_threshold:g}"),
    ]
    rows += [("Branch", asked.branch)] if asked.branch else []
    rows += [("Commit", commit[:7])] if commit else []
    rows += [("Environment", ", ".join(f"{key}={value}" for key, value in asked.env.items()))] if asked.env else []
    rows += [("Secrets", ", ".join(asked.secrets))] if asked.secrets else []
    rows += [("Advanced", "recorded but not consumed: " + ", ".join(asked.advanced))] if asked.advanced else []
    for label, text in rows:
        click.echo(click.style(f"{label:<16}", dim=True) + in_one_line(text))


def _tell(run: RunSummary, called: str, who: str, *, is_json: bool) -> None:
    if is_json:
        created = run.created_at.isoformat()
        click.echo(json.dumps({"id": run.id, "name": called, "status": run.status, "created_at": created}))
        return
    click.echo(f"Evaluation run submitted: {in_one_line(called)}")
    where = "by the desk that is open" if who == "desk" else "in the background"
    click.echo(f"Run {run.id} is played {where}. `evaldesk run info {run.id}` tells how far it is.")
