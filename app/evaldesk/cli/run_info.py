"""`evaldesk run info`."""

from __future__ import annotations

import json

import click

from evaldesk.cli.progress import duration_words
from evaldesk.cli.run_list import run_item
from evaldesk.cli.runs_of import json_option, named_run, opened_store, run_name, workspace_option
from evaldesk.desk.run_numbers import run_numbers
from evaldesk.report import clopper_pearson, cost_words, counted_words, exact_words, pass_curve, passed_sentence
from evaldesk.report.turn_text import printable
from evaldesk.store import RunSummary, Store


@click.command()
@click.argument("name")
@json_option
@workspace_option
def info(name: str, is_json: bool, workspace: str | None) -> None:
    """Tell all about the run NAME.

    \b
    evaldesk run info 12
    evaldesk run info my-run --json
    """
    with opened_store(workspace) as store:
        run = named_run(store, name)
        if is_json:
            from evaldesk.cli.result_json import run_object

            found = {**run_item(run), "results": run_object(run, run_numbers(store, run))}
            click.echo(json.dumps({"data": found}, indent=2, ensure_ascii=False))
            return
        lines = _lines(store, run)
        width = max(len(label) for label, _ in lines) + 2
        for label, text in lines:
            click.echo(click.style(label.ljust(width), dim=True) + printable(text))
        for hint in _hints(run):
            click.echo(hint)


def _lines(store: Store, run: RunSummary) -> list[tuple[str, str]]:
    config, numbers = run.config, run_numbers(store, run)
    curve = [point for point in pass_curve(numbers.counts) if point.pass_at_k is not None]
    found = [
        ("Run", str(run.id) + (f", {run_name(run)}" if run_name(run) != str(run.id) else "")),
        ("Status", run.status + (f": {run.reason}" if run.reason else "")),
        ("Progress", counted_words(run.n_done, run.n_trials, "trial")),
        ("Duration", duration_words(run.active_ms / 1000) if run.active_ms else "–"),
        ("Result", passed_sentence(run.n_passed, run.n_scored, numbers.interval)),
        *_for_sure(run),
        ("Apart", f"{run.n_errored:,} errored, {run.n_unscored:,} unscored"),
        ("Agent", f"{config.agent.id} ({config.agent.target})"),
        ("Model", config.model or config.agent_model or "the agent's own"),
        ("Eval set", f"{config.evalset_id} {config.evalset_path}".strip()),
        ("Configuration", f"n={config.n}, concurrency={config.concurrency}, seed={config.seed}"),
        ("Tokens", f"{run.tokens_in + run.tokens_out:,}"),
        ("Cost", "not known" if run.n_unpriced else cost_words(run.cost)),
        ("Submitted", run.created_at.isoformat(" ", "seconds")),
        ("Started", run.started_at.isoformat(" ", "seconds") if run.started_at else "–"),
        ("Completed", run.finished_at.isoformat(" ", "seconds") if run.finished_at else "–"),
    ]
    found += [
        (row.metric, f"mean {row.mean:.3f}, std {row.std_population:.3f}, min {row.low:.3f}, max {row.high:.3f}")
        for row in store.runs.metric_rows(run.id)
    ]
    if len(curve) > 1:
        found.append(("pass@k", ", ".join(f"{point.k}: {point.pass_at_k:.1%}" for point in curve)))
    return [*found, ("Note", run.note)] if run.note else found


def _for_sure(run: RunSummary) -> list[tuple[str, str]]:
    """What holds in at least 95 of 100 such runs; only where every trial is a case of its own."""
    if run.config.n > 1 or not run.n_scored:
        return []
    return [("For sure", f"{exact_words(clopper_pearson(run.n_passed, run.n_scored))} pass")]


def _hints(run: RunSummary) -> list[str]:
    hints = []
    if run.status in ("pending", "running"):
        hints.append(f"`evaldesk run stop {run.id}` stops it.")
    if run.n_todo and run.status in ("stopped", "failed"):
        hints.append(f"`evaldesk run resume {run.id}` plays {_trials(run.n_todo, 'remaining')}.")
    if run.n_errored and run.status in ("stopped", "failed", "finished"):
        hints.append(f"`evaldesk run retry {run.id}` plays {_trials(run.n_errored, 'errored')} again.")
    return [*hints, f"`evaldesk open {run.id}` shows it in the browser."]


def _trials(n: int, kind: str) -> str:
    return f"the one {kind} trial" if n == 1 else f"the {n:,} {kind} trials"
