"""`evaldesk score`: recorded conversations judged by an eval set, without playing an agent."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evaldesk.cli.eval.options import Sectioned, asked_gates, gate_options, metrics_and_criteria, output_options
from evaldesk.cli.files.exchange_files import visible
from evaldesk.cli.runs.shared import ask_trust, trust_option, workspace_option
from evaldesk.wording.writer import show

if TYPE_CHECKING:
    from evaldesk.cli.eval.request import EvalRequest
    from evaldesk.desk.desk import Desk
    from evaldesk.desk.imports.matching import Matching
    from evaldesk.desk.trust import Trust
    from evaldesk.model import EvalSet

MOST_LISTED = 20
"""Conversations without a case that are named, and cases without a conversation."""


@click.command(cls=Sectioned)
@click.argument("traces", nargs=-1, required=True, metavar="TRACES...", type=click.Path(path_type=Path))
@click.option("--evalset", required=True, metavar="SET", help="The eval set: a file, or FILE:CASE,CASE.")
@click.option("--from", "format_name", metavar="FORMAT", help="Format of the traces; default: detected.")
@click.option(
    "--criterion",
    "criteria",
    metavar="METRIC=T",
    multiple=True,
    callback=metrics_and_criteria,
    help="A metric with its threshold, or, as tool_used={...}, with options too. May be repeated.",
)
@click.option("--config-file-path", metavar="FILE", help="The criteria, in the format of ADK's test_config.json.")
@workspace_option
@trust_option
@gate_options
@output_options
def score(traces: tuple[Path, ...], evalset: str, format_name: str | None, is_trusted: bool, **values: Any) -> None:
    """Score the conversations in TRACES by the criteria and expectations of an eval set; no agent is called.

    TRACES are files that `evaldesk import` reads: OpenTelemetry and OpenInference traces, sessions, results of other
    tools. A conversation is a trial of the case that its attribute evaldesk.case_id names, else of the one case with
    the same messages of the user; the others are listed. Stored are a run of what was seen, and one of its scores.

    Exit codes as of `evaldesk eval`; a case without a conversation leaves the run undecided. Without a gate every
    matched conversation must pass.

    \b
    evaldesk score traces.json --evalset evalsets/refunds.evalset.json
    evaldesk score day1.jsonl day2.jsonl --evalset refunds.evalset.json --min-pass-rate 0.95 --junit seen.xml
    """
    from evaldesk.cli.eval.request import EvalRequest

    request = EvalRequest((), asked_gates=asked_gates(values), **values)
    sys.exit(score_traces(request, traces, evalset, format_name, is_trusted=is_trusted))


def score_traces(
    request: EvalRequest, traces: Sequence[Path], evalset_name: str, format_name: str | None, *, is_trusted: bool
) -> int:
    """Match, store, score, judge, write; gives the exit code. Raises UsageError, FormatError."""
    from evaldesk.cli.eval.adk import check_names, read_evalset_file
    from evaldesk.cli.eval.output_files import check_outputs
    from evaldesk.desk.desk import Desk
    from evaldesk.desk.imports.files import read_path
    from evaldesk.desk.imports.matching import match_conversations
    from evaldesk.paths import selected_cases

    check_outputs(request)
    path, names = selected_cases(evalset_name)
    evalset = read_evalset_file(path)
    check_names(path, names, [case.id for case in evalset.cases])
    matching = match_conversations([read_path(each, format_name) for each in traces], evalset, names)
    request = replace(request, run_options={"n": _n_least(matching)})
    request.gates  # noqa: B018 - refused before anything is stored
    _show_matching(matching)
    settings = request.settings()
    trust = ask_trust(settings, is_trusted=is_trusted, needs_runs_only=True)
    source = ", ".join(visible(each.name) for each in traces)
    return asyncio.run(_score(Desk.open(settings, trust), trust, request, matching, (path, evalset), source))


def _n_least(matching: Matching) -> int:
    """The trials that each case with a conversation has at least."""
    return min(Counter(result.case_index for result in matching.run.results).values())


def _show_matching(matching: Matching) -> None:
    """The conversations without a case, and the cases without a conversation."""
    from evaldesk.desk.imports.matching import MESSAGE_WIDTH

    if matching.unmatched:
        n = len(matching.unmatched)
        show(f"{n:,} {'conversation is' if n == 1 else 'conversations are'} not scored:", err=True)
        for each in matching.unmatched[:MOST_LISTED]:
            message = f" {visible(each.message[:MESSAGE_WIDTH])!r}" if each.message else ""
            show(f"  {visible(each.id)}{message}: {visible(each.reason)}", err=True)
        if n > MOST_LISTED:
            show(f"  and {n - MOST_LISTED:,} more", err=True)
    if n_missing := len(matching.missing_ids):
        names = ", ".join(map(visible, matching.missing_ids[:MOST_LISTED]))
        more = f" and {n_missing - MOST_LISTED:,} more" if n_missing > MOST_LISTED else ""
        words = "1 case has" if n_missing == 1 else f"{n_missing:,} cases have"
        show(f"{words} no conversation: {names}{more}. SET:CASE,CASE scores only the cases that it names.", err=True)


async def _score(
    desk: Desk, trust: Trust, request: EvalRequest, matching: Matching, source_set: tuple[Path, EvalSet], source: str
) -> int:
    from evaldesk.cli.eval.adk import criteria_file_of
    from evaldesk.cli.eval.outcome import end, nothing_more
    from evaldesk.cli.eval.playing import Played, play_plan
    from evaldesk.cli.eval.request import Job
    from evaldesk.desk.criteria.criteria import reaches_out, read_criteria
    from evaldesk.desk.imports.seen_runs import agent_of, store_seen_run
    from evaldesk.desk.runs.gates.impossible import check_gates
    from evaldesk.desk.runs.stored_runs import compared_plans

    path, evalset = source_set
    try:
        found_file = criteria_file_of(request, {path: None})
        criteria = request.named_criteria or (read_criteria(found_file) if found_file else ())
        agent = agent_of(matching)
        if found_file and not request.config_file_path and reaches_out(criteria, None):
            trust.check_criteria_file(agent, found_file)
        options = request.options(criteria=criteria)
        options = options.but(is_by_file=bool(found_file) and not request.named_criteria)
        baseline = None
        if request.baseline is not None:
            baseline = await asyncio.to_thread(desk.stored_runs.baseline, request.baseline)
        run_id = await asyncio.to_thread(
            store_seen_run, desk.imports, matching, path, desk.settings.workspace, source=source
        )
        criteria_of_run = options.criteria_for(matching.run.cases)
        plan = await desk.runs.plan_rescoring(run_id, criteria_of_run, gates=request.gates)
        if baseline is not None:
            (plan,) = compared_plans([plan], baseline)
        check_gates(request.gates, [plan])
        job = Job(agent, evalset, path, options)
        summary, _ = await play_plan(
            desk, job, plan, is_quiet=request.quiet or request.is_json, max_cost=request.gates.max_cost
        )
        show(f"Run {run_id}: the conversations as seen. Run {summary.id}: their scores.", err=True)
        return await asyncio.to_thread(end, desk, request, [Played(job, summary)], (), baseline, nothing_more)
    finally:
        await desk.close()
