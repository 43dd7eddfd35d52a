"""`evaldesk gate`: how the gates of a run behave, computed before anything is played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, cast

import click

from evaldesk.cli.eval.options import Command, asked_gates, gate_option
from evaldesk.cli.runs.shared import json_option, stored_runs, workspace_option
from evaldesk.desk.runs.gates.forecasts import (
    ASSUMED_RATES,
    EXPLAINED,
    Subject,
    assumed_subject,
    check_explained,
    gate_forecasts,
    history_subject,
)
from evaldesk.desk.runs.gates.measured import measured_pairs
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATES_BY_NAME, AskedGates, check_confirm, flag_of
from evaldesk.model import Gates
from evaldesk.model.conclusion import counted
from evaldesk.model.forecast import GateForecast, Range, UnchangedPairs
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import BY_NAME, option_of
from evaldesk.wording.forecasts import (
    forecast_sentence,
    measured_sentence,
    notes_of,
    proposal_sentence,
    worse_sentence,
)
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
    gate_options, of_run = asked_gates(values), Gates()
    pairs = None
    if run is not None:
        if n_cases is not None or rate is not None:
            raise UsageError("--from takes cases and rates from the run; leave --cases and --rate out")
        with stored_runs(workspace) as runs:
            stored_run = runs.find_by_name(run)
            of_run = stored_run.config.gates
            subject = _subject(runs, stored_run, n, pass_threshold)
            gates = _gates_to_explain(of_run, gate_options)
            pairs = measured_pairs(runs, stored_run, gates)
        subjects = {f"run {stored_run.id}": subject}
    elif n_cases is None:
        raise UsageError("name a run by --from, or the number of cases by --cases")
    else:
        threshold = 1.0 if pass_threshold is None else pass_threshold
        rates = ASSUMED_RATES if rate is None else (rate,)
        subjects = {f"{each:g}": assumed_subject(each, [n or 1] * n_cases, threshold) for each in rates}
        gates = _gates_to_explain(of_run, gate_options)
    check_explained(gates, next(iter(subjects.values())), flag_of)
    forecasts_by_rate = {name: gate_forecasts(gates, subject) for name, subject in subjects.items()}
    of_change = [each for forecasts in forecasts_by_rate.values() for each in forecasts if each.level is None]
    alarm = of_change[0] if len(of_change) == 1 else None
    measured = "" if run is None else measured_sentence(pairs, gates, alarm)
    if is_json:
        pairs_object = {"measured": _pairs_json(pairs)} if pairs else {}
        show_json(_as_json(subjects, forecasts_by_rate) | pairs_object | {"measured_sentence": measured}, indent=2)
    else:
        _show(subjects, forecasts_by_rate)
        if measured:
            show(f"\n{measured}")


def _subject(runs: StoredRuns, run: RunSummary, n: int | None, pass_threshold: float | None) -> Subject:
    """The cases of a run with their history, and the trials that it had or `n`."""
    n_each = [n] * run.n_cases if n else runs.n_played(run.id)
    threshold = run.config.pass_threshold if pass_threshold is None else pass_threshold
    subject = history_subject(runs.history(run), n_each, threshold)
    if subject is None:
        raise UsageError(f"run {run.id} has no scored trials to estimate pass rates from; name another run")
    return subject


def _gates_to_explain(of_run: Gates, gate_options: AskedGates) -> Gates:
    """The requested gates, or the gates of the run with the requested changes, such as a rule."""
    of_run = Gates() if Gates(**cast("Any", gate_options)).asks_for_verdicts else of_run
    check_confirm({"regression_rule": of_run.regression_rule, **gate_options}, flag_of)
    return replace(of_run, **cast("Any", gate_options))


def _as_json(
    subjects: Mapping[str, Subject], forecasts_by_rate: Mapping[str, tuple[GateForecast, ...]]
) -> dict[str, Any]:
    """One object a rate under `by_rate`; with one gate and one rate also its numbers on top."""
    first = next(iter(subjects.values()))
    objects = {name: [_gate_json(each) for each in forecasts] for name, forecasts in forecasts_by_rate.items()}
    only = [each for gates in objects.values() for each in gates]
    top: dict[str, Any] = {}
    if len(only) == 1:
        top = {name: only[0][name] for name in ("false_alarm", "false_alarm_range", "standing", "holds", "neutral")}
    most = {} if first.n == first.n_most else {"n_most": first.n_most, "trials": first.n_trials}
    shape = {"cases": first.n_cases, "n": first.n, **most, "pass_threshold": first.pass_threshold}
    basis = first.basis
    history = (
        {} if basis.rate is not None else {"runs": basis.n_runs, "scored": basis.n_scored, "passed": basis.n_passed}
    )
    return {**top, **shape, **({"history": history} if history else {}), "by_rate": objects}


def _gate_json(forecast: GateForecast) -> dict[str, Any]:
    """`false_alarm` is null for an agent below the bar, and for one that too few trials may place on either side of it.

    `fails` is the chance to fail at any level. `sentence` and `notes` are the lines of the text, in their order.
    """
    alarm = forecast.false_alarm
    return {
        "name": forecast.name,
        "standing": forecast.standing,
        "sentence": forecast_sentence(forecast),
        "notes": _notes(forecast),
        "holds": forecast.holds,
        "neutral": forecast.neutral,
        "false_alarm": alarm.mean if alarm else None,
        "false_alarm_range": _ends(alarm) if alarm else None,
        "fails": forecast.fails.mean,
        "fails_range": _ends(forecast.fails),
        "level_range": _ends(forecast.level) if forecast.level else None,
        "trials_to_know": forecast.trials_to_know,
        "holds_when_worse": {f"{drop:g}": holds for drop, holds, _ in forecast.worse},
        "neutral_when_worse": {f"{drop:g}": neutral for drop, _, neutral in forecast.worse},
        "more_trials": forecast.n_more,
        "stops_after": forecast.n_played,
        "proposal": asdict(forecast.proposal) if forecast.proposal else None,
        "is_proposed": forecast.is_proposed,
    }


def _pairs_json(pairs: UnchangedPairs) -> dict[str, Any]:
    """The share and its interval are null for too few runs to measure one."""
    share_interval, is_known = pairs.interval, pairs.interval is not None
    interval = [share_interval.low, share_interval.high] if share_interval else None
    share = pairs.share if is_known else None
    return {
        "runs": pairs.n_runs,
        "pairs": pairs.n_pairs,
        "failed": pairs.n_failed,
        "share": share,
        "interval": interval,
    }


def _ends(bounds: Range) -> list[float]:
    return [bounds.low, bounds.high]


def _show(subjects: Mapping[str, Subject], forecasts_by_rate: Mapping[str, tuple[GateForecast, ...]]) -> None:
    first = next(iter(subjects.values()))
    cases = counted(first.n_cases, "case")
    trials = "1 trial" if first.n == first.n_most == 1 else f"{trials_each(first.n, first.n_most)} trials"
    share = "every trial" if first.pass_threshold == 1 else f"at least {first.pass_threshold:g} of its trials"
    show(f"{cases}, {trials} each. A case passes when it passes {share}.")
    for name, forecasts in forecasts_by_rate.items():
        show(f"\n{_origin(name, subjects[name])}")
        for each in forecasts:
            _show_gate(each)
        if not forecasts:
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
    for line in _notes(forecast):
        show(f"    {line}")


def _notes(forecast: GateForecast) -> list[str]:
    return list(filter(None, (worse_sentence(forecast), *notes_of(forecast), proposal_sentence(forecast))))
