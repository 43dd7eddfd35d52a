"""A run that is continued by its name, and its inputs: what changed since its start is refused, never mixed in.

Its conclusion follows from its gates as well, so other gates are refused like other inputs: an old verdict would
answer a new question. (decision 512 for the cases that no gate asks for)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.matching.case_version import case_version
from evaldesk.model import AgentRef, Gates
from evaldesk.model.comparison import Baseline
from evaldesk.model.run import LIVE, measured_value
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import RUN_OPTIONS

OBJECT_TARGET = "this process:"
"""Begins the target of an agent that is an object, and no name."""


def continued_run(runs: StoredRuns, plan: RunPlan) -> RunSummary | None:
    """The newest run of the name that the plan has, which goes on; None where a new one begins.

    Raises UsageError for other inputs, NotFoundError without a run to retry, ConflictError for a run with nothing left
    to play.
    """
    name, is_retry = plan.config.name, plan.config.retry_failed
    if not name:
        return None
    run = None if plan.config.fresh else runs.newest_of_name(name)
    if run is None:
        if is_retry:
            raise NotFoundError(f"--retry-failed: there is no run named {name}; leave it out to begin one")
        return None
    if run.config.agent.target.startswith(OBJECT_TARGET):
        raise UsageError(
            f"run {run.id}, named {name}, played an object of Python, which cannot be found again; name the agent as a "
            "folder or module:attr, or begin a new run by --fresh (fresh=True)",
            field="name",
        )
    check_inputs(runs, run, plan)
    if is_retry and not run.n_to_retry:
        raise ConflictError(f"run {run.id}, named {name}, has no errored trial; --fresh begins a new run")
    if not (is_retry or run.n_todo or run.status in LIVE):
        raise ConflictError(
            f"run {run.id}, named {name}, has no trial left to play; --fresh begins a new run, "
            "--retry-failed plays its errored trials again"
        )
    return run


def check_inputs(runs: StoredRuns, run: RunSummary, plan: RunPlan) -> None:
    """Raise UsageError where the plan would not play the trials of the run, with the inputs that differ."""
    names = list(changed_inputs(runs, run, plan))
    if names:
        raise UsageError(
            f"run {run.id} began with other inputs: {'; '.join(names)}; undo that, or say --fresh for a new run"
        )


def changed_inputs(runs: StoredRuns, run: RunSummary, plan: RunPlan) -> Iterator[str]:
    """The inputs that differ, with their values where these are short."""
    before, now = run.config, plan.config
    if (before.agent.id, before.agent.target) != (now.agent.id, now.agent.target):
        yield f"agent {before.agent.id} {before.agent.target}, now {now.agent.id} {now.agent.target}"
    elif before.agent_version != now.agent_version:
        yield f"the files of agent {now.agent.id}"
    elif _without_place(before.agent) != _without_place(now.agent):
        yield f"the settings of agent {now.agent.id}"
    old_rows = [(key.case_id, key.digest) for key in runs.store.case_keys(run.id)]
    rows = [(case.id, case_version(case)) for case in plan.cases]
    if old_rows != rows:
        differing = [now_row[0] for old_row, now_row in zip(old_rows, rows, strict=False) if old_row != now_row]
        first = f", the first is {differing[0]}" if differing else ""
        yield f"{len(old_rows):,} rows, now {len(rows):,}{first}"
    if before.left_out != now.left_out:
        yield f"{len(before.left_out):,} cases in no gate, now {len(now.left_out):,}"
    if before.n != now.n:
        yield f"{before.n:,} trials a row, now {now.n:,}"
    if before.criteria != now.criteria:
        yield "the criteria"
    elif before.functions_version != now.functions_version:
        yield "the files of eval functions"
    for option in RUN_OPTIONS:
        is_input = option.is_measured or option.name in _SHAPE
        if is_input and measured_value(before, option) != measured_value(now, option):
            yield f"option {option.name}"
    yield from _changed_gates(before.gates, now.gates)
    if now.gates.compares and _verdicts(runs.store.baseline(run.id)) != _verdicts(plan.baseline):
        yield "the baseline"


_SHAPE = ("budget", "allocate", "shard")
"""Options that decide how many trials a case has, and whether the gates are answered at all."""


def _without_place(agent: AgentRef) -> AgentRef:
    """The agent wherever its folder is, which is another one on another machine."""
    return replace(agent, root="", folder="")


def _changed_gates(before: Gates, now: Gates) -> Iterator[str]:
    for each in fields(Gates):
        earlier, latest = getattr(before, each.name), getattr(now, each.name)
        if earlier != latest:
            yield f"gate {each.name} {earlier or 'none'}, now {latest or 'none'}"


def _verdicts(baseline: Baseline | None) -> list[tuple[str, str, str, bool]]:
    """What a run is compared with: the cases of the baseline with their verdicts."""
    cases = baseline.cases if baseline else ()
    return sorted((case.key.case_id, case.key.digest, case.verdicts, case.is_left_out) for case in cases)
