"""The table of run options and every door that takes from it: none may lack an option without saying why."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import click
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.options_of_a_run import PRICES, config_with, other_value, run_of, together, typed_text

import evaldesk
from evaldesk.cli import cli
from evaldesk.cli.eval.command import evaluate as eval_command
from evaldesk.cli.eval.options import asked_options
from evaldesk.cli.lazy import dashed
from evaldesk.cli.runs.submit import submit
from evaldesk.desk.runs.file import NAMED_ELSEWHERE, OPTIONS, OWN_KEYS, read_run_file
from evaldesk.desk.runs.plan import RunOptions, apply_options, with_defaults
from evaldesk.errors import UsageError
from evaldesk.matching.case_version import version_of_set
from evaldesk.model import AgentRef, Case, EvalSet, Expected, Gates, Limits, ModelOptions, RunConfig, Turn
from evaldesk.model.options import RecordingMode
from evaldesk.model.run import option_value, option_values, with_options
from evaldesk.pages.comparison import config_difference
from evaldesk.pages.runs.facts import options_line, run_facts, run_fingerprint
from evaldesk.run_options import (
    BY_NAME,
    BY_PATH,
    DOORS,
    NOT_OPTIONS,
    OF_ONE_RUN,
    RUN_OPTIONS,
    Asked,
    Door,
    RunOption,
    has_door,
    offered,
)
from evaldesk.settings import Settings, read_settings
from evaldesk.testing.pytest_items import EvalSetCollecting
from evaldesk.testing.pytest_plugin import all_options
from evaldesk.web.forms.run import NOT_AGAIN, like_run, read_options

NUMBERS = [option for option in RUN_OPTIONS if option.kind in ("whole", "number")]
SETTINGS = Settings(Path("/home"), ())
BASE = config_with(**PRICES)
every_option = pytest.mark.parametrize("option", RUN_OPTIONS, ids=[option.name for option in RUN_OPTIONS])


def of_door(door: Door) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("option", offered(door), ids=[option.name for option in offered(door)])


def asked(name: str, value: object) -> Asked:
    """One option, whatever its value is."""
    return cast("Asked", {name: value})


def asked_by(options: RunOptions, settings: Settings = SETTINGS) -> RunConfig:
    """The configuration that is frozen from what was asked."""
    return apply_options(RunConfig(AgentRef("dice", "dice:agent"), "set"), with_defaults(options, settings, ""), ())


def paths_of(owner: object, before: str = "") -> set[str]:
    """The path of every field that is no dataclass with options itself."""
    found: set[str] = set()
    for each in fields(owner):  # type: ignore[arg-type]
        value = getattr(owner, each.name)
        is_group = is_dataclass(value) and not isinstance(value, AgentRef | Gates)
        found |= paths_of(value, f"{before}{each.name}.") if is_group else {before + each.name}
    return found


# The table itself


def test_the_table_has_every_field_of_a_frozen_configuration_or_says_why_not() -> None:
    assert paths_of(RunConfig(AgentRef("a", "a:b"), "set")) == BY_PATH.keys() | NOT_OPTIONS.keys()
    assert BY_PATH.keys() & NOT_OPTIONS.keys() == set()


@every_option
def test_the_default_of_the_table_is_that_of_the_configuration(option: RunOption) -> None:
    assert option_value(RunConfig(AgentRef("a", "a:b"), "set"), option) == option.default


def test_names_paths_and_flags_are_unique() -> None:
    flags = [flag for option in RUN_OPTIONS for whole in option.flags for flag in whole.split("/")]

    assert len(RUN_OPTIONS) == len(BY_NAME) == len(BY_PATH) == len({option.title for option in RUN_OPTIONS})
    assert len(flags) == len(set(flags))
    assert BY_NAME["recording"].choices == get_args(RecordingMode)


@every_option
def test_an_option_is_at_a_door_or_is_left_out_with_a_reason(option: RunOption) -> None:
    at = {
        "cli": bool(option.flags and option.section),
        "pytest": bool(option.flags) and has_door(option, "pytest"),
        "form": bool(option.form),
        "toml": bool(option.toml),
    }

    assert {door: has_door(option, door) for door in DOORS} == at
    assert all(len(reason) > 10 for reason in option.left_out.values())


def test_the_list_for_type_checkers_is_that_of_the_table() -> None:
    assert set(inspect.get_annotations(Asked)) == BY_NAME.keys()


@pytest.mark.parametrize("option", NUMBERS, ids=[option.name for option in NUMBERS])
def test_a_value_out_of_its_range_is_refused_with_field_range_and_value(option: RunOption) -> None:
    values: dict[Any, str] = {option.low - 1: "", option.high * 2 + 1: "", "many": "'many'", True: "True"}
    for value, found in values.items():
        with pytest.raises(UsageError) as refusal:
            RunOptions(**asked(option.name, value))

        wanted = option.range_words if not found else option._expected_words
        assert str(refusal.value) == f"{option.words}: {wanted}, not {found or f'{value:.10g}'}"
        assert refusal.value.field == option.name


def test_a_text_that_is_too_long_and_a_choice_that_is_none_are_refused() -> None:
    with pytest.raises(UsageError, match="the note has 2,001 characters; 2,000 fit"):
        RunOptions(note="x" * 2001)
    with pytest.raises(UsageError, match="recording: one of off, record, replay, auto, not 'on'"):
        RunOptions(recording="on")


def test_scalars_of_numpy_are_numbers() -> None:
    values = asked("n", np.int64(3)) | asked("temperature", np.float32(0.5)) | asked("timeout_s", 5)

    found = RunOptions(**values).overrides

    assert found == {"n": 3, "temperature": 0.5, "timeout_s": 5.0}
    assert {type(value) for value in found.values()} == {int, float}
    assert RunOptions(**asked("strict", np.True_)).overrides == {"strict": True}
    with pytest.raises(UsageError, match="trials of each case: a whole number, not True"):
        RunOptions(**asked("n", np.True_))


@pytest.mark.parametrize("value", [{"x": float("nan")}, {"x": object()}, [1]])
def test_an_object_that_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="extra: an object such as"):
        RunOptions(**asked("extra", value))


def test_a_small_budget_is_read_as_it_is_shown() -> None:
    assert (
        RunOptions(budget="0.00001usd").overrides
        == RunOptions(budget=".000010 USD").overrides
        == {"budget": "0.00001usd"}
    )


def test_shares_that_add_up_to_1_are_taken_whatever_the_last_digit_of_their_sum_is() -> None:
    shares = (("rate_limit", 0.33), ("slow", 0.56), ("timeout", 0.11))

    assert 0.33 + 0.56 + 0.11 > 1  # `sum` corrects this from Python 3.12 on
    assert RunOptions(faults=shares).overrides == {"faults": shares}


def test_a_name_that_is_no_option_is_answered_with_the_nearest() -> None:
    with pytest.raises(TypeError, match="no run option named 'temprature'; did you mean 'temperature'"):
        RunOptions(temprature=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["gates", "case_ids", "like", "user"])
def test_what_a_plan_holds_beside_its_options_is_no_argument_of_evaluate(name: str) -> None:
    with pytest.raises(TypeError, match=f"no run option named '{name}'"):
        evaldesk.evaluate("samples/hello_world", [], **cast("Any", {name: 1}))


# The command line


def _parsed(command: click.Command, *words: str) -> dict[str, Any]:
    with command.make_context("x", list(words), parent=click.Context(cli, token_normalize_func=dashed)) as context:
        return dict(context.params)


def _flags(values: dict[str, Any]) -> list[str]:
    words = []
    for name, value in values.items():
        on, _, off = BY_NAME[name].flags[0].partition("/")
        words += [on if value else off] if isinstance(value, bool) else [on, typed_text(value)]
    return words


@pytest.mark.parametrize("command", [eval_command, submit], ids=["eval", "run submit"])
def test_a_command_has_the_flags_of_the_table(command: click.Command) -> None:
    found = {param.name: {*param.opts, *param.secondary_opts} for param in command.params}

    for option in offered("cli"):
        assert found[option.name] == {flag for whole in option.flags for flag in whole.split("/")}


@of_door("cli")
@pytest.mark.parametrize("command", [eval_command, submit], ids=["eval", "run submit"])
def test_a_flag_reaches_the_frozen_configuration(command: click.Command, option: RunOption) -> None:
    values = together(option)

    found = asked_options(_parsed(command, "file.toml", *_flags(values)))

    assert dict(found) == values
    assert option_value(asked_by(RunOptions(**found)), option) == values[option.name]


def test_a_command_without_flags_asks_for_nothing() -> None:
    assert asked_options(_parsed(eval_command)) == {}


# A run file


RUN_FILE = """
[experiment]
rollout = "calc"
entrypoint = "main.py"
model_path = "openai/gpt-5-mini"
dataset = "sums"
[evaluation]
{evaluation}
[evaldesk]
{options}
[secrets]
required = []
"""


def _toml(value: Any) -> str:
    if isinstance(value, dict | tuple):
        return f"{{ {', '.join(f'{name} = {_toml(each)}' for name, each in dict(value).items())} }}"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _file(tmp_path: Path, evaluation: str = "", options: str = "") -> Path:
    path = tmp_path / "run.toml"
    path.write_text(RUN_FILE.format(evaluation=evaluation, options=options))
    return path


@every_option
def test_a_run_file_asks_for_every_option_or_says_where_it_is(tmp_path: Path, option: RunOption) -> None:
    values = together(option)
    lines = "\n".join(f"{name} = {_toml(value)}" for name, value in values.items())
    if option.name in NAMED_ELSEWHERE or option.run_file:
        with pytest.raises(UsageError, match=rf"evaldesk\.{option.name}: "):
            read_run_file(_file(tmp_path, options=lines))
    if option.run_file:
        lines = f"{option.run_file} = {_toml(values[option.name])}"
        found = read_run_file(_file(tmp_path, evaluation=lines)).run_options
        assert dict(found)[option.name] == values[option.name]
    elif option.name not in NAMED_ELSEWHERE:
        found = read_run_file(_file(tmp_path, options=lines)).run_options
        assert option_value(asked_by(RunOptions(**found)), option) == values[option.name]


def test_a_run_file_has_each_option_once() -> None:
    assert OPTIONS.keys() | {option.name for option in OWN_KEYS.values()} | NAMED_ELSEWHERE.keys() == BY_NAME.keys()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("temperature = 101", "evaldesk.temperature must be 0 to 100, not 101"),
        ("temprature = 1", "evaldesk.temprature: no run option named 'temprature'; did you mean 'temperature'"),
        ("n = 3", "evaldesk.n: [evaluation] has it, as n"),
        ('model = "x"', "evaldesk.model: [experiment] has it, as model_path"),
    ],
)
def test_what_a_run_file_cannot_ask_for_is_said(tmp_path: Path, options: str, said: str) -> None:
    with pytest.raises(UsageError) as refusal:
        read_run_file(_file(tmp_path, options=options))

    assert said in str(refusal.value)


# evaldesk.toml


@of_door("toml")
def test_the_settings_of_a_workspace_reach_the_frozen_configuration(tmp_path: Path, option: RunOption) -> None:
    lines: list[str] = []
    for name, value in together(option).items():
        *table, key = BY_NAME[name].toml.split(".")
        lines += [f"[{'.'.join(table)}]"] if table and not lines else []
        lines.append(f"{key} = {_toml(value)}")
    (tmp_path / "evaldesk.toml").write_text("\n".join(lines))

    settings = read_settings(tmp_path, (), environment={})

    assert option_value(asked_by(RunOptions(), settings), option) == other_value(option)


def test_a_limit_out_of_range_is_refused_where_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text("[limits]\nturn_timeout_s = -1\n")

    with pytest.raises(UsageError, match=r"\[limits\]: turn_timeout_s must be 0.1 to 86400, not -1"):
        read_settings(tmp_path, (), environment={})


# Python


@pytest.mark.parametrize("name", ["evaluate", "evaluate_async"])
def test_python_names_every_option_in_its_signature(name: str) -> None:
    parameters = inspect.signature(getattr(evaldesk, name)).parameters

    assert [name for name in parameters if name in BY_NAME] == [option.name for option in RUN_OPTIONS]
    assert "options" not in parameters


@pytest.mark.server
def test_every_option_of_python_reaches_the_frozen_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evaldesk.toml").write_text(
        f'[executors.other]\nkind = "local"\n[environments.other]\npython = "{sys.executable}"\n'
    )
    (tmp_path / "agent.py").write_text(
        "def agent(message, instruction=''):\n    return message\n"
    )  # an object has no other isolation
    values = {**PRICES, **{option.name: other_value(option) for option in RUN_OPTIONS}}
    values |= {"n": 2, "budget": "2", "concurrency": 2}  # each trial starts a process
    values["shard"] = "1/1"  # a budget is of all cases
    values["retry_failed"] = False  # a new run has no errored trial
    values["live"] = False  # faults and recordings exclude it, and a function has no live sessions
    values["instructions"] = {"agent": "Answer."}
    values["memory_mib"] = 2048  # a fork of the tests has nearly the least limit already, and then starts no thread
    case = Case("one", (Turn("one", Expected(reference="one")),), tags=("smoke",))
    values["expect_version"] = version_of_set(EvalSet("cases", cases=(case,)))[:8]

    result = evaldesk.evaluate(tmp_path, [case], criteria={"response_match_score": 0.8}, **values)

    assert option_values(result.config) == values
    assert result.n_passed == values["n"]


# pytest


class _Given:
    """What pytest was given: options by their names, nothing in the ini file."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def getoption(self, name: str) -> str | None:
        return self.values.get(name)

    def getini(self, name: str) -> str:
        return ""


def test_pytest_has_an_option_for_each_of_the_table() -> None:
    names = {name for name, *_ in all_options()}

    assert names >= {option.flags[0].removeprefix("--") for option in offered("pytest")}
    assert len(names) == len(all_options())


@of_door("pytest")
def test_an_option_of_pytest_reaches_the_frozen_configuration(option: RunOption) -> None:
    values = together(option)
    words = [*_flags(values), *(["1"] if option.kind == "switch" else [])]
    given = {f"--evaldesk-{name.removeprefix('--')}": text for name, text in zip(words[::2], words[1::2], strict=True)}
    collecting = object.__new__(EvalSetCollecting)
    collecting._config = _Given(given)  # type: ignore[assignment]

    assert option_value(asked_by(RunOptions(**collecting._options_of_ini())), option) == values[option.name]


# Run again


@every_option
def test_run_again_has_every_option_of_the_earlier_run(option: RunOption) -> None:
    config = with_options(BASE, {option.name: other_value(option)})

    again = asked_by(read_options(like_run(run_of(config)), config))

    kept = with_options(config, {name: BY_NAME[name].default for name in (*NOT_AGAIN, *OF_ONE_RUN)})
    assert option_values(again) == option_values(kept)


def test_run_again_takes_nothing_from_settings_that_came_later() -> None:
    later = Settings(
        Path("/home"),
        (),
        model_options=ModelOptions("http://127.0.0.1:1/v1", temperature=1.0, extra={"top_k": 1}),
        limits=Limits(turn_timeout_s=1.0),
    )

    again = asked_by(read_options(like_run(run_of(BASE)), BASE), later)

    assert option_values(again) == option_values(BASE)


def test_an_option_that_is_cleared_in_the_form_is_open_again() -> None:
    config = with_options(BASE, {"temperature": 0.2})
    typed = like_run(run_of(config))

    again = asked_by(read_options(type(typed)({**typed, "temperature": ""}), config))

    assert again.model_options.temperature is None


# Pages, JSON and fingerprint


@every_option
def test_a_comparison_names_exactly_the_option_that_differs(option: RunOption) -> None:
    other = with_options(BASE, {option.name: other_value(option)})

    found = config_difference(run_of(BASE), run_of(other, 2))

    assert [line.name for line in found.lines] == ([] if option.name == "note" else [option.title])
    assert option.title not in found.same
    assert (run_fingerprint(BASE) != run_fingerprint(other)) is option.is_measured


def test_two_models_differ_as_a_whole_and_not_by_their_words() -> None:
    runs = [
        run_of(replace(BASE, agent_model="demo/dice (scripted)", model=model), at)
        for at, model in enumerate([None, "demo/other"], 1)
    ]

    (line,) = (each for each in config_difference(*runs).lines if each.name == "Model")

    assert [(each.kind, each.text) for each in line.diff.expected] == [("del", "demo/dice (scripted)")]
    assert [(each.kind, each.text) for each in line.diff.actual] == [
        ("ins", "demo/other (instead of demo/dice (scripted))")
    ]


@given(st.sets(st.sampled_from([option.name for option in RUN_OPTIONS if option.name != "note"])))
def test_a_comparison_names_all_options_that_differ_and_no_others(names: set[str]) -> None:
    options = [BY_NAME[name] for name in names]
    other = with_options(BASE, {option.name: other_value(option) for option in options})

    found = config_difference(run_of(BASE), run_of(other, 2))

    assert {line.name for line in found.lines} == {option.title for option in options}
    assert (run_fingerprint(BASE) == run_fingerprint(other)) is not any(option.is_measured for option in options)


@every_option
def test_the_page_of_a_run_tells_every_option_that_is_not_at_its_default(option: RunOption) -> None:
    value = other_value(option)
    run = run_of(with_options(BASE, {option.name: value}))

    told = {fact.name: fact.text or fact.code for fact in run_facts(run)}

    assert told[option.title] == option.value_words(value)
    assert option.name == "note" or f"{option.name}=" in options_line(run.config)


def test_the_fingerprint_is_the_same_in_another_folder_and_for_another_sample() -> None:
    here = config_with(n=3, seed=1, concurrency=2, note="a")
    there = with_options(
        RunConfig(AgentRef("dice", "dice:agent", "/elsewhere", "/elsewhere/dice"), "set"), {"n": 9, "seed": 2}
    )

    assert run_fingerprint(here) == run_fingerprint(there)


def test_the_fingerprint_is_another_where_the_files_of_eval_functions_are() -> None:
    assert run_fingerprint(BASE) != run_fingerprint(replace(BASE, functions_version="0123456789ab"))
