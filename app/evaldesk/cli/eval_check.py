"""`evaldesk eval --check`: what would be run, and what could not be judged; nothing is played or stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from evaldesk.cli.eval_request import Job
from evaldesk.cli.playing import plan_job
from evaldesk.desk.desk import Desk
from evaldesk.desk.run_plan import RunPlan
from evaldesk.desk.run_view import needs_words
from evaldesk.report.turn_text import in_one_line

MOST_NAMED = 10


async def check_jobs(desk: Desk, jobs: Sequence[Job], *, is_json: bool, is_cost_limited: bool) -> int:
    """Say what each job comes to; gives the exit code. Raises AgentError, UsageError."""
    found = [plan_facts(await plan_job(desk, job, is_cost_limited=is_cost_limited)) for job in jobs]
    if is_json:
        click.echo(json.dumps({"runs": found}, indent=2, ensure_ascii=False))
        return 0
    for facts in found:
        _show(facts)
    return 0


def plan_facts(plan: RunPlan) -> dict[str, Any]:
    """The run as it would be stored, and the cases that a metric will have nothing to say about."""
    config = plan.config
    return {
        "agent": config.agent.id,
        "model": config.model or config.agent_model,
        "evalset_id": config.evalset_id,
        "n": config.n,
        "n_cases": len(plan.cases),
        "n_trials": plan.n_trials,
        "criteria": [{"metric": each.metric, "threshold": each.threshold} for each in config.criteria],
        "unscored": [
            {"metric": each.metric, "reason": each.reason, "case_ids": list(each.case_ids)} for each in plan.unscored
        ],
    }


def _show(facts: dict[str, Any]) -> None:
    n_cases = facts["n_cases"]
    cases = "1 case" if n_cases == 1 else f"{n_cases:,} cases"
    trials = f"{cases} x {facts['n']} = {facts['n_trials']:,} trials"
    model = facts["model"] or "a model of its own, or none"
    click.echo(in_one_line(f"{facts['evalset_id']}: {trials} of {facts['agent']} with {model}"))
    for criterion in facts["criteria"]:
        words = needs_words(criterion["metric"], criterion["threshold"])
        click.echo(in_one_line(f"{criterion['metric']}: {words}"))
    for each in facts["unscored"]:
        names = ", ".join(each["case_ids"][:MOST_NAMED]) + (", …" if len(each["case_ids"]) > MOST_NAMED else "")
        said = f"{len(each['case_ids']):,} of {n_cases:,} by {each['metric']}: {each['reason']} ({names})"
        click.echo(click.style("unscored ", fg="yellow") + in_one_line(said))
