"""`evaldesk eval -m server:loop -d data.jsonl --eval-fn rewards:f`, as `osmosis eval`. (reference/osmosis.md 5)"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaldesk.cli.eval.dataset import REWARD, read_dataset, rows_between
from evaldesk.cli.eval.outcome import play_and_judge
from evaldesk.cli.eval.playing import Played
from evaldesk.cli.eval.request import EvalRequest, Job
from evaldesk.desk.criteria.criteria import function_criterion, given_criteria
from evaldesk.desk.named_agents import named_agent
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.integrations.osmosis.command.options import OsmosisOptions
from evaldesk.integrations.osmosis.command.results import compared, summary_objects
from evaldesk.model import Criterion
from evaldesk.model.conclusion import counted
from evaldesk.model.transcript import BOUNDS
from evaldesk.wording.comparison import comparison_sentence, left_out_words
from evaldesk.wording.printable import printable
from evaldesk.wording.writer import show, style

KEY_VARIABLE = "EVALDESK_API_KEY"


def eval_osmosis(request: EvalRequest) -> int:
    """Run the rows of a data set, with a second model beside where one is named; gives the exit code."""
    form = OsmosisOptions(**request.tool_options)
    _check(request, form)
    path = Path(str(form.dataset))
    evalset = read_dataset(path)
    case_ids = rows_between(evalset, rows=request.rows, offset=form.offset, limit=form.limit)
    if form.api_key:  # handed to the workers in their environment, and stored nowhere
        os.environ[KEY_VARIABLE] = form.api_key
        request = replace(request, run_options={**request.run_options, "api_key_env": KEY_VARIABLE})
    if form.baseline_model:
        request = replace(request, more_models=(form.baseline_model,))
    place = (request.python, request.image, request.value("environment"))
    agent = named_agent(str(form.module), request.workspace, *place)
    # The threshold is one of scores here, not the share of trials that must pass.
    options = request.options(case_ids, _criteria(request, form.eval_fns)).but(pass_threshold=1.0)
    jobs = [Job(agent, evalset, path, options)]
    if form.baseline_model:
        url = form.baseline_base_url or request.run_options.get("base_url")
        second = options.but(model=form.baseline_model, base_url=url)
        jobs.append(Job(agent, evalset, path, second, is_baseline=True))
    return play_and_judge(request, jobs, show_more=_show_summary)


def _check(request: EvalRequest, form: OsmosisOptions) -> None:
    if not form.module:
        raise UsageError("-d needs -m: the agent, such as -m server:agent_loop")
    if not form.dataset:
        raise UsageError("-m needs -d: the data set, such as -d data.jsonl")
    if request.words:
        raise UsageError(f"{request.words[0]!r}: the agent is named by -m and the data by -d; leave the rest out")
    if form.baseline_base_url and not form.baseline_model:
        raise UsageError("--baseline-base-url requires --baseline-model.")
    if form.api_key and request.run_options.get("api_key_env"):
        raise UsageError("--api-key and --api-key-env: name one of them, better the second")
    names = form.eval_fns
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"Duplicate eval function path: {twice!r}")
    for name in names:
        module, colon, function = name.rpartition(":")
        if not (module and colon and function):
            raise UsageError(
                f"Invalid eval function path {name!r}. Expected format: 'module:function' "
                "(e.g., 'rewards:compute_reward')"
            )


def _criteria(request: EvalRequest, eval_fns: Sequence[str]) -> tuple[Criterion, ...]:
    """The functions, each found from the current folder; else the criteria file; else the reward of a grader."""
    threshold = request.value("pass_threshold")
    here = str(Path.cwd())
    sources = {
        "--eval-fn": eval_fns,
        "--criterion": request.criteria,
        "--config-file-path": request.config_file_path,
    }
    flags = [flag for flag, value in sources.items() if value]
    if len(flags) > 1:
        raise UsageError(f"{flags[0]} and {flags[1]}: name the criteria by one of them")
    if eval_fns:
        functions = [function_criterion(name, threshold) for name in eval_fns]
        return tuple(replace(each, options={**each.options, "root": here}) for each in functions)
    if request.criteria:
        return request.named_criteria
    if request.config_file_path:
        return given_criteria(request.config_file_path)
    return (replace(REWARD, threshold=threshold),)


def _show_summary(runs: StoredRuns, played_runs: Sequence[Played]) -> None:
    """Each function as Osmosis reckons it, then the two models row by row."""
    for each, summary in zip(played_runs, summary_objects(runs, played_runs), strict=True):
        model = each.run.config.model or each.run.config.agent_model or "the agent's own model"
        show(style(f"{printable(model)}", bold=True) + " (as Osmosis counts: an errored run scores 0)")
        for name, values in summary["eval_fns"].items():
            numbers = ", ".join(f"{key.replace('pass_at_', 'pass@')} {value:.3f}" for key, value in values.items())
            show(f"  {printable(name)}: {numbers}")
        if n := _n_cut_short(runs, each):
            show(
                f"  {counted(n, 'trial')} reached a limit of the agent: no answer here, and for Osmosis the last text "
                "before it; --compat osmosis scores that text"
            )
    for name, comparison in compared(runs, played_runs).items():
        alone = (
            ((comparison.n_only_before, "the baseline"), (comparison.n_only_after, "this run")) if comparison else ()
        )
        note = left_out_words(*alone)
        show(f"{printable(name)} against the baseline: {comparison_sentence(comparison)}. {note}".rstrip())


def _n_cut_short(runs: StoredRuns, each: Played) -> int:
    """The trials whose functions get another `solution_str` here than in Osmosis."""
    if each.run.config.compat == "osmosis":
        return 0
    cases = runs.cases(each.run.id, is_whole=False)
    return sum(trial.stop_reason in BOUNDS for case in cases for trial in case)
