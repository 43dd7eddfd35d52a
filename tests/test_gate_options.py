"""The one table of gates, and every door that takes from it: commands, `evaluate()`, pytest and the form."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import click
import pytest

import evaldesk
from evaldesk import evaluate
from evaldesk.cli.eval.command import evaluate as eval_command
from evaldesk.cli.gate import explain
from evaldesk.cli.runs.submit import submit
from evaldesk.desk.runs.gates.forecasts import EXPLAINED
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.gate_options import GATE_OPTIONS, GATES_BY_NAME, NOT_ASKED, AskedGates, asked_of, gates_of
from evaldesk.model import Case, Expected, Gates, Turn
from evaldesk.run_options import RunOption, has_door
from evaldesk.testing.pytest_plugin import OPTIONS


def test_the_table_of_gates_has_every_field_of_the_gates_or_says_why_not() -> None:
    names = {field.name for field in dataclasses.fields(Gates)}

    assert names == set(GATES_BY_NAME) | set(NOT_ASKED)
    assert set(inspect.get_annotations(AskedGates)) == set(GATES_BY_NAME)
    for option in GATE_OPTIONS:
        assert option.path == f"gates.{option.name}"
        assert getattr(Gates(), option.name) == option.default
        assert all(len(reason) > 10 for reason in option.left_out.values())


@pytest.mark.parametrize("command", [eval_command, submit, explain], ids=["eval", "run submit", "gate explain"])
def test_a_command_calls_a_gate_as_the_table_does(command: click.Command) -> None:
    flags = {param.name: param.opts for param in command.params}

    for name in EXPLAINED if command is explain else GATES_BY_NAME:
        assert flags[name] == list(GATES_BY_NAME[name].flags)


def test_pytest_has_an_option_for_each_gate_or_says_why_not() -> None:
    names = {name.replace("-", "_") for name, *_ in OPTIONS}

    for option in GATE_OPTIONS:
        assert (option.name in names) == has_door(option, "pytest"), option.name


@pytest.mark.parametrize("function", [evaldesk.evaluate, evaldesk.evaluate_async], ids=["evaluate", "evaluate_async"])
def test_python_names_every_gate_in_its_signature(function: Any) -> None:
    found = inspect.signature(function).parameters

    for option in GATE_OPTIONS:
        assert found[option.name].default == option.default


@pytest.mark.parametrize("option", GATE_OPTIONS, ids=lambda option: option.name)
def test_a_gate_is_read_as_it_is_shown(option: RunOption) -> None:
    value = {"pairs": ((1, 0.5), (5, 0.9)), "passes": (2, 4), "text": "12", "whole": 3, "number": 0.5}.get(option.kind)
    value = option.choices[-1] if option.kind == "choice" else value

    assert option.read(option.value_words(value).removeprefix("$")) == value
    assert option.check(value) == value


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("pairs", "5"),
        ("pairs", "0=0.5"),
        ("pairs", "5=1.5"),
        ("pairs", "5=nan"),
        ("pairs", "a=b"),
        ("pairs", "5=0.5=3"),
        ("pairs", "5=0.5,5=0.9"),
        ("passes", "5/3"),
        ("passes", "0/3"),
        ("passes", "1/101"),
        ("passes", "1/2/3"),
    ],
)
def test_a_pair_that_cannot_be_is_refused_with_an_example(kind: str, given: str) -> None:
    option = next(each for each in GATE_OPTIONS if each.kind == kind)

    with pytest.raises(UsageError, match="such as"):
        option.read(given)


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"max_regressions": 0}, "baseline", "max_regressions= needs baseline="),
        ({"regression_rule": "confirm"}, "baseline", "regression_rule= needs baseline="),
        ({"baseline": "12", "confirm": (3, 5)}, "confirm", "confirm= needs regression_rule= confirm"),
        ({"pass_hat": {8: 0.5}}, "pass_hat", "asks for 8 trials of each case"),
        ({"min_pass_rate": 2}, "min_pass_rate", "0 to 1"),
        ({"undecided": "maybe"}, "undecided", "one of pass, fail, neutral"),
    ],
)
def test_gates_that_do_not_go_together_name_the_field_and_the_door(
    asked: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(UsageError) as refused:
        gates_of(asked, n=5, name_of=lambda option: f"{option.name}=")

    assert refused.value.field == field
    assert words in str(refused.value)


def test_a_gate_that_is_none_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="min_pass_rate"):
        gates_of({"min_passrate": 1}, n=1, name_of=lambda option: option.name)


@pytest.mark.parametrize("option", GATE_OPTIONS, ids=lambda option: option.name)
def test_what_was_asked_is_found_again_in_the_gates(option: RunOption) -> None:
    value = {"pairs": ((1, 0.5),), "passes": (2, 4), "text": "12", "whole": 3, "number": 0.5}.get(option.kind)
    beside = {"baseline": "7", "regression_rule": "confirm", "max_regressions": 1}
    value = "confirm" if option.name == "regression_rule" else value or option.choices[-1]
    asked = {**beside, option.name: value}

    assert asked_of(gates_of(asked, n=5, name_of=lambda each: each.name)) == asked


CASES = [Case(f"c{at}", (Turn("hello", expected=Expected(reference="hello")),)) for at in range(3)]


def echo(message: str) -> str:
    """Says what it hears."""
    return message


def broken(message: str) -> str:
    """Says nothing that was asked."""
    return "no idea"


def test_evaluate_judges_by_the_gates_that_it_is_given(tmp_path: Path) -> None:
    first = evaluate(echo, CASES, workspace=tmp_path, n=2)
    worse = evaluate(broken, CASES, workspace=tmp_path, n=2, min_pass_rate=0.9, pass_hat={2: 0.5})
    fine = evaluate(broken, CASES, workspace=tmp_path, n=2, min_pass_rate=0)

    assert first.conclusion.outcome == "passed"
    assert worse.conclusion.outcome == "failed"
    assert [gate.name for gate in worse.conclusion.gates] == ["--min-pass-rate", "--pass-hat 2"]
    assert fine.conclusion.outcome == "passed"


@pytest.mark.parametrize(("value", "kept"), [("3/5", (3, 5)), ("5", (0, 5)), (5, (0, 5)), ((3, 5), (3, 5))], ids=str)
def test_passes_may_be_given_as_they_are_typed(value: object, kept: tuple[int, int]) -> None:
    assert GATES_BY_NAME["confirm"].check(value) == kept


@pytest.mark.parametrize("value", ["6/5", (6, 5)], ids=str)
def test_passes_that_cannot_be_are_refused_as_they_are_typed(value: object) -> None:
    with pytest.raises(UsageError, match="not '6/5'"):
        GATES_BY_NAME["confirm"].check(value)
    with pytest.raises(UsageError, match="not '6/5'"):
        GATES_BY_NAME["confirm"].read("6/5")


@pytest.mark.parametrize("rule", ["any", "confirm"])
def test_evaluate_compares_with_an_earlier_run(tmp_path: Path, rule: str) -> None:
    first = evaluate(echo, CASES, workspace=tmp_path, n=2)

    same = evaluate(echo, CASES, workspace=tmp_path, n=2, baseline=first.id, regression_rule=rule)
    worse = evaluate(broken, CASES, workspace=tmp_path, n=2, baseline=first.id, regression_rule=rule)
    allowed = evaluate(broken, CASES[:2], workspace=tmp_path, n=2, baseline=first.id, max_regressions=1)

    assert [each.conclusion.outcome for each in (same, worse, allowed)] == ["passed", "failed", "failed"]
    assert worse.change is not None
    assert [case.name for case in worse.change.regressions] == ["c0", "c1", "c2"]
    fresh = [len(case.after.confirming) for case in worse.change.cases if case.after]
    assert fresh == [5 if rule == "confirm" else 0] * 3


def test_evaluate_needs_a_workspace_for_the_number_of_a_run() -> None:
    with pytest.raises(UsageError, match="say workspace="):
        evaluate(echo, CASES, baseline=1)


def test_evaluate_refuses_a_gate_that_can_never_hold() -> None:
    with pytest.raises(UsageError, match="min_scored= 7 can never hold"):
        evaluate(echo, CASES, min_scored=7)


def test_a_name_that_is_no_gate_is_answered_with_the_nearest_gate() -> None:
    with pytest.raises(TypeError, match="did you mean 'min_pass_rate'"):
        evaluate(echo, CASES, mni_pass_rate=1)  # type: ignore[call-overload]


def test_a_run_of_python_stops_when_it_is_decided() -> None:
    cases = [Case(f"c{index}", (Turn("hello", Expected(reference="hello")),)) for index in range(4)]
    found = evaluate(
        lambda message: message,
        cases,
        criteria={"response_match_score": 0.8},
        n=10,
        concurrency=1,
        min_pass_rate=0.5,
        stop_when_decided="exact",
    )

    assert found.stop is not None
    assert (found.stop.n_blocks, found.stop.n_trials) == (5, 20)
    assert len(found.trials) == 20
    assert found.conclusion.is_passed
    assert [point.k for point in found.curve] == [1, 2, 3, 4, 5]
    assert found.pass_at(6) is None
