"""`evaldesk run list`, `evaldesk run info` and `evaldesk run logs`: stored runs, shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

import click

from evaldesk.cli.runs.shared import json_option, opened_desk, stored_runs, workspace_option
from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.desk.runs.stored_runs import StoredRuns, metric_interval, run_name
from evaldesk.model import Outcome, RunConfig, RunStatus
from evaldesk.model.conclusion import Interval
from evaldesk.model.run import LIVE
from evaldesk.model.stored import MetricRow, RunSummary, host_of
from evaldesk.model.visibility import capture_words
from evaldesk.pages.door.runs import listed_runs, read_run_filter
from evaldesk.pages.runs.facts import options_line, played_in, run_fingerprint, spread_of
from evaldesk.pages.runs.objects import (
    mean_unscored_as_0,
)
from evaldesk.pages.runs.view import requested_gates
from evaldesk.wording.places import (
    again_sentence,
    changes_sentence,
    is_telling,
    place_words,
    places_words,
    shared_globals_sentence,
)
from evaldesk.wording.printable import in_one_line, printable
from evaldesk.wording.recorded import plan_sentence
from evaldesk.wording.words import (
    agent_totals_words,
    asserted_lines,
    conclusion_words,
    cost_words,
    counted_words,
    duration_words,
    interval_words,
    least_words,
    needs_words,
    passed_sentence,
    passed_words,
    range_words,
    started_words,
)
from evaldesk.wording.writer import show, show_json, style


@click.command()
@click.argument("name")
@json_option
@workspace_option
def info(name: str, is_json: bool, workspace: str | None) -> None:
    """Show the details of the run NAME.

    \b
    evaldesk run info 12
    evaldesk run info my-run --json
    """
    if is_json:
        from evaldesk.pages.door.runs import run_answer

        with opened_desk(workspace) as desk:
            show_json(run_answer(desk, name), indent=2)
        return
    with stored_runs(workspace) as runs:
        run = runs.find_by_name(name)
        lines = _lines(runs, run)
        width = max(len(label) for label, _ in lines) + 2
        for label, text in lines:
            show(style(label.ljust(width), dim=True) + printable(text))
        for hint in _hints(run, is_left_alone=runs.is_left_alone(run)):
            show(hint)


def _lines(runs: StoredRuns, run: RunSummary) -> list[tuple[str, str]]:
    config, numbers = run.config, runs.numbers(run)
    curve = numbers.curve
    lines = [
        ("Run", str(run.id) + (f", {run_name(run)}" if run_name(run) != str(run.id) else "")),
        ("Status", runs.shown_status(run) + (f": {run.reason}" if run.reason else "")),
        ("Progress", counted_words(run.n_done, run.n_trials, "trial")),
        *(("Budget", sentence) for sentence in (spread_of(run),) if sentence),
        ("Duration", duration_words(run.active_ms) if run.active_ms else "–"),
        ("Result", passed_sentence(run.counts, numbers.interval)),
        *(("At any stop", words) for words in (numbers.any_stop,) if words),
        *(("Shared", sentence) for sentence in (shared_globals_sentence(run.shared_state),) if sentence),
        *_conclusion_rows(runs, run),
        ("Not counted", f"{run.counts.errored:,} errored, {run.counts.unscored:,} unscored"),
        *(("Asserted", line) for line in asserted_lines(config, run.n_cases)),
        *([("Plan", plan_sentence(config.recorded, run.n_done))] if config.recorded else []),
        ("Agent", f"{config.agent.id} ({config.agent.target})" if config.agent.target else config.agent.id),
        *(("Played in", place) for place in (played_in(config, run.shared_state),) if place),
        *(("Played on", host) for host in (host_of(run.driver),) if host),
        *_places(run),
        *(("Interpreter", line) for line in _interpreter(config)),
        *(("Calls", words) for words in (capture_words(runs.captures(run)),) if words),
        ("Model", config.model or config.agent_model or ("not in the file" if config.recorded else "the agent's own")),
        ("Eval set", f"{config.evalset_name} {config.evalset_path}".strip()),
        ("Settings", options_line(config)),
        ("Fingerprint", run_fingerprint(config)),
        ("Tokens", _amount_words(f"{run.tokens:,}", run.tokens, run.n_uncounted > 0 or not run.tokens)),
        ("Cost", _amount_words(cost_words(run.cost), run.cost, run.is_cost_unknown or not run.has_models)),
        ("Submitted", f"{run.created_at.isoformat(' ', 'seconds')}{_by(run)}"),
        ("Started", run.started_at.isoformat(" ", "seconds") if run.started_at else "–"),
        ("Completed", run.finished_at.isoformat(" ", "seconds") if run.finished_at else "–"),
    ]
    lines += [("Agent of tree", agent_totals_words(agent)) for agent in runs.agent_totals(run.id)]
    lines += [(row.metric, _metric_words(row, run)) for row in runs.metrics(run.id)]
    if len(curve) > 1:
        lines.append(("pass@k", ", ".join(_point(each.k, each.pass_at_k, each.at_interval) for each in curve)))
        lines.append(("pass^k", ", ".join(_point(each.k, each.pass_hat_k, each.hat_interval) for each in curve)))
    return [*lines, ("Note", run.note)] if run.note else lines


def _amount_words(words: str, amount: float, is_least: bool) -> str:
    """The amount; a lower bound, or not known where it is none, where not every trial tells its own."""
    return least_words(words, is_least) if amount or not is_least else "not known"


def _conclusion_rows(runs: StoredRuns, run: RunSummary) -> list[tuple[str, str]]:
    """The conclusion, and the answer of each gate that was asked for."""
    if run.status in LIVE:
        return [("Conclusion", "not yet")]
    conclusion = runs.conclusion(run)
    gates = requested_gates(run, conclusion)
    answers = [("Gate", f"{each.name}: {each.answer}, {each.sentence}") for each in gates]
    return [("Conclusion", conclusion_words(conclusion)), *answers]


def _by(run: RunSummary) -> str:
    """The person and the machine that started the run."""
    words = started_words(run.started_by, run.started_on)
    return f" {words}" if words else ""


def _places(run: RunSummary) -> list[tuple[str, str]]:
    """The current places of a running run, and the number of trials lost with a worker or a host."""
    places, past_places = (run.places, ()) if run.status in LIVE else ((), run.places)
    now = [("Places", places_words(places))] if places else []
    each = [("", f"{place.name}: {place_words(place)}") for place in places if is_telling(places)]
    again = [("Played again", again_sentence(run.n_played_again, past_places))] if run.n_played_again else []
    return [*now, *each, *again]


def _interpreter(config: RunConfig) -> list[str]:
    """Its versions, with its path where it is not Evaldesk's own."""
    interpreter = config.interpreter
    return (
        [f"{interpreter.versions}{f', {interpreter.path}' if interpreter.path else ''}"] if interpreter.versions else []
    )


def _metric_words(row: MetricRow, run: RunSummary) -> str:
    """The mean of the scored trials; beside it the one of Osmosis' results.json, where trials were not scored."""
    interval = metric_interval(row, run)
    interval_text = f" ({range_words(interval)})" if interval else ""
    words = f"mean {row.mean:.3f}{interval_text}, std {row.std:.3f}, min {row.low:.3f}, max {row.high:.3f}"
    words += "" if row.threshold is None else f", passes with {needs_words(row.metric, row.threshold)}"
    if row.n >= run.n_done:
        return words
    mean_of_all = mean_unscored_as_0(row, run.n_done)
    return f"{words}, of {counted_words(row.n, run.n_done, 'trial')} scored; mean_unscored_as_0 {mean_of_all:.3f}"


def _point(k: int, value: float | None, interval: Interval | None) -> str:
    interval_text = f" ({interval_words(interval)})" if interval else ""
    return f"{k}: {value or 0.0:.1%}{interval_text}"


def _hints(run: RunSummary, *, is_left_alone: bool) -> list[str]:
    hints = ["Its process is gone; an open desk goes on with it."] if is_left_alone else []
    if run.status in ("pending", "running"):
        hints.append(f"`evaldesk run stop {run.id}` stops it.")
    if run.n_todo and (is_left_alone or run.stop or run.status in ("stopped", "failed")):
        hints.append(f"`evaldesk run resume {run.id}` plays {_trials(run.n_todo, 'remaining')}.")
    if run.n_to_retry and run.status in ("stopped", "failed", "finished"):
        hints.append(f"`evaldesk run retry {run.id}` plays {_trials(run.n_to_retry, 'errored')} again.")
    return [*hints, f"`evaldesk open {run.id}` shows it in the browser."]


def _trials(n: int, kind: str) -> str:
    return f"the one {kind} trial" if n == 1 else f"the {n:,} {kind} trials"


@click.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Most trials to show.")
@click.option("--errors", "is_errors", is_flag=True, help="Only trials that errored.")
@json_option
@workspace_option
def logs(name: str, limit: int, is_errors: bool, is_json: bool, workspace: str | None) -> None:
    """Show the output of the agent and the errors in the trials of the run NAME.

    \b
    evaldesk run logs 12
    evaldesk run logs 12 --errors --limit 5
    """
    with stored_runs(workspace) as runs:
        cases = runs.cases(runs.find_by_name(name).id)
        for number, entry in enumerate(_entries(cases, is_errors=is_errors)):
            if number == limit:
                show(f"More than {limit} trials; --limit shows more.", err=True)
                break
            if is_json:
                show_json(entry)
                continue
            show(style(f"{in_one_line(entry['case_id'])}, trial {entry['trial']} {entry['verdict']}", bold=True))
            for text in filter(None, (entry["log"], entry["error"], entry["trace"])):
                for line in printable(text).splitlines():
                    show(f"    {line}")


def _entries(cases: Iterable[CaseResult], *, is_errors: bool) -> Iterator[dict[str, Any]]:
    for case in cases:
        for trial in case:
            changes = changes_sentence(trial)
            log = f"{trial.logs}\n{changes}".lstrip() if changes else trial.logs
            if not (trial.error or (log and not is_errors)):
                continue
            yield {
                "case_id": case.id,
                "trial": trial.trial_index + 1,
                "verdict": trial.verdict,
                "log": log,
                "error": f"{trial.error.kind}: {trial.error.message}" if trial.error else "",
                "trace": trial.error.trace if trial.error else "",
            }


COLUMNS = ("Run", "Name", "Status", "Conclusion", "Passed", "Errored", "Done", "Agent", "Eval set", "Submitted", "By")


@click.command(name="list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Most runs to list.")
@click.option("--all", "is_all", is_flag=True, help="List every run.")
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="Only runs with this status.")
@click.option("--model", metavar="PART", help="Only runs whose model has PART in its name.")
@click.option("--dataset", "--evalset", "evalset_id", metavar="PART", help="The same for the eval set or data set.")
@click.option("--rollout", "--agent", "agent_id", metavar="PART", help="The same for the agent.")
@click.option(
    "--search",
    "text",
    default="",
    metavar="TEXT",
    help="Only runs with TEXT in their name, note, agent, eval set or model.",
)
@click.option(
    "--filter", "filter_text", default="", metavar="FILTER", help="Words, status:, agent:, evalset: and model:."
)
@click.option("--cursor", type=click.IntRange(1), metavar="RUN", help="Begin before this run.")
@json_option
@workspace_option
def list_runs(
    limit: int,
    is_all: bool,
    status: RunStatus | None,
    model: str | None,
    evalset_id: str | None,
    agent_id: str | None,
    text: str,
    filter_text: str,
    cursor: int | None,
    is_json: bool,
    workspace: str | None,
) -> None:
    """List runs, newest first.

    \b
    evaldesk run list
    evaldesk run list --status running --json
    evaldesk run list --model openai/gpt-5-mini --dataset sums --search nightly
    """
    run_filter = read_run_filter(filter_text)
    status = status or run_filter.status
    words = " ".join(filter(None, (text, run_filter.text)))
    filters: Any = {
        "agent_id": agent_id or run_filter.agent,
        "evalset_id": evalset_id or run_filter.evalset,
        "model": model or run_filter.model,
    }
    with stored_runs(workspace) as store:
        runs, n_all = store.list_newest(
            status, None if is_all else limit + 1, **filters, text=words, is_part=True, before=cursor
        )
        has_more = not is_all and len(runs) > limit
        runs = runs[:limit] if has_more else runs
        answer = listed_runs(store, runs, n_all, has_more=has_more)
    if is_json:
        show_json(answer, indent=2)
        return
    if not runs and (status or words or cursor or any(filters.values())):
        show("No matching runs. `evaldesk run list --all` lists every one.")
        return
    if not runs:
        show("No runs yet. `evaldesk eval` and `evaldesk run submit` make some.")
        return
    items = zip(runs, answer["items"], strict=True)
    show_table(COLUMNS, [_cells(run, item["outcome"], item["status"]) for run, item in items])
    if has_more:
        show(f"{len(runs)} of {n_all}; --cursor {runs[-1].id} lists more, and --all every one.")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their contents, two spaces apart."""
    clean = [[printable(cell).replace("\n", " ")[:60] for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(columns, *clean, strict=True)]
    for row, is_head in [(columns, True), *((row, False) for row in clean)]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        show(style(line, bold=True) if is_head else line)


def _cells(run: RunSummary, outcome: Outcome | None, status: str) -> list[str]:
    passed = passed_words(run.counts.passed, run.counts.scored).removesuffix(" passed") if run.counts.scored else "–"
    progress = f"{run.n_done:,} of {run.n_trials:,}"
    when = run.created_at.strftime("%Y-%m-%d %H:%M")
    name = "" if run_name(run) == str(run.id) else run_name(run)
    return [
        str(run.id),
        name,
        status,
        outcome or "–",
        passed,
        str(run.counts.errored or "–"),
        progress,
        run.config.agent.id,
        run.config.evalset_name,
        when,
        run.started_by or "–",
    ]
