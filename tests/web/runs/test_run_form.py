"""The form of a new run: what it says before anything is spent, and what it gives back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest


def checked(page: str) -> list[str]:
    """The metrics that are ticked."""
    return re.findall(r'name="metric" value="(\w+)" checked', page)


def test_the_form_begins_with_the_defaults_of_the_field(pages: Any) -> None:
    page = pages.get("/runs/new").text

    assert sorted(checked(page)) == ["response_match_score", "tool_trajectory_avg_score"]
    assert re.search(r'name="tool_trajectory_avg_score.threshold"[^>]*value="1"', page)
    assert re.search(r'name="response_match_score.threshold"[^>]*value="0.8"', page)
    assert "Start 20 trials" in page


def test_it_says_which_cases_will_be_unscored_and_why(pages: Any) -> None:
    page = pages.get("/runs/new").text

    assert "3 of 4 cases say which tools to call" in page
    assert "1 of 4 cases would be unscored and could not pass: open. No turn of this case says which tools" in page


def test_metrics_of_which_less_is_better_inform_until_they_get_a_limit(pages: Any) -> None:
    page = pages.get("/runs/new").text

    assert re.search(r'"token_usage_v1.threshold">at most</label>[^>]*value="" placeholder="informs"', page)
    assert re.search(r'"tool_f1.threshold">at least</label>', page)


def test_it_says_which_references_can_be_read(pages: Any) -> None:
    page = pages.get("/runs/new").text

    assert "0 of 4 cases have a number in the reference" in page
    assert "0 of 4 cases have a reference in JSON" in page


def test_a_tolerance_is_a_number_that_a_later_run_keeps(pages: Any) -> None:
    number = {"metric": ["response_number"], "response_number.threshold": "1"}
    pages.finish(n="1", **number, **{"response_number.tolerance": "0.5"})

    page = pages.get("/runs/new?like=1").text
    refused = pages.post("/runs", **pages.form(**number, **{"response_number.tolerance": "x"}))

    assert re.search(r'name="response_number.tolerance"[^>]*value="0.5"', page)
    assert "a number such as 0.8, not &#39;x&#39;" in refused.text


def test_it_says_what_differences_will_be_visible(pages: Any) -> None:
    page = pages.post("/runs/new", **pages.form(n="5")).text

    assert "With 4 cases × 5 trials no difference can be told from chance; add cases." in page
    assert re.findall(r"(\d+ × \d+)</th><td data-num>(?:<b>)?([\w ]+)<", page) == [
        ("4 × 1", "none"),
        ("4 × 5", "none"),
        ("30 × 5", "22 points"),
        ("60 × 5", "15 points"),
    ]


def test_a_link_that_names_cases_selects_these(pages: Any) -> None:
    page = pages.get(f"/runs/new?evalset={pages.evalset}&case=greets&case=open&n=3").text

    assert re.search(r'name="cases" value="selected" checked', page)
    assert re.findall(r'name="case" value="(\w+)" checked', page) == ["greets", "open"]
    assert "Start 6 trials" in page


def test_a_new_run_may_be_like_an_earlier_one(pages: Any) -> None:
    pages.finish(n="3", metric=["tool_f1"], **{"tool_f1.threshold": "0.5", "tool_f1.args": "ignore"})

    page = pages.get("/runs/new?like=1").text

    assert checked(page) == ["tool_f1"]
    assert re.search(r'name="tool_f1.threshold"[^>]*value="0.5"', page)
    assert '<option value="ignore" selected>' in page
    assert 'as in <a href="/runs/1">run 1</a>' in page


def test_a_run_like_one_of_some_cases_has_the_same_cases(pages: Any) -> None:
    pages.finish(cases="selected", case=["greets", "open"])

    page = pages.get("/runs/new?like=1").text

    assert re.findall(r'name="case" value="(\w+)" checked', page) == ["greets", "open"]
    assert "Start 4 trials" in page


@pytest.mark.parametrize("name", ["agent", "evalset"])
def test_what_is_not_there_any_more_is_not_replaced_in_silence(pages: Any, name: str) -> None:
    page = pages.get(f"/runs/new?{name}=gone").text

    assert re.search(rf'id="{name}-error"[^>]*>.*The one asked for is not here: deleted, renamed', page)
    assert page.count("The one asked for is not here") == 1


def test_a_preview_is_one_block_and_starts_nothing(pages: Any) -> None:
    answer = pages.client.post("/runs/new", data=pages.form(n="7"), headers={"HX-Target": "aside#estimate"})

    assert answer.text.lstrip().startswith("<aside")
    assert "Start 28 trials" in answer.text
    assert pages.desk.store.runs.list() == []


def test_options_of_a_metric_are_frozen_with_the_run(pages: Any) -> None:
    pages.finish(**{"tool_trajectory_avg_score.match_type": "ANY_ORDER", "tool_trajectory_avg_score.ignore_args": "1"})

    criterion = pages.desk.store.runs.summary(1).config.criteria[0]
    assert criterion.options == {"match_type": "ANY_ORDER", "ignore_args": True}
    assert "any order, any arguments" in pages.get("/runs/1").text


def test_an_empty_threshold_makes_a_metric_inform_only(pages: Any) -> None:
    page = pages.get(pages.finish(**{"response_match_score.threshold": ""})).text

    assert "response_match_score informs only" in page


def test_try_one_first_plays_one_trial_of_one_case(pages: Any) -> None:
    pages.finish(**{"try": "1", "n": "9"})

    assert pages.desk.store.runs.summary(1).n_trials == 1


@pytest.mark.parametrize(
    ("changes", "name", "sentence"),
    [
        ({"n": "many"}, "n", "a whole number, not &#39;many&#39;"),
        ({"n": "0"}, "n", "1 to 1000, not 0"),
        ({"timeout_s": "soon"}, "timeout_s", "a number such as 0.8"),
        ({"concurrency": "999"}, "concurrency", "1 to 256, not 999"),
        ({"model": "http://127.0.0.1:1/steal"}, "model", "is not among the allowed models: openai/big"),
        ({"cases": "selected"}, "cases", "select at least one case"),
        ({"metric": None}, "metric", "choose at least one metric"),
        ({"metric": "os:system"}, "metric", "no metric named"),
        ({"evalset": "../../etc"}, "evalset", "This eval set is not here"),
        ({"agent": "os:system"}, "agent", "no agent named"),
        (
            {"response_match_score.threshold": "8"},
            "response_match_score.threshold",
            "Did you mean 0.8?",
        ),
    ],
    ids=str,
)
def test_a_wrong_form_comes_back_as_it_was_typed(pages: Any, changes: Any, name: str, sentence: str) -> None:
    answer = pages.client.post("/runs", data=pages.form(note="why <b>this</b>", **changes))

    assert answer.status_code == 422
    assert "The run was not started" in answer.text
    assert sentence in answer.text
    assert f'id="{name}-error"' in answer.text
    assert 'value="why &lt;b&gt;this&lt;/b&gt;"' in answer.text
    assert pages.desk.store.runs.list() == []


def test_a_listed_model_is_used_instead_of_the_agents_own(pages: Any) -> None:
    page = pages.get(pages.finish(model="openai/big")).text

    assert "openai/big (instead of demo/dice)" in page


def test_without_an_eval_set_it_says_where_cases_come_from(open_runs: Callable[..., Any]) -> None:
    pages = open_runs()
    for file in pages.desk.evalsets.list():
        file.path.unlink()

    assert "No eval set to run yet" in pages.get("/runs/new").text
