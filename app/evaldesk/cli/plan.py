"""`evaldesk plan`: the trials, cost, duration and detectable difference of a run or an experiment before its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from evaldesk import paths
from evaldesk.cli.eval.adk import check_names, read_evalset_file
from evaldesk.cli.eval.experiment import check_request, variants_of
from evaldesk.cli.eval.options import MODELS_OF_VARIANTS, asked_options, gate_option, read_models
from evaldesk.cli.eval.request import EvalRequest
from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import json_option, workspace_option
from evaldesk.desk.evalsets.cases import with_ids
from evaldesk.desk.experiments.estimates import (
    ExperimentEstimate,
    PlannedVariant,
    earlier_runs,
    experiment_estimate,
    planned_variant,
)
from evaldesk.desk.experiments.revisions import is_revision
from evaldesk.desk.experiments.variants import AGENT, EVALSET, baseline_index, variant_options
from evaldesk.desk.named_agents import named_agent
from evaldesk.desk.runs.estimate import estimate, propose
from evaldesk.desk.runs.gates.forecasts import MOST_PREVIEWED
from evaldesk.desk.runs.histories import keys_of
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Case
from evaldesk.model.evalset import count_trials
from evaldesk.model.experiment import Variant
from evaldesk.pages.experiment_plan import estimate_lines, estimate_object, run_lines, run_object
from evaldesk.run_options import BY_NAME, option_of
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show, show_json

SEE = option_of(
    "", "see", "number", "Difference to see", low=0.001, high=1, help="Propose cases that show this difference: 0.05."
)


@click.command()
@click.argument("words", nargs=-1, metavar="AGENT EVALSET[:CASE,CASE]")
@click.option("--vary", multiple=True, metavar="OPTION=A,B", help="The options of the variants, as of `evaldesk eval`.")
@click.option("--model", "model", multiple=True, callback=read_models, metavar="NAME", help="The model, or several.")
@click.option("--baseline-variant", metavar="NAME", help="The variant to compare with; default: the first.")
@gate_option(BY_NAME["n"])
@gate_option(BY_NAME["concurrency"])
@gate_option(SEE)
@json_option
@workspace_option
def plan(words: tuple[str, ...], workspace: str | None, see: float | None, is_json: bool, **values: Any) -> None:
    """Plan a run or an experiment: trials, cost, time, and the smallest difference it shows.

    Cost, time and pass rates are those of earlier runs of AGENT on EVALSET. Nothing is played, no agent is imported.
    With --see the cases are proposed that show a difference 4 times in 5.

    \b
    evaldesk plan my_agent my.evalset.json --n 5
    evaldesk plan my_agent my.evalset.json --vary model=gpt-5,gpt-5-mini --n 5
    evaldesk plan my_agent my.evalset.json --vary instruction=@p1.md,@p2.md --n 3 --see 0.05
    """
    if len(words) != 2:
        raise UsageError("name one agent and one eval set, such as: evaldesk plan samples/hello_world hello_world")
    request = EvalRequest(
        words=words,
        run_options=asked_options(values),
        models=click.get_current_context().meta.get(MODELS_OF_VARIANTS, ()),
        workspace=workspace,
        **values,
    )
    place = _read_place(request)
    with earlier_runs(open_home(workspace)) as runs:
        if request.is_experiment:
            experiment = _experiment(request, place, runs)
            proposal = None if see is None else experiment.proposal(see)
            lines, plan_object = estimate_lines(experiment, proposal), estimate_object(experiment, proposal)
        else:
            lines, plan_object = _run(request, place, runs, see)
    if is_json:
        show_json(plan_object, indent=2)
        return
    for line in lines:
        show(in_one_line(line))


@dataclass(frozen=True, slots=True)
class _Place:
    """The agent, and the cases of a file that were chosen."""

    agent: AgentRef
    path: Path
    cases: Sequence[Case]


def _read_place(request: EvalRequest) -> _Place:
    agent = named_agent(request.words[0], request.workspace)
    path, case_ids = paths.selected_cases(request.words[1], paths.folder_of_names(agent.folder))
    evalset = read_evalset_file(path)
    check_names(path, case_ids, [case.id for case in evalset.cases])
    cases = evalset.cases if case_ids is None else with_ids(evalset.cases, set(case_ids))
    return _Place(agent, path, cases)


def _experiment(request: EvalRequest, place: _Place, runs: StoredRuns | None) -> ExperimentEstimate:
    factors, variants = variants_of(request)
    check_request(request, variants)
    for each in variants:
        variant_options(request.options(), each)
    planned = [_planned(request, place, each) for each in variants]
    return experiment_estimate(
        runs,
        planned,
        place.cases,
        n=min(_n_of(request, each) for each in variants),
        concurrency=request.value("concurrency"),
        factors=factors,
        baseline=baseline_index([each.name for each in variants], request.baseline_variant),
    )


def _planned(request: EvalRequest, place: _Place, variant: Variant) -> PlannedVariant:
    agent, path, cases = place.agent, place.path, place.cases
    if AGENT in variant.options and not is_revision(str(variant.options[AGENT])):
        agent = named_agent(str(variant.options[AGENT]), request.workspace)
    if EVALSET in variant.options:
        path = Path(str(variant.options[EVALSET]))
        cases = read_evalset_file(path).cases
    model = variant.options.get("model", request.run_options.get("model"))
    n_trials = _count_trials(cases, _n_of(request, variant))
    return planned_variant(
        variant, agent, path, request.home, model=None if model is None else str(model), n_trials=n_trials
    )


def _count_trials(cases: Sequence[Case], n: int) -> int:
    """The trials of a run of the cases. Raises UsageError for a case whose own number cannot be."""
    try:
        return count_trials(cases, n)
    except ValueError as error:
        raise UsageError(str(error), field="cases") from error


def _n_of(request: EvalRequest, variant: Variant) -> int:
    text = variant.options.get("n")
    return int(request.value("n") if text is None else BY_NAME["n"].read(str(text)))


def _run(
    request: EvalRequest, place: _Place, runs: StoredRuns | None, see: float | None
) -> tuple[list[str], dict[str, Any]]:
    """The lines and the object of one run."""
    variant = _planned(request, place, Variant("", {}))
    n, history = request.value("n"), None
    last = runs.find_last_run(variant.agent_id, variant.evalset_id) if runs else None
    if runs and last and 0 < len(place.cases) <= MOST_PREVIEWED:
        history = runs.history(last, keys_of("", place.cases))
    run_estimate = estimate(
        runs,
        variant.agent_id,
        variant.evalset_id,
        n_cases=len(place.cases),
        n=n,
        concurrency=request.value("concurrency"),
        n_trials=variant.n_trials,
        history=history,
    )
    proposal = None if see is None else propose(run_estimate, see, n, history)
    shape = len(place.cases), n
    return run_lines(run_estimate, *shape, proposal), run_object(run_estimate, *shape, proposal)
