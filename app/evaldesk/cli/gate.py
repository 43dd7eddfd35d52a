"""`evaldesk gate`: how the gates of a run behave, computed before anything is played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, cast

import click

from evaldesk.cli.eval.options import Command, asked_gates, gate_option
from evaldesk.cli.runs.shared import json_option, stored_runs, workspace_option
from evaldesk.desk.runs.gates.answers import Subject, assumed_subject, played_subject
from evaldesk.desk.runs.gates.chances import (
    ASSUMED_RATES,
    EXPLAINED,
    SOUGHT,
    TOLERATED,
    GateChance,
    Proposal,
    check_explained,
    gate_chances,
)
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATES_BY_NAME, AskedGates, check_confirm, flag_of
from evaldesk.model import Gates
from evaldesk.model.conclusion import counted
from evaldesk.pages.gate_figures import BEST, CLOSE, MAY_ERR, MORE, passes_words, played_words
from evaldesk.run_options import BY_NAME, option_of
from evaldesk.wording.words import chance_words, off_words, trials_each, trials_words
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
    **given: Any,
) -> None:
    """Show how often a gate fails although nothing changed, and how often a worse agent passes it.

    Nothing is played. Without a gate, the gates are those of the run, or that every trial must pass.

    \b
    evaldesk gate explain --cases 20 --rate 0.9 --n 5 --max-regressions 0
    evaldesk gate explain --from 12
    evaldesk gate explain --from 12 --min-pass-rate 0.9
    """
    asked, of_run = asked_gates(given), Gates()
    if run is not None:
        if n_cases is not None or rate is not None:
            raise UsageError("--from takes cases and rates from the run; leave --cases and --rate out")
        with stored_runs(workspace) as runs:
            stored = runs.named(run)
            subject = played_subject(runs, stored, [n] * stored.n_cases if n else None, pass_threshold)
        of_run = stored.config.gates
        subjects: dict[str, Subject] = {f"run {stored.id}": subject}
    elif n_cases is None:
        raise UsageError("name a run by --from, or the number of cases by --cases")
    else:
        threshold = 1.0 if pass_threshold is None else pass_threshold
        rates = ASSUMED_RATES if rate is None else (rate,)
        subjects = {f"{each:g}": assumed_subject(each, [n or 1] * n_cases, threshold) for each in rates}
    gates = _explained(of_run, asked)
    check_explained(gates, next(iter(subjects.values())), flag_of)
    found = {name: gate_chances(gates, subject) for name, subject in subjects.items()}
    if is_json:
        show_json(_as_json(subjects, found), indent=2)
    else:
        _show(subjects, found)


def _explained(of_run: Gates, asked: AskedGates) -> Gates:
    """The gates that are asked for, or those of the run with what is asked for beside them, such as a rule."""
    of_run = Gates() if Gates(**cast("Any", asked)).asks_for_verdicts else of_run
    check_confirm({"regression_rule": of_run.regression_rule, **asked}, flag_of)
    return replace(of_run, **cast("Any", asked))


def _as_json(subjects: Mapping[str, Subject], found: Mapping[str, tuple[GateChance, ...]]) -> dict[str, Any]:
    """One object a rate under `by_rate`; with one gate and one rate also its two numbers on top."""
    first = next(iter(subjects.values()))
    objects = {
        name: [
            {
                "name": each.name,
                "holds": each.holds,
                "neutral": each.neutral,
                "false_alarm": each.false_alarm,
                "holds_when_worse": {f"{drop:g}": answers.holds for drop, answers in each.worse},
                "neutral_when_worse": {f"{drop:g}": answers.neutral for drop, answers in each.worse},
                "more_trials": each.n_more,
                "stops_after": each.n_played,
                "error": each.error,
                "proposal": asdict(each.proposal) if each.proposal else None,
                "is_proposed": each.is_proposed,
                "repairs": {repair.name: repair.false_alarm for repair in each.repairs},
            }
            for each in chances
        ]
        for name, chances in found.items()
    }
    only = [each for chances in found.values() for each in chances]
    top: dict[str, Any] = {}
    if len(only) == 1:
        top = {"false_alarm": only[0].false_alarm, "holds": only[0].holds, "neutral": only[0].neutral}
    most = {} if first.n == first.n_most else {"n_most": first.n_most, "trials": first.n_trials}
    shape = {"cases": first.n_cases, "n": first.n, **most, "pass_threshold": first.pass_threshold}
    return {**top, **shape, "by_rate": objects}


def _show(subjects: Mapping[str, Subject], found: Mapping[str, tuple[GateChance, ...]]) -> None:
    first = next(iter(subjects.values()))
    cases = counted(first.n_cases, "case")
    trials = "1 trial" if first.n == first.n_most == 1 else f"{trials_each(first.n, first.n_most)} trials"
    share = "every trial" if first.pass_threshold == 1 else f"at least {first.pass_threshold:g} of its trials"
    show(f"{cases}, {trials} each. A case passes when it passes {share}.")
    for name, chances in found.items():
        show(f"\n{_origin(name)}")
        for each in chances:
            _show_gate(each)
        if not chances:
            show("  This run has no gate about verdicts; name one, such as --min-pass-rate 0.9.")


def _origin(name: str) -> str:
    return f"With the pass rates of {name}" if name.startswith("run ") else f"With a pass rate of {name} in every case"


def _show_gate(chance: GateChance) -> None:
    if chance.false_alarm is None:
        show(f"  {chance.name}: not computed; there are too many possible values")
        return
    words = f"  {chance.name}: if nothing changes, this gate fails {chance_words(chance.false_alarm)} of builds"
    words += f" and is too close to tell in {chance_words(chance.neutral)}." if chance.neutral else "."
    show(style(words, fg="red") if chance.false_alarm > TOLERATED else words)
    worse = [f"{100 * drop:.0f} points worse {passes_words(answers)}" for drop, answers in chance.worse]
    show(f"    A worse agent passes it: {'; '.join(worse)}.")
    if chance.n_played:
        show(f"    {played_words(*chance.n_played)}")
    if chance.may_err:
        show(f"    {MAY_ERR}")
    if chance.hint:
        show(f"    {chance.hint}.")
    if chance.better:
        show(f"    {_proposal_words(chance.better)}")
    if chance.is_proposed:
        show(f"    {BEST}")
    elif not chance.better and (chance.is_vague or chance.is_blind):
        show(f"    {CLOSE if chance.is_vague else MORE}")
    if off := off_words(chance.error):
        show(f"    {off}")
    if chance.n_more:
        show(f"    If nothing changes, it plays about {trials_words(chance.n_more)} more a build.")
    for repair in chance.repairs:
        more = f", and plays about {trials_words(repair.n_more)} more" if repair.n_more else ""
        show(f"    {repair.name} fails {chance_words(repair.false_alarm)} of builds{more}.")


def _proposal_words(found: Proposal) -> str:
    """The options to use, and their chances."""
    return (
        f"Better: {found.options}. It finds an agent that is {100 * SOUGHT:.0f} points worse in "
        f"{chance_words(found.finds)} of builds, fails {chance_words(found.false_alarm)} by chance, and plays about "
        f"{trials_words(found.n_trials)}."
    )
