"""How the gates of a run behave, computed before anything is played: for `evaldesk gate explain` and coding agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from evaldesk.desk.runs.gates.forecasts import Subject, check_explained, gate_forecasts, history_subject
from evaldesk.desk.runs.gates.measured import measured_pairs
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.gate_options import AskedGates, check_confirm, flag_of
from evaldesk.model import Gates
from evaldesk.model.forecast import GateForecast, Range, UnchangedPairs
from evaldesk.model.stored import RunSummary
from evaldesk.wording.forecasts import (
    POOLED_FORECAST,
    forecast_sentence,
    measured_sentence,
    notes_of,
    proposal_sentence,
    worse_sentence,
)


@dataclass(frozen=True, slots=True)
class GateExplanation:
    """The forecasts of gates by the name of their pass rates; `pairs` are measured ones of a stored run.

    Gates that are pooled have no forecast, and `measured` says so.
    """

    subjects: Mapping[str, Subject]
    forecasts: Mapping[str, tuple[GateForecast, ...]]
    pairs: UnchangedPairs | None = None
    measured: str = ""
    is_pooled: bool = False
    run_id: int | None = None

    @property
    def as_json(self) -> dict[str, Any]:
        """The explanation as JSON."""
        pairs = {"measured": pairs_object(self.pairs)} if self.pairs else {}
        page = {} if self.run_id is None else {"page": f"/runs/{self.run_id}"}
        return forecasts_object(self.subjects, self.forecasts) | pairs | {"measured_sentence": self.measured, **page}


def explained_run(
    runs: StoredRuns,
    name: str,
    gate_options: AskedGates,
    *,
    n: int | None = None,
    pass_threshold: float | None = None,
) -> GateExplanation:
    """The gates of a stored run, or the requested ones, by the histories of its cases. Raises UsageError."""
    run = runs.find_by_name(name)
    subjects = {f"run {run.id}": _subject(runs, run, n, pass_threshold)}
    gates = gates_to_explain(run.config.gates, gate_options)
    pairs = measured_pairs(runs, run, gates)
    explanation = replace(explained_subjects(subjects, gates), run_id=run.id)
    if gates.is_pooled:
        return replace(explanation, measured=POOLED_FORECAST, is_pooled=True)
    of_change = [each for forecasts in explanation.forecasts.values() for each in forecasts if each.level is None]
    alarm = of_change[0] if len(of_change) == 1 else None
    return replace(explanation, pairs=pairs, measured=measured_sentence(pairs, gates, alarm))


def explained_subjects(subjects: Mapping[str, Subject], gates: Gates) -> GateExplanation:
    """The gates over some cases, by the name of their pass rates. Raises UsageError."""
    check_explained(gates, next(iter(subjects.values())), flag_of)
    return GateExplanation(subjects, {name: gate_forecasts(gates, subject) for name, subject in subjects.items()})


def _subject(runs: StoredRuns, run: RunSummary, n: int | None, pass_threshold: float | None) -> Subject:
    """The cases that the gates of a run ask for with their history, and the trials that each had or `n`."""
    history, n_played = runs.gate_history(run)
    n_each = (n,) * len(n_played) if n else n_played
    threshold = run.config.pass_threshold if pass_threshold is None else pass_threshold
    subject = history_subject(history, n_each, threshold)
    if subject is None:
        raise UsageError(f"run {run.id} has no scored trials to estimate pass rates from; name another run")
    return subject


def gates_to_explain(of_run: Gates, gate_options: AskedGates) -> Gates:
    """The requested gates, or the gates of the run with the requested changes, such as a rule."""
    of_run = Gates() if Gates(**cast("Any", gate_options)).asks_for_verdicts else of_run
    check_confirm({"regression_rule": of_run.regression_rule, **gate_options}, flag_of)
    return replace(of_run, **cast("Any", gate_options))


def forecasts_object(
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
        "notes": gate_notes(forecast),
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


def pairs_object(pairs: UnchangedPairs) -> dict[str, Any]:
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


def gate_notes(forecast: GateForecast) -> list[str]:
    return list(filter(None, (worse_sentence(forecast), *notes_of(forecast), proposal_sentence(forecast))))
