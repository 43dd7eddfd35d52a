"""The one table of the gates of a run: how each is called, typed and read at every door, and how they go together.

From it come the options of `evaldesk eval`, `run submit` and `gate explain`, the form of a run, `evaluate()` and the
pytest plugin. `model/conclusion.py` has the values, `desk/runs/gates/conclusion.py` the answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypedDict

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model.conclusion import CONFIRM, NEW_CASES, REGRESSION_RULES, STOP_RULES, UNDECIDED, Gates
from evaldesk.run_options import ADK_POOLED, BY_NAME, OWN, RunOption, option_of

SECTION = "Gates"
MOST_CONFIRMING = 100
NOT_CASE = "a pytest item is one case, and this gate is about a whole run"

_gate = partial(option_of, "gates")

# Every front end derives its gates from this table: decision 085.
GATE_OPTIONS: tuple[RunOption, ...] = (
    _gate(
        "min_pass_rate",
        "number",
        title="Minimum pass rate",
        help="Minimum pass rate of the scored trials.",
        high=1,
    ),
    _gate(
        "min_case_pass_rate",
        "number",
        title="Minimum pass rate of each case",
        help="Minimum pass rate of each case; the cases below are named.",
        high=1,
        left_out={"pytest": "a pytest item is one case: --evaldesk-min-pass-rate is the same there"},
    ),
    _gate(
        "pass_at",
        "pairs",
        title="Minimum pass@k",
        help="Minimum chance that at least one of K trials passes, mean over cases.",
        default=(),
        metavar="K=R",
        left_out={"pytest": NOT_CASE},
    ),
    _gate(
        "pass_hat",
        "pairs",
        title="Minimum pass^k",
        help="Minimum chance that all of K trials pass, mean over cases.",
        default=(),
        metavar="K=R",
        left_out={"pytest": NOT_CASE},
    ),
    _gate(
        "min_scored",
        "whole",
        title="Minimum scored trials",
        help="Minimum number of scored trials; with fewer the run is undecided.",
        high=1_000_000,
    ),
    _gate(
        "max_unscored_rate",
        "number",
        title="Maximum share of unscored trials",
        help="Maximum share of unscored trials; default 0. With more the run is undecided.",
        default=0.0,
        high=1,
    ),
    _gate(
        "max_error_rate",
        "number",
        title="Maximum share of errored trials",
        help="Maximum share of errored trials; default 0. With more the run is undecided.",
        default=0.0,
        high=1,
        left_out={"pytest": "a case with an errored trial never passes there"},
    ),
    _gate(
        "max_cost",
        "number",
        title="Maximum cost, US dollars",
        words="maximum cost",
        help="Maximum cost of all model calls in US dollars; above it no trial starts.",
        high=1e9,
        metavar="USD",
        left_out={"pytest": NOT_CASE},
    ),
    _gate(
        "baseline",
        "text",
        title="Compared with run",
        words="baseline",
        help="An earlier run, by number or by its JSON output.",
        default="",
        metavar="RUN|FILE",
    ),
    _gate(
        "max_regressions",
        "whole",
        title="Maximum regressed cases",
        help="Maximum number of cases that passed in the baseline and do not pass now; default 0.",
        high=1_000_000,
        left_out={"pytest": "a pytest item is one case, and fails when that case regressed"},
    ),
    _gate(
        "margin",
        "number",
        title="Maximum pass rate drop",
        words="margin",
        help="Maximum drop of the pass rate against the baseline, as a share; "
        "fails when the drop is larger and could not be chance.",
        high=1,
        left_out={"pytest": NOT_CASE},
    ),
    _gate(
        "regression_rule",
        "choice",
        title="A case regressed when",
        words="regression rule",
        help="A case regressed when its verdict flipped (any, default), when it passes fewer trials than its history "
        "allows (likely), or when it does so in fresh trials, too (confirm).",
        default="any",
        choices=REGRESSION_RULES,
    ),
    _gate(
        "confirm",
        "passes",
        title="Fresh trials",
        help="With confirm: the fresh trials of a case, judged by its history; default 5. M/R: M of them must pass, "
        "whatever the case did before.",
        default=CONFIRM,
        high=MOST_CONFIRMING,
        metavar="R|M/R",
    ),
    _gate(
        "new_cases",
        "choice",
        title="A case that the baseline does not account for",
        words="new cases",
        help="A case that is new, edited, or without a reference or a verdict in the baseline: must-pass by itself "
        "(default), leaves the run undecided unless it passes, or informs only.",
        default="must-pass",
        choices=NEW_CASES,
    ),
    _gate(
        "undecided",
        "choice",
        title="A rate too close to its threshold",
        words="undecided",
        help="A rate too close to its threshold for certainty counts as this; default: the rate alone decides.",
        choices=UNDECIDED,
        unset="decides alone",
    ),
    _gate(
        "stop_when_decided",
        "choice",
        title="Stop when decided",
        help="Begin no more trials once the rest cannot change the answers of the gates (exact), "
        "or is not likely to (likely).",
        choices=STOP_RULES,
        unset="play every trial",
        left_out={"pytest": NOT_CASE},
    ),
)
"""Every gate that a person asks for, in the order in which help and pages show them."""

GATES_BY_NAME: Mapping[str, RunOption] = {option.name: option for option in GATE_OPTIONS}

NOT_ASKED: Mapping[str, str] = {
    "all_must_pass": "follows from the door: what a reward or a benchmark measures need not pass",
    "pass_threshold": "is the option --pass-threshold of the run",
    "unscored_are_failures": "follows from the tool that the run is judged as",
    "is_pooled": "follows from the tool that the run is judged as",
}
"""Fields of Gates that no door asks for, and why."""


class AskedGates(TypedDict, total=False):
    """Gates of a request, by name; None and missing keys ask for nothing. Held to the table by a test.

    `baseline` is the number of a run of the workspace, or the path of a file that `evaldesk eval -o FILE.json` wrote.
    """

    min_pass_rate: float | None
    min_case_pass_rate: float | None
    pass_at: Mapping[int, float] | tuple[tuple[int, float], ...] | None
    pass_hat: Mapping[int, float] | tuple[tuple[int, float], ...] | None
    min_scored: int | None
    max_unscored_rate: float | None
    max_error_rate: float | None
    max_cost: float | None
    baseline: str | int | os.PathLike[str] | None
    max_regressions: int | None
    margin: float | None
    regression_rule: str | None
    confirm: tuple[int, int] | int | None
    new_cases: str | None
    undecided: str | None
    stop_when_decided: str | None


def flag_of(option: RunOption) -> str:
    """How a command calls the option."""
    return option.flags[0]


def title_of(option: RunOption) -> str:
    """How a page calls the option."""
    return option.title


def gates_of(
    requested: Mapping[str, Any],
    *,
    n: int,
    compat: str = OWN,
    all_must_pass: bool = True,
    name_of: Callable[[RunOption], str],
) -> Gates:
    """The gates that were asked for by their names, over `n` trials of each case; those that are None are not.

    `name_of` names an option as the door does. Raises UsageError naming the field for a value that cannot be, and for
    gates that do not go together.
    """
    for name in requested:
        if name not in GATES_BY_NAME:
            raise NotFoundError.among("gate", name, GATES_BY_NAME)
    values = {
        name: GATES_BY_NAME[name].check(value, name_of(GATES_BY_NAME[name]))
        for name, value in requested.items()
        if value is not None and value != ""
    }
    _check_together(values, n, name_of)
    if "baseline" in values:
        is_about_cases = "margin" not in values or "regression_rule" in values
        least = {"max_regressions": 0} if is_about_cases else {}
        values = {**least, **values, "baseline": baseline_words(values["baseline"])}
    if compat == ADK_POOLED:
        check_pooled(values, name_of)
    gates = Gates(**values, all_must_pass=all_must_pass)
    if compat != OWN:
        return gates.as_tool(compat)
    is_silent = not (gates.all_must_pass or gates.asks_for_verdicts) and "max_unscored_rate" not in values
    return replace(gates, max_unscored_rate=1.0) if is_silent else gates


def _check_together(values: Mapping[str, Any], n: int, name_of: Callable[[RunOption], str]) -> None:
    def gate_name(name: str) -> str:
        return name_of(GATES_BY_NAME[name])

    for name in ("max_regressions", "margin", "regression_rule", "new_cases"):
        if name in values and "baseline" not in values:
            raise UsageError(
                f"{gate_name(name)} needs {gate_name('baseline')}: the run, or the JSON file of one, to compare with",
                field="baseline",
            )
    check_confirm(values, name_of)
    for name in ("pass_at", "pass_hat"):
        for k, _ in values.get(name, ()):
            if k > n:
                more = name_of(BY_NAME["n"])
                raise UsageError(
                    f"{gate_name(name)} {k} asks for {k} trials of each case; say {more} {k} or more, not {more} {n}",
                    field=name,
                )


def check_pooled(values: Mapping[str, Any], name_of: Callable[[RunOption], str]) -> None:
    """Raise UsageError for a gate that asks for the verdicts of single trials, beside pooled ones of cases."""
    for name, value in values.items():
        if name != "max_cost" and value != GATES_BY_NAME[name].default:
            raise UsageError(
                f"{name_of(GATES_BY_NAME[name])} asks for the verdicts of single trials, and {ADK_POOLED} judges all "
                "trials of a case together; leave one of them out",
                field=name,
            )


def check_confirm(values: Mapping[str, Any], name_of: Callable[[RunOption], str]) -> None:
    """Raise UsageError for fresh trials that the rule does not play."""
    if "confirm" in values and values.get("regression_rule") != "confirm":
        name, rule = name_of(GATES_BY_NAME["confirm"]), name_of(GATES_BY_NAME["regression_rule"])
        raise UsageError(f"{name} needs {rule} confirm, which plays the fresh trials", field="confirm")


def baseline_words(baseline: str) -> str:
    """The name of the run or the file that a run is compared with: `run 12`, `main.json`."""
    return f"run {baseline}" if baseline.isdecimal() else baseline.rsplit("/", 1)[-1]


def asked_of(gates: Gates) -> dict[str, Any]:
    """The gates that are not at their default, by name; a baseline that is a run by its number."""
    all_values = {each.name: getattr(gates, each.name) for each in fields(gates)}
    gate_values = {name: value for name, value in all_values.items() if name in GATES_BY_NAME}
    changed_values = {name: value for name, value in gate_values.items() if value != GATES_BY_NAME[name].default}
    if "baseline" in changed_values:
        changed_values["baseline"] = changed_values["baseline"].removeprefix("run ")
    return changed_values
