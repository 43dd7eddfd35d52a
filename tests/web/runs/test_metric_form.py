"""Metrics and their options as fields: what is shown, what is typed, what comes back."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import ImmutableMultiDict

from evaldesk.errors import UsageError
from evaldesk.metrics import METRICS, OptionInfo, metric_info, metric_options
from evaldesk.model import Criterion
from evaldesk.pages.criteria.form import read_criteria, write_criteria
from evaldesk.pages.criteria.option_text import read_option, write_option


def metric(page: str, name: str) -> str:
    """The markup of one metric."""
    (found,) = [item for item in re.split(r'<li class="metric"', page) if f'value="{name}"' in item]
    return found.partition("</li>")[0]


def offered(page: str) -> dict[str, list[str]]:
    """The metrics that can be added, under the titles of their groups."""
    groups = re.findall(r'<div role="group" aria-label="([^"]+)"><p>(.*?)</div>', page, re.DOTALL)
    return {title: re.findall(r'name="metric" value="(\w+)"', group) for title, group in groups}


def test_metrics_that_the_cases_can_serve_come_first_and_each_stands_once(pages: Any) -> None:
    page = pages.get("/runs/new?list=1").text

    found = offered(page)
    assert [*found] == ["Your cases can serve these", "Some cases can", "Cannot run here"]
    assert "token_usage_v1" in found["Your cases can serve these"]
    assert "tool_f1" in found["Some cases can"]
    assert "response_number" in found["Cannot run here"]
    names = re.findall(r'name="metric" value="(\w+)"', page)
    assert sorted(names) == sorted(METRICS)


def test_a_metric_that_is_added_stands_among_the_chosen_ones_with_its_options(pages: Any) -> None:
    page = pages.client.post("/runs/new", data=pages.form(metric=["tool_f1"]), headers={"HX-Target": "form#plan"}).text

    assert 'name="tool_f1.args"' in metric(page, "tool_f1")
    assert "tool_f1" not in [name for names in offered(page).values() for name in names]


def test_the_number_of_cases_that_serve_a_metric_stands_beside_it(pages: Any) -> None:
    page = pages.get("/runs/new?list=1").text

    item = next(each for each in page.split("<label") if 'value="tool_f1"' in each)
    assert '<span class="tag">3 of 4</span>' in item


def test_every_option_is_a_field_with_a_label_and_an_explanation(pages: Any) -> None:
    page = pages.post("/runs/new", **pages.form(metric=[*METRICS])).text

    for name in METRICS:
        shown = metric(page, name)
        for option in metric_options(name):
            field = re.escape(f"{name}.{option.name}")
            assert re.search(
                rf'<(input|select|textarea)[^>]* name="{field}"[^>]* aria-describedby="{field}-hint', shown
            )
            assert re.search(rf'<label[^>]*( for="{field}"|><input[^>]* id="{field}")', shown)
            assert f'id="{name}.{option.name}-hint">{option.explanation}' in unescape(shown)
            assert all(f'<option value="{value}"' in shown for value, _ in option.choices)


def test_only_ticked_metrics_have_their_options_on_the_form(pages: Any) -> None:
    fresh = pages.get("/runs/new?list=1").text
    unticked = pages.post("/runs/new", **pages.form(metric=["tool_exact"])).text

    assert 'name="tool_trajectory_avg_score.match_type"' in metric(fresh, "tool_trajectory_avg_score")
    assert "tool_f1." not in metric(fresh, "tool_f1")
    assert 'name="tool_exact.args"' in metric(unticked, "tool_exact")
    assert 'name="response_match_score.threshold"' in metric(unticked, "response_match_score")  # it was ticked before
    assert '<noscript><button class="button" data-size="small" type="submit" formaction="/runs/new"' in fresh


def test_a_metric_that_is_ticked_without_a_script_has_its_usual_threshold_and_options(pages: Any) -> None:
    for name in METRICS:
        typed = ImmutableMultiDict([("filled", "1"), ("metric", name)])

        (criterion,) = read_criteria(typed) or ()

        usual = metric(pages.post("/runs/new", filled="1", metric=name).text, name)
        shown = re.search(r'name="[\w.]+threshold"[^>]* value="([^"]*)"', usual)
        assert criterion.options == {}
        assert shown is not None
        assert shown[1] == ("" if criterion.threshold is None else f"{criterion.threshold:g}")


def test_the_run_form_stays_within_its_budget(pages: Any) -> None:
    page = pages.get("/runs/new")

    assert len(page.content) < 33_000
    assert len(pages.get("/runs/new?list=1").content) < 41_500
    assert 'name="case"' not in page.text  # listed once only some are to run


SAMPLES: dict[str, list[Any]] = {
    "switch": [True],
    "number": [0.5],
    "whole": [3],
    "text": ["$.a[?@.b == 1]"],
    "model": ["openai/big"],
    "long_text": ["Two lines,\n  the second indented."],
    "json": [{"a": [1, None, "x"]}, [True]],
    "list": [["one", "two words"]],
    "modes": [{"search": "ignore", "book": ["city", "date"]}],
    "values": [{"city": ["Paris", "a, b", 3, None], "t/n": [{"x": 1}]}],
    "patterns": [{"q": "a = (?i)b+, c"}],
    "tolerances": [{"price": 0.5, "t/n": 2.0}],
    "keys": [["city", "date"]],
}


@pytest.mark.parametrize("name", list(METRICS))
def test_what_a_form_asks_for_is_what_it_reads(name: str) -> None:
    for option in metric_options(name):
        for value in [*SAMPLES.get(option.kind, []), *(choice for choice, _ in option.choices)]:
            expected = {} if value == option.default else {option.name: value}
            criterion = Criterion(name, 0.6666666666666666, expected)

            typed = ImmutableMultiDict([("filled", "1"), *write_criteria([criterion])])

            assert read_criteria(typed) == (criterion,)


OPTIONS: dict[str, OptionInfo] = {option.kind: option for name in METRICS for option in metric_options(name)}
names = st.text(min_size=1, max_size=6).map(lambda text: re.sub(r"[\s=,]", "", text)).filter(bool)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "json": json_values.filter(lambda value: value is not None),
    "values": st.dictionaries(names, st.lists(json_values, min_size=1, max_size=3), max_size=3),
    "modes": st.dictionaries(
        names, st.sampled_from(["exact", "ignore", "superset", "subset"]) | st.lists(names, min_size=1), max_size=3
    ),
    "tolerances": st.dictionaries(names, st.sampled_from([0.0, 0.5, 2.0, 1e-9, 12345.678]), max_size=3),
}


@given(st.data(), st.sampled_from(sorted(VALUES)))
def test_options_read_back_as_they_were_written(data: st.DataObject, kind: str) -> None:
    option = OPTIONS[kind]
    value = data.draw(VALUES[kind])

    text, keys = write_option(option, value)

    assert read_option(option, text, keys) == value


@given(st.sampled_from(sorted(OPTIONS)), st.text(), st.text(max_size=5))
def test_whatever_is_typed_is_read_or_refused_in_words(kind: str, text: str, keys: str) -> None:
    with contextlib.suppress(UsageError):
        read_option(OPTIONS[kind], text, keys)


def test_an_option_that_has_no_field_is_kept_as_json() -> None:
    criterion = Criterion("safety_v1", 0.5, {"judge_model_options": {"judge_models": ["a", "b"]}})

    typed = ImmutableMultiDict([("filled", "1"), *write_criteria([criterion])])

    assert read_criteria(typed) == (criterion,)


def test_spellings_of_adk_come_back_as_the_form_has_them() -> None:
    criterion = Criterion("tool_trajectory_avg_score", 1.0, {"match_type": "in-order"})

    typed = ImmutableMultiDict([("filled", "1"), *write_criteria([criterion])])

    (read,) = read_criteria(typed) or ()
    assert read.options == {"match_type": "IN_ORDER"}


def test_where_a_function_is_found_never_reaches_a_form() -> None:
    fields = dict(write_criteria([Criterion("mine", 0.5, {"function": "rewards:mine", "root": "/home"})]))

    assert fields == {"metric": "mine", "mine.threshold": "0.5"}


@pytest.mark.parametrize(
    ("name", "field", "text", "message"),
    [
        ("tool_exact", "args_by_tool", "search: ignore", "line 1, 'search: ignore': write it as search = ignore"),
        ("tool_exact", "args_by_tool", "a = exact\nb = ignor", "line 2, 'b = ignor': write one of exact, ignore"),
        ("tool_exact", "args_by_tool", "a = only", "name at least one key"),
        ("tool_exact", "args_by_tool", "a = exact\na = ignore", "a comes twice"),
        ("tool_exact", "any_of", "city = Paris", 'write the values as JSON, texts in quotes: "Paris", "Lyon", 3'),
        ("tool_exact", "tolerances", "price = wide", "a number such as 0.8, not 'wide'"),
        ("tool_exact", "args", "only", "name at least one key"),
        ("tool_used", "at_most", "2.5", "at most: a whole number, not '2.5'"),
        ("tool_used", "at_least", "-1", "at least: 0 or more, not -1"),
        ("response_number", "tolerance", "nan", "a number such as 0.8, not 'nan'"),
        ("response_json_schema", "schema", "{", "schema: Line 1, column 2"),
        ("safety_v1", "other", "[1]", "This must be an object"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, field: str, text: str, message: str) -> None:
    typed = ImmutableMultiDict([("filled", "1"), ("metric", name), (f"{name}.{field}", text)])

    with pytest.raises(UsageError) as caught:
        read_criteria(typed)

    assert message in str(caught.value)
    assert caught.value.field == f"{name}.{field}"


def test_a_refused_form_keeps_every_option(pages: Any) -> None:
    typed = {
        "metric": ["tool_exact", "tool_used", "state_path"],
        "tool_exact.args": "only",
        "tool_exact.args.keys": "city, <date>",
        "tool_exact.any_of": 'city = "Paris",\n',
        "tool_used.tool": "roll <b>",
        "state_path.want": "every",
    }

    answer = pages.post("/runs", **pages.form(**typed))

    assert answer.status_code == 422
    shown = metric(answer.text, "tool_exact")
    assert 'href="#tool_exact.any_of-error">Go to the field</a>' in answer.text
    assert '<option value="only" selected>' in shown
    assert 'value="city, &lt;date&gt;"' in shown
    assert "city = &#34;Paris&#34;,\n</textarea>" in shown
    assert 'id="tool_exact.any_of-error"' in shown
    assert "<details" in shown
    assert " open>" in shown
    assert 'value="roll &lt;b&gt;"' in metric(answer.text, "tool_used")
    assert '<option value="every" selected>' in metric(answer.text, "state_path")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"metric": "tool_used", "tool_used.tool": " "}, "tool_used needs its option &#39;tool&#39;"),
        ({"metric": "response_regex", "response_regex.pattern": "("}, "the pattern is not a regular expression"),
        ({"metric": "safety_v1", "safety_v1.judge_model": "x/y"}, "is not among the allowed judges: openai/big"),
        ({"metric": "safety_v1", "safety_v1.other": '{"function": "os:system"}'}, "cannot name a function"),
        ({"metric": "tool_f1", "tool_f1.other": '{"orders": 1}'}, "tool_f1 has no option &#39;orders&#39;"),
    ],
)
def test_options_are_checked_before_anything_starts(pages: Any, changes: Any, sentence: str) -> None:
    refused = pages.post("/runs", **pages.form(**changes))
    checked = pages.post("/runs/new", **pages.form(check="1", **changes))

    for answer in (refused, checked):
        assert answer.status_code == 422
        assert sentence in answer.text
    assert pages.desk.store.runs.list() == []


def test_check_starts_nothing_and_says_that_nothing_is_wrong(pages: Any) -> None:
    answer = pages.post("/runs/new", **pages.form(check="1"))

    assert answer.status_code == 200
    assert "The form is valid." in answer.text
    assert pages.desk.store.runs.list() == []


@pytest.mark.parametrize("strict", ["", "1"])
def test_beside_the_form_stands_where_a_metric_judges_nothing(pages: Any, strict: str) -> None:
    form = pages.form(
        strict=strict,
        metric=["tool_exact", "final_state_match", "required_outputs", "tool_used"],
        **{"tool_exact.threshold": "1", "final_state_match.threshold": ""},
        **{"required_outputs.outputs": "hello", "tool_used.at_least": "x"},
    )

    answer = pages.client.post("/runs/new", data=form, headers={"HX-Target": "aside#estimate"})

    unread = "Tool used cannot be checked yet: at least: a whole number, not &#39;x&#39;."
    unscored = [
        "1 of 4 cases will be unscored by Tools, exact and cannot pass (open): "
        "No turn of this case says which tools should be called.",
        "4 of 4 cases will be unscored by Final state: The case has no expected final state.",
    ]
    missing = [
        "Tools, exact: asserted in 3 of 4 cases, not applicable elsewhere (open).",
        "Final state: asserted in 0 of 4 cases, not applicable elsewhere.",
    ]
    assert re.findall(r'<li class="small">(.*?)</li>', answer.text) == [unread, *(unscored if strict else ())]
    assert [line for line in missing if line in answer.text] == ([] if strict else missing)


def test_a_form_without_gaps_says_so(pages: Any) -> None:
    form = pages.form(metric=["tool_exact"], cases="selected", case=["greets"])

    assert "Every selected metric can score every case." in pages.post("/runs/new", **form).text


def test_options_are_kept_with_the_run_and_by_the_next_one_like_it(pages: Any) -> None:
    options = {
        "tool_exact.args": "only",
        "tool_exact.args.keys": "sides",
        "tool_exact.tolerances": "sides = 2",
        "tool_exact.scope": "conversation",
    }
    pages.finish(n="1", metric=["tool_exact"], **{"tool_exact.threshold": "1", **options})

    (criterion,) = pages.desk.store.runs.summary(1).config.criteria
    shown = metric(pages.get("/runs/new?like=1").text, "tool_exact")

    assert criterion.options == {"args": ["sides"], "tolerances": {"sides": 2.0}, "scope": "conversation"}
    assert 'name="tool_exact.args.keys"' in shown
    assert 'value="sides"' in shown
    assert "sides = 2</textarea>" in shown
    assert '<option value="conversation" selected>' in shown


def test_the_metrics_that_can_be_added_are_listed_once_somebody_asks_for_them(open_runs: Callable[..., Any]) -> None:
    pages = open_runs(functions={f"rewards_{at}": "rewards:polite" for at in range(500)})

    fresh = pages.get("/runs/new")
    opened = pages.post("/runs/new", **pages.form(list="open")).text
    kept = pages.post("/runs/new", **pages.form(list="1", metric=["tool_f1"])).text

    assert len(fresh.content) < 33_000
    assert not offered(fresh.text)
    assert '<details class="addlist" id="add-criterion" open>' in opened
    assert 'name="list" value="1"' in opened
    assert offered(kept)
    assert '<details class="addlist" id="add-criterion">' in kept


def test_functions_of_the_settings_are_offered_by_their_names(open_runs: Callable[..., Any]) -> None:
    page = open_runs(functions={"polite": "rewards:polite"}).get("/runs/new?list=1").text

    assert '"metric" value="polite">' in page
    assert offered(page)["Your cases can serve these"].count("polite") == 1
    assert "rewards:polite" not in page


def test_a_metric_that_is_gone_is_not_lost_in_silence(pages: Any) -> None:
    page = pages.post("/runs/new", **pages.form(metric=["gone_metric"])).text

    assert "No longer among the metrics here." in metric(page, "gone_metric")


def test_without_an_allowed_judge_the_form_says_how_to_name_one(open_runs: Callable[..., Any]) -> None:
    page = open_runs().get("/runs/new?list=1").text

    item = next(each for each in page.split("<label") if 'value="rubric_score"' in each)
    assert " disabled>" in item
    assert "No model may judge yet: name one under judges in evaldesk.toml." in item


def test_every_metric_has_a_need_that_the_form_knows() -> None:
    assert {metric_info(name).needs for name in METRICS} <= {
        "tool_calls",
        "reference",
        "reference_json",
        "reference_number",
        "intermediate",
        "final_state",
        "nothing",
    }


def test_a_function_with_a_wrong_signature_is_said_in_the_form_before_anything_is_stored(
    open_runs: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rewards_wrong.py").write_text("def wrong(answer):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    pages = open_runs(functions={"mine": "rewards_wrong:wrong"})

    answer = pages.post("/runs", **pages.form(metric=["mine"], **{"mine.threshold": "0.5"}))

    assert answer.status_code == 422
    assert "Cannot detect eval function mode: first parameter is &#39;answer&#39;" in answer.text
    assert pages.desk.store.runs.list() == []
