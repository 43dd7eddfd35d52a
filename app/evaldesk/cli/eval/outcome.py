"""The end of `evaldesk eval`: the printed output, the conclusion, the files, and the exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import click

from evaldesk.cli.broken_pipe import reader_may_leave
from evaldesk.cli.eval.output_files import check_outputs, is_folder, show_annotations, write_outputs
from evaldesk.cli.eval.playing import EXIT_INTERRUPTED, Played, plan_jobs, play_jobs, resume_command
from evaldesk.cli.eval.report import report_error, show_details, show_result
from evaldesk.cli.eval.request import EvalRequest, Job
from evaldesk.cli.eval.result_json import result_json
from evaldesk.desk.desk import Desk
from evaldesk.desk.other_tools import CALLED
from evaldesk.desk.runs.gates.conclusion import Ending, RunNumbers, conclude
from evaldesk.desk.runs.plan import RunOptions, RunPlan, Unjudged
from evaldesk.desk.runs.stored_runs import StoredRuns, joined_numbers, planned_numbers
from evaldesk.errors import AgentError, EmptyShardError, EvaldeskError, NotFoundError, UsageError
from evaldesk.model import Conclusion, EvalSet, Gates
from evaldesk.model.comparison import Baseline, RunChange
from evaldesk.model.conclusion import WITHOUT, counted
from evaldesk.model.stored import RunSummary
from evaldesk.model.visibility import PARTS, Visibility
from evaldesk.pages.experiment_plan import lines_of_plan, object_of_plan
from evaldesk.run_options import OWN
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.words import conclusion_words, needs_words, spread_sentence, trials_each
from evaldesk.wording.writer import show, show_document, show_json, style

P = ParamSpec("P")
T = TypeVar("T")
ShowMore: TypeAlias = Callable[[StoredRuns, Sequence[Played]], None]
EXIT_ERRORS = 3
COLOURS = {"passed": "green", "failed": "red", "neutral": "yellow", "undecided": "yellow", "interrupted": "yellow"}
MARKS = {"held": ("✓ held  ", "green"), "failed": ("✗ failed", "red"), "undecided": ("? open  ", "yellow")}


def nothing_more(runs: StoredRuns, played_runs: Sequence[Played]) -> None:
    """There is nothing else to show."""


def play_and_judge(request: EvalRequest, jobs: Sequence[Job], *, show_more: ShowMore = nothing_more) -> int:
    """Play, show, judge, write; gives the exit code. Refusals come before the first trial."""
    gates = request.gates
    check_outputs(request)
    desk = Desk.open(request.settings())
    try:
        return asyncio.run(_play_and_judge(desk, request, jobs, gates, show_more))
    except asyncio.CancelledError:
        show("Stopped before anything was played.", err=True)
        return EXIT_INTERRUPTED


async def _play_and_judge(
    desk: Desk,
    request: EvalRequest,
    jobs: Sequence[Job],
    gates: Gates,
    show_more: ShowMore,
) -> int:
    try:
        baseline_name = request.baseline
        baseline = None if baseline_name is None else await asyncio.to_thread(desk.stored_runs.baseline, baseline_name)
        try:
            if request.check:
                return await check_jobs(desk, jobs, is_json=request.is_json, gates=gates, baseline=baseline)
            played_runs, left_out = await play_jobs(
                desk,
                jobs,
                is_quiet=request.quiet or request.is_json,
                gates=gates,
                baseline=baseline,
                files=request.files,
            )
        except EmptyShardError as error:
            show(in_one_line(f"{error}"[:1].upper() + f"{error}"[1:] + "."))
            return 0
        except AgentError as error:
            report_error(jobs[0].agent.id, error)
            return EXIT_ERRORS
        ending = _inside(click.get_current_context(silent=True), end)
        return await asyncio.to_thread(ending, desk, request, played_runs, left_out, baseline, show_more)
    finally:
        await desk.close()


def end(
    desk: Desk,
    request: EvalRequest,
    played_runs: Sequence[Played],
    left_out: Sequence[RunPlan],
    baseline: Baseline | None,
    show_more: ShowMore,
) -> int:
    """Conclude, write the requested files, and show the trials until the reader leaves."""
    own = [each for each in played_runs if not each.job.is_baseline]
    runs = desk.stored_runs
    if baseline is not None:
        baseline = replace(baseline, is_of_part=any(runs.plays_only_part(each.run.id) for each in own))
    change = runs.change_since(baseline, [each.run for each in own], request.gates) if baseline else None
    conclusion = conclude(request.gates, _numbers(desk, played_runs, left_out), change)
    trouble: UsageError | None = None
    try:
        write_outputs(runs, request, played_runs, conclusion, change)
    except UsageError as error:  # said after the verdict, which is worth more
        trouble = error
    with reader_may_leave():
        if request.is_json:
            show_document([result_json(runs, own, conclusion, change).encode(), b"\n"], ".json")
        else:
            _show(desk, request, played_runs)
            show_more(runs, played_runs)
            show_other_verdicts(runs, played_runs, request.tool)
            show_conclusion(conclusion, has_gates=not request.gates.asks_nothing)
        if request.annotations:
            show_annotations(runs, own, conclusion, change, is_json=request.is_json)
    stopped_run = next((each for each in played_runs if each.run.status == "stopped"), None)
    if stopped_run:
        _say_how_to_resume(stopped_run, request)
    if trouble:
        raise trouble
    return conclusion.exit_code


def write_files(desk: Desk, run: RunSummary, conclusion: Conclusion) -> None:
    """Write the files that the command which began the run was asked for. Raises UsageError."""
    files = run.config.files
    if not files or run.config.source_run_id is not None:
        return
    path_by_option = {option: path for option, path in files if option in ("junit", "summary")}
    outputs = tuple(path for option, path in files if option == "output")
    of_osmosis = tuple(path for option, path in files if option == "osmosis")
    try:
        runs = desk.stored_runs.of_command(run)
    except NotFoundError as error:
        show(f"Not written: the files of all runs of the command; {error}", err=True)
        return
    rows = _rows_of(desk, run) if of_osmosis or run.config.shard else None
    unwritten = [each for each in of_osmosis if rows is None or is_folder(each)]
    for each in unwritten:
        show(f"Not written: {each}; `evaldesk export {run.id} --format osmosis-results -o FILE` writes it", err=True)
    outputs += tuple(each for each in of_osmosis if each not in unwritten)
    tool = "osmosis" if of_osmosis else "adk"
    request = EvalRequest(
        (), outputs=outputs, junit=path_by_option.get("junit"), summary=path_by_option.get("summary"), tool=tool
    )
    played_runs = [_stored_job(each, rows) for each in runs]
    own = [each.run for each in played_runs if not each.job.is_baseline]
    change = desk.stored_runs.change_of_command(own)
    if run.config.command:
        conclusion = _conclusion_of_command(desk, played_runs, change)
        numbers = ", ".join(str(each.id) for each in runs)
        show(in_one_line(f"Runs {numbers} of one command: {conclusion_words(conclusion)}"), err=True)
    write_outputs(desk.stored_runs, request, played_runs, conclusion, change)
    if file_names := [*outputs, *path_by_option.values()]:
        show(f"Written: {', '.join(file_names)}", err=True)


def _stored_job(run: RunSummary, rows: EvalSet | None) -> Played:
    evalset = rows or EvalSet(run.config.evalset_id, run.config.evalset_name)
    is_baseline = run.config.command is not None and run.config.command.is_baseline
    return Played(
        Job(run.config.agent, evalset, Path(run.config.evalset_path), RunOptions(), is_baseline=is_baseline), run
    )


def _conclusion_of_command(desk: Desk, played_runs: Sequence[Played], change: RunChange | None) -> Conclusion:
    """The conclusion over all runs of a command; undecided while some were not begun."""
    numbers, command = _numbers(desk, played_runs, ()), played_runs[0].run.config.command
    if command and (n_missing := command.n_runs - len(played_runs)):
        were = "was" if n_missing == 1 else "were"
        reason = f"{n_missing} of {command.n_runs} runs of the command {were} not begun; play the command again"
        numbers = replace(numbers, endings=(*numbers.endings, Ending("failed", reason)))
    return conclude(played_runs[0].run.config.gates, numbers, change)


def _rows_of(desk: Desk, run: RunSummary) -> EvalSet | None:
    """The data set that the run chose its rows from; None where the file is gone or lacks one of them."""
    from evaldesk.desk.imports.files import read_path  # most runs are of no data set

    try:
        rows = read_path(Path(run.config.evalset_path)).evalset
    except (EvaldeskError, OSError):
        return None
    ids = {case.id for case in rows.cases} if rows else set()
    return rows if ids.issuperset(desk.runs.run_store.case_ids(run.id).values()) else None


def _numbers(desk: Desk, played_runs: Sequence[Played], left_out: Sequence[RunPlan]) -> RunNumbers:
    """The planned trials of the command. Of a second model only how its run ended counts."""
    own = [desk.stored_runs.numbers(each.run) for each in played_runs if not each.job.is_baseline]
    own += [planned_numbers(plan) for plan in left_out]
    others = [each for each in played_runs if each.job.is_baseline and not each.is_overspent]
    numbers = joined_numbers(own)
    endings = (*numbers.endings, *(Ending(each.run.status, each.run.reason) for each in others))
    return replace(numbers, endings=endings)


def _inside(context: click.Context | None, call: Callable[P, T]) -> Callable[P, T]:
    """`call` for another thread, in the context of this one: it says whether there are colours."""

    def inside(*arguments: P.args, **options: P.kwargs) -> T:
        with context.scope(cleanup=False) if context else nullcontext():
            return call(*arguments, **options)

    return inside


def _show(desk: Desk, request: EvalRequest, played_runs: Sequence[Played]) -> None:
    for each in played_runs:
        if len(played_runs) > 1:
            _show_name(each, played_runs)
        if request.print_detailed_results:
            show_details(desk.stored_runs, each.run)
        show_result(desk.stored_runs, each.run, is_quiet=request.quiet)


def show_other_verdicts(runs: StoredRuns, played_runs: Sequence[Played], spelled: str) -> None:
    """Every verdict that ADK, Osmosis or OpenHands would not give, where their rules apply."""
    for each in played_runs:
        if each.run.config.compat != OWN:
            show(f"Judged as {CALLED[each.run.config.compat]} does.")
        others = runs.by_other_tools(each.run, spelled)
        if (others.verdicts or others.n_scores or others.unscored) and len(played_runs) > 1:
            _show_name(each, played_runs)
        for sentence in (*others.unscored, *others.sentences):
            show(in_one_line(sentence))
        for tool, n in others.n_scores.items():
            cases = "1 case has" if n == 1 else f"{n:,} cases have"
            show(f"{cases} the same verdict and other scores by {CALLED[tool]}; --compat {tool} shows them.")


def _show_name(each: Played, played_runs: Sequence[Played]) -> None:
    """The name of the eval set as a heading among several; its file where another has the same name."""
    names_and_paths = [(other.job.evalset.name or other.job.evalset.id, other.job.path) for other in played_runs]
    name, path = each.job.evalset.name or each.job.evalset.id, each.job.path
    is_shared = any(other == name and of != path for other, of in names_and_paths)
    show(style(in_one_line(str(path) if is_shared else name), bold=True))


def show_conclusion(conclusion: Conclusion, *, has_gates: bool = False) -> None:
    """Each gate with its answer, and the conclusion with the first reason where it is not `passed`.

    A gate that is the reason is only named in the conclusion, where its sentence stands above. A run that passed has no
    conclusion of its own but for cases in quarantine.
    """
    gates = [gate for gate in conclusion.gates if has_gates or gate.name == WITHOUT]
    for gate in gates:
        mark, colour = MARKS[gate.answer]
        show(f"{style(mark, fg=colour)} {gate.name}: {gate.sentence}")
    if conclusion.is_passed and not conclusion.case_ids_in_no_gate:
        return
    gate_name = next((gate.name for gate in gates if conclusion.reason == f"{gate.name}: {gate.sentence}"), "")
    words = in_one_line(f"{conclusion.headline}: {gate_name}" if gate_name else conclusion_words(conclusion))
    show(style(words.capitalize()[: len(conclusion.outcome)], fg=COLOURS[conclusion.outcome]), nl=False)
    show(words[len(conclusion.outcome) :])


def _say_how_to_resume(stopped_run: Played, request: EvalRequest) -> None:
    run = stopped_run.run
    show(
        f"Stopped: {run.n_done:,} of {run.n_trials:,} trials are done and stored. "
        f"Continue with: {resume_command(run.id, request.home)}",
        err=True,
    )


MOST_NAMED = 10


async def check_jobs(desk: Desk, jobs: Sequence[Job], *, is_json: bool, gates: Gates, baseline: Baseline | None) -> int:
    """Print the outcome of each job; gives the exit code. Raises AgentError, UsageError."""
    plans, runs = await plan_jobs(desk, jobs, gates=gates, baseline=baseline), desk.stored_runs
    if is_json:
        estimates = [await asyncio.to_thread(object_of_plan, runs, plan) for plan in plans]
        objects = [plan_facts(plan) | {"estimate": each} for plan, each in zip(plans, estimates, strict=True)]
        show_json({"runs": objects}, indent=2)
        return 0
    for plan in plans:
        _show_check(plan_facts(plan))
        for line in await asyncio.to_thread(lines_of_plan, runs, plan):
            show(in_one_line(line))
    return 0


def plan_facts(plan: RunPlan) -> dict[str, Any]:
    """The run as it would be stored, and the cases that a metric will have nothing to say about."""
    config = plan.config
    return {
        "agent": config.agent.id,
        "model": config.model or config.agent_model,
        "evalset": config.evalset_name,
        "evalset_id": config.evalset_id,
        "n": config.n,
        "n_least": plan.n_least,
        "n_most": plan.n_most,
        "budget": spread_sentence(config, len(plan.cases), plan.n_trials, plan.n_least, plan.n_most),
        "n_cases": len(plan.cases),
        "n_trials": plan.n_trials,
        "criteria": [{"metric": each.metric, "threshold": each.threshold} for each in config.criteria],
        "seen": {part: plan.visibility.level(part) for part in PARTS},
        "unscored": [_unjudged_object(each) for each in plan.foresight.unscored],
        "not_applicable": [_unjudged_object(each) for each in plan.foresight.not_applicable],
    }


def _unjudged_object(entry: Unjudged) -> dict[str, Any]:
    return {"metric": entry.metric or None, "reason": entry.reason, "case_ids": list(entry.case_ids)}


def _show_check(facts: dict[str, Any]) -> None:
    n_cases, each = facts["n_cases"], trials_each(facts["n_least"], facts["n_most"])
    trials = f"{counted(n_cases, 'case')} x {each} = {counted(facts['n_trials'], 'trial')}"
    model = facts["model"] or "a model of its own, or none"
    show(in_one_line(f"{facts['evalset']}: {trials} of {facts['agent']} with {model}"))
    if facts["budget"]:
        show(in_one_line(facts["budget"]))
    visibility = Visibility(**facts["seen"])
    if visibility != Visibility():
        show(in_one_line(f"seen of {facts['agent']}: {visibility.words}"))
    for criterion in facts["criteria"]:
        words = needs_words(criterion["metric"], criterion["threshold"])
        show(in_one_line(f"{criterion['metric']}: {words}"))
    for kind, word, color in (("unscored", "unscored ", "yellow"), ("not_applicable", "not applicable ", None)):
        for each in facts[kind]:
            names = ", ".join(each["case_ids"][:MOST_NAMED]) + (", …" if len(each["case_ids"]) > MOST_NAMED else "")
            by = f" by {each['metric']}" if each["metric"] else ""
            line = f"{len(each['case_ids']):,} of {n_cases:,}{by}: {each['reason']} ({names})"
            show(style(word, fg=color) + in_one_line(line))
