"""Each option of `evaldesk eval` that says how to run reaches the run; `--check` runs nothing."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest

from evaldesk.cli.eval.options import SECTIONS
from evaldesk.errors import UsageError

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

    from evaldesk.model import RunConfig


def _config(place: CommandFolder, *options: object) -> RunConfig:
    result = place.run("eval", place.agent, place.evalset("words", {"one": "one"}), *options)
    assert result.exit_code == 0, result.output
    with place.store() as store:
        return store.runs.list()[0].config


@pytest.mark.parametrize(
    ("options", "where", "value"),
    [
        (("--turn-timeout", "5"), "limits.turn_timeout_s", 5.0),
        (("--tool-timeout", "6"), "limits.tool_timeout_s", 6.0),
        (("--judge_timeout", "7"), "limits.judge_timeout_s", 7.0),
        (("--timeout", "8"), "limits.trial_timeout_s", 8.0),
        (("--retries", "0"), "model_options.n_retries", 0),
        (("--top-p", "0.5"), "model_options.top_p", 0.5),
        (("--temperature", "0"), "model_options.temperature", 0.0),
        (("--max-tokens", "9"), "model_options.max_tokens", 9),
        (("--max-turns", "3"), "model_options.max_turns", 3),
        (("--base-url", "http://127.0.0.1:9/v1"), "model_options.base_url", "http://127.0.0.1:9/v1"),
        (("--api-key-env", "SOME_KEY"), "model_options.api_key_env", "SOME_KEY"),
        (("--model", "demo/scripted"), "model", "demo/scripted"),
        (("--user-model", "demo/user"), "user.model", "demo/user"),
        (("--recording", "record"), "recording.mode", "record"),
        (("--seed", "12"), "seed", 12),
        (("--note", "mine"), "note", "mine"),
        (("--concurrency", "3"), "concurrency", 3),
        (("--batch_size", "2"), "concurrency", 2),
        (("--count-errors-as-failures",), "errors_are_failures", True),
        (("--pass-threshold", "0.5"), "pass_threshold", 0.5),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "",
)
def test_an_option_reaches_the_run(place: CommandFolder, options: tuple[str, ...], where: str, value: object) -> None:
    config = _config(place, *options)

    assert attrgetter(where)(config) == value


def test_criteria_are_named_one_by_one(place: CommandFolder) -> None:
    config = _config(place, "--criterion", "response_match_score=0.5", "--criterion", "turn_count=3")

    assert {each.metric: each.threshold for each in config.criteria} == {"response_match_score": 0.5, "turn_count": 3}


def test_a_criterion_may_have_options_and_a_label(place: CommandFolder) -> None:
    told = 'tool_used/search={"threshold": 1, "tool": "search", "at_least": 0}'

    config = _config(place, "--criterion", told, "--criterion", "response_exact/loose=0.5")

    assert [(each.metric, each.threshold, each.options) for each in config.criteria] == [
        ("tool_used/search", 1.0, {"tool": "search", "at_least": 0}),
        ("response_exact/loose", 0.5, {}),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("turn_count=1", "turn_count=2"), "turn_count is named twice; give one a label of its own"),
        (("tool_f1=much",), "wanted METRIC=T"),
        (('tool_used={"tool": "a", "tool": "b"}',), 'the key "tool" is there twice'),
    ],
)
def test_a_criterion_that_cannot_be_read_is_wrong_usage(
    place: CommandFolder, given: tuple[str, ...], said: str
) -> None:
    options = [part for each in given for part in ("--criterion", each)]

    result = place.run("eval", place.agent, place.evalset("words", {"one": "one"}), *options)

    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--criterion", "response_mtch_score=1"), "did you mean 'response_match_score'"),
        (("--criterion", 'tool_used={"threshold": 1, "tol": "a"}'), "did you mean 'tool'"),
        (("--criterion", "turn_count=2", "--config-file-path", "test_config.json"), "by one of them"),
    ],
)
def test_what_cannot_be_is_refused(place: CommandFolder, options: tuple[str, ...], said: str) -> None:
    result = place.run("eval", place.agent, place.evalset("words", {"one": "one"}), *options)

    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--retries", "101"), "'--retries': n_retries: 0 to 100, not 101"),
        (("--top-p", "nan"), "'--top-p': top_p: 0 to 1, not nan"),
        (("--n", "2.5"), "'-n': trials of each case: a whole number, not '2.5'"),
        (("--note", "x" * 2001), "the note has 2,001 characters; 2,000 fit"),
        (("--model-extra", "[]"), "extra: an object such as"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_a_value_out_of_range_is_refused_with_its_flag(
    place: CommandFolder, options: tuple[str, ...], said: str
) -> None:
    result = place.run("eval", place.agent, place.evalset("words", {"one": "one"}), *options)

    assert result.exit_code == 2 or isinstance(result.exception, UsageError)
    assert said in " ".join(f"{result.output} {result.exception}".split())


def test_a_check_says_what_would_be_run_and_runs_nothing(place: CommandFolder) -> None:
    path = place.evalset("words", {"one": "one", "two": "two"})
    (place.folder / "test_config.json").unlink()

    result = place.run("eval", place.agent, path, "--n", 3, "--check")
    as_json = place.run("eval", place.agent, path, "--n", 3, "--check", "--json")

    assert result.exit_code == as_json.exit_code == 0
    assert f"2 cases x 3 = 6 trials of {place.agent.name}" in result.output
    assert "not applicable 2 of 2 by tool_trajectory_avg_score: No turn of this case says which tools" in result.output
    assert json.loads(as_json.stdout)["runs"][0]["not_applicable"][0]["case_ids"] == ["case_1", "case_2"]
    with place.store() as store:
        assert store.runs.list() == []


def test_the_help_has_a_section_for_every_option(place: CommandFolder) -> None:
    said = place.run("eval", "--help").output

    assert [title for title in dict.fromkeys(SECTIONS.values()) if f"\n{title}:\n" not in said] == []
    assert said.rstrip().endswith("Show this message and exit.")
