"""`evaldesk eval`: run an eval set from the shell, on the same engine and store, with the same verdicts."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaldesk.errors import AgentError, NotFoundError, UsageError

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk
    from evaldesk.desk.run_plan import RunPlan
    from evaldesk.model import AgentRef, EvalSet
    from evaldesk.store import RunSummary

EXIT_PASSED, EXIT_NOT_PASSED, EXIT_ERRORS, EXIT_INTERRUPTED = 0, 1, 3, 130


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for; `case_ids` None means all."""

    agent: AgentRef
    path: Path
    evalset: EvalSet
    case_ids: tuple[str, ...] | None
    n: int
    concurrency: int
    timeout_s: float


@click.command(name="eval")
@click.argument("agent")
@click.argument("evalset", metavar="EVALSET[:CASE,CASE]")
@click.option("--n", "-n", "n", type=click.IntRange(1, 1000), default=1, show_default=True, help="Trials of each case.")
@click.option("--concurrency", type=click.IntRange(1, 256), default=4, show_default=True, help="Trials at once.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1, 86_400),
    default=120.0,
    show_default=True,
    help="Seconds for one trial.",
)
@click.option("--workspace", help="The folder that holds .evaldesk; the current one unless given.")
def evaluate(agent: str, evalset: str, n: int, concurrency: int, timeout_s: float, workspace: str | None) -> None:
    """Run the cases of EVALSET with AGENT: a folder, module:attr, or samples/NAME.

    Exit code 0: all trials passed; 1: not all; 2: wrong usage; 3: errors.

    \b
    evaldesk eval samples/hello_world evalsets/hello_world.evalset.json --n 5
    evaldesk eval my_agent my.evalset.json:case_1,case_2
    """
    from evaldesk.agents import agent_ref
    from evaldesk.formats import load_evalset
    from evaldesk.settings import read_settings

    path, names = _selected(evalset)
    loaded = load_evalset(path)
    known = [case.id for case in loaded.cases]
    for name in names or ():
        if name not in known:
            raise NotFoundError.among(f"case in {path}", name, known)
    request = Request(agent_ref(agent), path, loaded, names, n, concurrency, timeout_s)
    home = Path(workspace).resolve() if workspace else Path.cwd()
    n_workers = max(1, min(concurrency, os.cpu_count() or 2))
    settings = read_settings(home, (home,), environment=os.environ, n_workers=n_workers)

    from evaldesk.desk.desk import Desk

    try:
        sys.exit(asyncio.run(_evaluate(Desk.open(settings), request)))
    except KeyboardInterrupt:
        click.echo("Stopped. The finished trials are stored; `evaldesk ui` resumes the run.", err=True)
        sys.exit(EXIT_INTERRUPTED)


def _selected(text: str) -> tuple[Path, tuple[str, ...] | None]:
    """The file, and the cases after its colon; a file whose own name has a colon is found as it is."""
    if Path(text).is_file():
        return Path(text), None
    name, colon, cases = text.rpartition(":")
    if colon and Path(name).is_file():
        chosen = tuple(case.strip() for case in cases.split(",") if case.strip())
        if not chosen:
            raise UsageError(f"{text}: name a case after the colon, or leave the colon out to run them all")
        return Path(name), chosen
    raise UsageError(f"{name if colon else text} is not a file; name an eval set, such as evalsets/my.evalset.json")


async def _evaluate(desk: Desk, request: Request) -> int:
    from evaldesk.cli.eval_report import report_error, show_progress, show_result

    try:
        try:
            description = await desk.host.describe(request.agent)
        except AgentError as error:
            report_error(request.agent.id, error)
            return EXIT_ERRORS
        plan = await _plan(desk, request, description.model)
        summary = await desk.runs.run_to_end(plan, show_progress)
        show_result(desk.store, summary)
        return _exit_code(summary)
    finally:
        await desk.close()


async def _plan(desk: Desk, request: Request, model: str | None) -> RunPlan:
    from evaldesk.desk.agent_version import agent_version
    from evaldesk.desk.run_plan import RunOptions, RunSubject
    from evaldesk.store.regular_file import version_of

    path = request.path.resolve()
    known = next((file.id for file in await asyncio.to_thread(desk.evalsets.list) if file.path == path), None)
    subject = RunSubject(
        agent=request.agent,
        evalset=request.evalset,
        evalset_id=known or request.evalset.id,
        evalset_path=str(path),
        evalset_version=version_of(path.read_bytes()),
        agent_version=agent_version(request.agent),
        agent_model=model,
    )
    options = RunOptions(
        case_ids=request.case_ids, n=request.n, concurrency=request.concurrency, timeout_s=request.timeout_s
    )
    return desk.runs.plan_for(subject, options)


def _exit_code(summary: RunSummary) -> int:
    if summary.status != "finished" or summary.n_errored:
        return EXIT_ERRORS
    return EXIT_PASSED if summary.n_passed == summary.n_trials else EXIT_NOT_PASSED
