"""`evaldesk gate`: how the gates of a run behave, computed before anything is played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from evaldesk.cli.eval.options import Command, asked_gates, gate_option
from evaldesk.cli.runs.shared import json_option, stored_runs, workspace_option
from evaldesk.desk.runs.gates.forecasts import ASSUMED_RATES, EXPLAINED, Subject, assumed_subject
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATES_BY_NAME
from evaldesk.model import Gates
from evaldesk.model.conclusion import counted
from evaldesk.model.forecast import GateForecast
from evaldesk.pages.gate_explanation import explained_run, explained_subjects, gate_notes, gates_to_explain
from evaldesk.run_options import BY_NAME, option_of
from evaldesk.wording.forecasts import forecast_sentence
from evaldesk.wording.words import trials_each
from evaldesk.wording.writer import show, show_json, style

RATE = option_of(
    "", "rate", "number", "Pass rate", high=1, help="Pass rate of each case; default: 0.99, 0.95, 0.9 and 0.8."
)


@click.group()
def gate() -> None:
    """Compute how often the gates of a run fail or hold.

    \b
    evaldesk gate explain --cases 20 --rate 0.9 --n 5 --max-regressions 0
    evaldesk gate explain --from 12
    """


def _explained_gates(command: Command) -> Command:
    for name in reversed(EXPLAINED):
        command = gate_option(GATES_BY_NAME[name])(command)
    return command


@gate.command()
@click.option("--from", "run", metavar="RUN", help="Take cases, trials, pass rates and gates from this run.")
@click.option("--cases", "n_cases", type=click.IntRange(1, 100_000), metavar="N", help="Number of cases.")
@gate_option(RATE)
@gate_option(BY_NAME["n"])
@gate_option(BY_NAME["pass_threshold"]._replace(help="Pass rate that a case must reach; default 1."))
@_explained_gates
@json_option
@workspace_option
def explain(
    run: str | None,
    n_cases: int | None,
    rate: float | None,
    n: int | None,
    pass_threshold: float | None,
    is_json: bool,
    workspace: str | None,
    **values: Any,
) -> None:
    """Show how often a gate fails although nothing changed, and how often a worse agent passes it.

    Nothing is played. Without a gate, the gates are those of the run, or that every trial must pass.

    \b
    evaldesk gate explain --cases 20 --rate 0.9 --n 5 --max-regressions 0
    evaldesk gate explain --from 12
    evaldesk gate explain --from 12 --min-pass-rate 0.9
    """
    gate_options = asked_gates(values)
    if run is not None:
        if n_cases is not None or rate is not None:
            raise UsageError("--from takes cases and rates from the run; leave --cases and --rate out")
        with stored_runs(workspace) as runs:
            explanation = explained_run(runs, run, gate_options, n=n, pass_threshold=pass_threshold)
    elif n_cases is None:
        raise UsageError("name a run by --from, or the number of cases by --cases")
    else:
        threshold = 1.0 if pass_threshold is None else pass_threshold
        rates = ASSUMED_RATES if rate is None else (rate,)
        subjects = {f"{each:g}": assumed_subject(each, [n or 1] * n_cases, threshold) for each in rates}
        explanation = explained_subjects(subjects, gates_to_explain(Gates(), gate_options))
    if is_json:
        show_json(explanation.as_json, indent=2)
    else:
        _show(explanation.subjects, explanation.forecasts, is_pooled=explanation.is_pooled)
        if explanation.measured:
            show(f"\n{explanation.measured}")


def _show(
    subjects: Mapping[str, Subject], forecasts_by_rate: Mapping[str, tuple[GateForecast, ...]], *, is_pooled: bool
) -> None:
    first = next(iter(subjects.values()))
    cases = counted(first.n_cases, "case")
    trials = "1 trial" if first.n == first.n_most == 1 else f"{trials_each(first.n, first.n_most)} trials"
    share = "every trial" if first.pass_threshold == 1 else f"at least {first.pass_threshold:g} of its trials"
    passes = "by the means of its scores over all trials" if is_pooled else f"when it passes {share}"
    show(f"{cases}, {trials} each. A case passes {passes}.")
    for name, forecasts in forecasts_by_rate.items():
        show(f"\n{_origin(name, subjects[name])}")
        for each in forecasts:
            _show_gate(each)
        if not (forecasts or is_pooled):
            show("  This run has no gate about verdicts; name one, such as --min-pass-rate 0.9.")


def _origin(name: str, subject: Subject) -> str:
    basis = subject.basis
    if basis.rate is not None:
        return f"With a pass rate of {name} in every case"
    runs = f", {counted(basis.n_runs, 'run')} of the same agent" if basis.n_runs else ""
    return f"With the history of {name}: {basis.n_passed:,} of {basis.n_scored:,} trials passed{runs}"


def _show_gate(forecast: GateForecast) -> None:
    words = f"  {forecast.name}: {forecast_sentence(forecast)}"
    show(style(words, fg="red") if forecast.is_frequent else words)
    for line in gate_notes(forecast):
        show(f"    {line}")
