"""The form of a new run: what it says before anything is spent, and what it gives back."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.options_of_a_run import PRICES, other_value, typed_text

from evaldesk.desk.agents import FoundAgent
from evaldesk.model import AgentDescription, Container
from evaldesk.model.run import ExecutorConfig, option_values, with_options
from evaldesk.model.visibility import UNSEEN_CALLS, Visibility
from evaldesk.run_options import BY_NAME, RUN_OPTIONS, has_door, offered
from evaldesk.settings import Environment


def checked(page: str) -> list[str]:
    """The metrics that are ticked."""
    return re.findall(r'name="metric" value="(\w+)" checked', page)


def test_the_form_begins_with_the_defaults_of_the_field(pages: Any) -> None:
    page = pages.get("/runs/new").text

    assert sorted(checked(page)) == ["response_match_score", "tool_trajectory_avg_score"]
    assert re.search(r'name="tool_trajectory_avg_score.threshold"[^>]*value="1"', page)
    assert re.search(r'name="response_match_score.threshold"[^>]*value="0.8"', page)
    assert "Start 20 trials" in page


def test_it_says_to_which_cases_a_metric_does_not_apply_and_why(shared_pages: Any) -> None:
    page = shared_pages.get("/runs/new?list=1").text

    assert "3 of 4 cases have expected calls" in page
    assert "1 of 4 cases not applicable: open. No turn of this case says which tools" in page


def test_it_says_which_metrics_the_agent_leaves_unscored(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FoundAgent, "visibility", Visibility("none", "none", "none", "part", "none"))

    page = pages.get("/runs/new").text

    assert "3 of 4 cases will be unscored by Tool trajectory and cannot pass (" in page
    assert UNSEEN_CALLS in page


def test_metrics_of_which_less_is_better_inform_until_they_get_a_limit(shared_pages: Any) -> None:
    page = shared_pages.post("/runs/new", filled="1", metric=["token_usage_v1", "tool_f1"]).text

    assert re.search(r'"token_usage_v1.threshold">at most</label>[^>]*value="" placeholder="none"', page)
    assert re.search(r'"tool_f1.threshold">at least</label>', page)


def test_it_says_which_references_can_be_read(shared_pages: Any) -> None:
    page = shared_pages.get("/runs/new?list=1").text

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

    assert "Smallest detectable difference: none with 4 cases × 5 trials; add cases." in page
    assert re.findall(r"(\d+ × \d+)</th><td data-num>(?:<b>)?([\w ]+)<", page) == [
        ("4 × 1", "none"),
        ("4 × 5", "none"),
        ("30 × 5", "22 points"),
        ("60 × 5", "15 points"),
    ]


def test_a_link_that_names_cases_selects_these(shared_pages: Any) -> None:
    page = shared_pages.get(f"/runs/new?evalset={shared_pages.evalset}&case=greets&case=open&n=3").text

    assert re.search(r'name="cases" value="selected" checked', page)
    assert re.findall(r'name="case" value="(\w+)" checked', page) == ["greets", "open"]
    assert "Start 6 trials" in page


def test_a_new_run_may_be_like_an_earlier_one(pages: Any) -> None:
    pages.finish(n="3", metric=["tool_f1"], **{"tool_f1.threshold": "0.5", "tool_f1.args": "ignore"})

    page = pages.get("/runs/new?like=1").text

    assert checked(page) == ["tool_f1"]
    assert re.search(r'name="tool_f1.threshold"[^>]*value="0.5"', page)
    assert '<option value="ignore" selected>' in page
    assert 'from <a href="/runs/1">run 1</a>' in page


def test_a_run_like_one_of_some_cases_has_the_same_cases(pages: Any) -> None:
    pages.finish(cases="selected", case=["greets", "open"])

    page = pages.get("/runs/new?like=1").text

    assert re.findall(r'name="case" value="(\w+)" checked', page) == ["greets", "open"]
    assert "Start 4 trials" in page


@pytest.mark.parametrize("name", ["agent", "evalset"])
def test_what_is_not_there_any_more_is_not_replaced_in_silence(shared_pages: Any, name: str) -> None:
    page = shared_pages.get(f"/runs/new?{name}=gone").text

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

    assert "response_match_score, no threshold" in page


def test_try_one_first_plays_one_trial_of_one_case(pages: Any) -> None:
    pages.finish(**{"try": "1", "n": "9"})

    assert pages.desk.store.runs.summary(1).n_trials == 1


@pytest.mark.parametrize(
    ("changes", "name", "sentence"),
    [
        ({"n": "many"}, "n", "a whole number, not &#39;many&#39;"),
        ({"n": "0"}, "n", "1 to 1000, not 0"),
        ({"timeout_s": "soon"}, "timeout_s", "a number such as 0.8"),
        ({"concurrency": "999"}, "concurrency", "this machine plays at most 500, not 999"),
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
def test_a_wrong_form_comes_back_as_it_was_typed(shared_pages: Any, changes: Any, name: str, sentence: str) -> None:
    runs = shared_pages.desk.store.runs
    before = [run.id for run in runs.list()]

    answer = shared_pages.client.post("/runs", data=shared_pages.form(note="why <b>this</b>", **changes))

    assert answer.status_code == 422
    assert "The run was not started" in answer.text
    assert sentence in answer.text
    assert f'id="{name}-error"' in answer.text
    assert 'value="why &lt;b&gt;this&lt;/b&gt;"' in answer.text
    assert [run.id for run in runs.list()] == before


def test_a_listed_model_is_used_instead_of_the_agents_own(pages: Any) -> None:
    page = pages.get(pages.finish(model="openai/big")).text

    assert "openai/big (instead of demo/dice)" in page


def test_without_an_eval_set_it_says_where_cases_come_from(open_runs: Callable[..., Any]) -> None:
    pages = open_runs()
    for file in pages.desk.evalsets.list():
        file.path.unlink()

    assert "No eval sets yet" in pages.get("/runs/new").text


class Filled(HTMLParser):
    """What a browser would send of the form of a run, as it is shown."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, list[str]] = {}
        self.names: set[str] = set()
        self._select = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        name, value = found.get("name") or "", found.get("value")
        if tag == "select":
            self._select = name
            self.names.add(name)
        elif tag == "option" and "selected" in found:
            self.fields[self._select] = [value] if value is not None else []
            self._select = self._select if value is not None else f"text of {self._select}"
        elif tag == "input" and name:
            self.names.add(name)
            if found.get("type") not in ("checkbox", "radio") or "checked" in found:
                self.fields.setdefault(name, []).append(value or "")

    def handle_data(self, data: str) -> None:
        if self._select.startswith("text of "):
            self.fields[self._select.removeprefix("text of ")] = [data.strip()]
            self._select = ""


def run_with_every_option(pages: Any) -> int:
    """A run that the command line started with no option at its default, stopped before it played."""
    values: dict[str, Any] = {**PRICES, **{option.name: other_value(option) for option in RUN_OPTIONS}}
    summary = pages.desk.store.runs.summary(int(pages.finish()[6:]))
    config = summary.config
    cases = list(pages.desk.store.runs.cases(summary.id))
    values |= {"budget": str(values["n"] * len(cases)), "shard": "1/1"}  # a budget is of all cases
    values["live"] = False  # faults and recordings exclude it
    values["expect_version"] = None  # a page runs the set that it shows
    # A page ticks cases and resumes by number; the set has no tags.
    values |= {"rows": None, "name": None, "fresh": False, "retry_failed": False}
    values |= {"only": "", "without": "tag:quarantine"}
    return int(pages.desk.store.runs.create(with_options(config, {**values, "model": "openai/unlisted"}), cases))


def test_the_form_offers_the_options_of_the_table_and_no_others(shared_pages: Any) -> None:
    names = Filled(shared_pages.get("/runs/new").text).names

    assert {option.name for option in RUN_OPTIONS if option.name in names} == {
        option.name for option in offered("form")
    }


def test_run_again_sends_the_same_configuration_and_shows_what_it_keeps(pages: Any) -> None:
    run_id = run_with_every_option(pages)
    earlier = pages.desk.store.runs.summary(run_id).config

    page = pages.get(f"/runs/new?like={run_id}").text
    answer = pages.client.post("/runs", data=Filled(page).fields)

    assert answer.status_code == 303, answer.text
    again = pages.desk.store.runs.summary(int(answer.headers["location"][6:])).config
    expected = {**option_values(earlier), "note": ""}
    assert option_values(again) == expected
    assert again.model == "openai/unlisted"
    assert f'name="seed" type="number" value="{earlier.seed}"' in page
    assert (
        f"Keep the settings of run {run_id} that this form does not show. Shard: 1/1; Recording of tools: no; " in page
    )
    assert "; Endpoint: http://" in page


def test_running_again_without_the_eval_set_says_that_it_is_gone(pages: Any) -> None:
    first = pages.desk.evalsets.list()[0]
    other = first.path.with_name("other.evalset.json")
    other.write_text(first.path.read_text().replace(pages.evalset, "other"))
    run = pages.finish(n="1")
    fields = Filled(pages.get("/runs/new?like=1").text).fields
    next(file for file in pages.desk.evalsets.list() if file.id == pages.evalset).path.unlink()

    form = pages.get("/runs/new?like=1")
    refused = pages.client.post("/runs", data=fields)

    assert (form.status_code, refused.status_code) == (404, 422)
    assert "The one asked for is not here: deleted, renamed, or in a folder that is not served." in form.text
    assert "The run was not started" in refused.text
    assert pages.get(run).status_code == 200
    assert len(pages.desk.store.runs.list()) == 1


def test_what_is_kept_of_an_earlier_run_may_be_left_out(pages: Any) -> None:
    run_id = run_with_every_option(pages)
    fields = Filled(pages.get(f"/runs/new?like={run_id}").text).fields
    fields |= {"model": ["openai/big"]}
    del fields["like"]

    answer = pages.client.post("/runs", data=fields)

    again = option_values(pages.desk.store.runs.summary(int(answer.headers["location"][6:])).config)
    for option in RUN_OPTIONS:
        assert has_door(option, "form") or again[option.name] == option.default, option.name


def test_a_browser_cannot_name_what_the_form_does_not_offer(pages: Any) -> None:
    sent = {
        name: value
        for name, value in ((option.name, other_value(option)) for option in RUN_OPTIONS)
        if not has_door(BY_NAME[name], "form") and isinstance(value, str)
    }

    address = pages.finish(**sent)

    config = option_values(pages.desk.store.runs.summary(int(address[6:])).config)
    assert sent
    assert {name: config[name] for name in sent} == {name: BY_NAME[name].default for name in sent}


def test_an_earlier_run_that_is_gone_is_said_and_nothing_is_started(pages: Any) -> None:
    answer = pages.client.post("/runs", data=pages.form(like="77"))

    assert answer.status_code in (404, 422)
    assert pages.desk.store.runs.list() == []


NEED_A_PROCESS = ("memory_mib", "processes")
"""Bounds of a trial are refused where trials share players."""


PLAYED = [option for option in offered("form") if option.name != "live"]
"""Options that any agent takes; only one of google-adk has live sessions."""


@pytest.mark.parametrize("option", PLAYED, ids=[option.name for option in PLAYED])
def test_a_field_of_the_form_reaches_the_frozen_configuration(shared_pages: Any, option: Any) -> None:
    value = other_value(option)
    needed = {"isolation": "process"} if option.name in NEED_A_PROCESS else {}

    address = shared_pages.start(**{option.name: typed_text(value) if value is not True else "1", "try": "1"} | needed)

    config = shared_pages.desk.store.runs.summary(int(address[6:])).config
    expected = {"n": 1, "budget": None, "allocate": "even"}.get(option.name, value)  # one trial of one case
    assert option_values(config)[option.name] == expected


def test_live_is_refused_at_its_field_for_an_agent_without_live_sessions(shared_pages: Any) -> None:
    answer = shared_pages.post("/runs", **shared_pages.form(live="1", live_timeout_s="9"))

    assert answer.status_code == 422
    assert "has no live sessions; leave it out" in answer.text
    assert re.search(r'name="live" value="1" checked', answer.text)


@pytest.mark.parametrize("name", NEED_A_PROCESS)
def test_a_bound_of_trials_that_share_players_is_refused_at_its_field(shared_pages: Any, name: str) -> None:
    answer = shared_pages.post("/runs", **shared_pages.form(**{name: "300"}))

    assert answer.status_code == 422
    assert f"{name} bounds a trial with a process of its own; add isolation" in answer.text


def test_a_key_that_is_not_set_is_said_in_the_form_before_anything_is_stored(
    pages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pages.desk.agents.get(pages.agent)
    lacking = AgentDescription(pages.agent, "litellm", model="openai/one", missing=("OPENAI_API_KEY",))
    monkeypatch.setitem(pages.desk.agents._agents, pages.agent, replace(found, description=lacking))

    answer = pages.post("/runs", **pages.form())

    assert answer.status_code == 422
    assert "OPENAI_API_KEY is not set" in answer.text
    assert pages.get("/runs/1").status_code == 404


@pytest.mark.parametrize("changes", [{"evalset": "gone"}, {"cases": "selected"}], ids=["no eval set", "no case"])
def test_a_form_without_cases_offers_no_start_and_says_why(pages: Any, changes: dict[str, str]) -> None:
    page = pages.post("/runs/new", **pages.form(**changes)).text

    start = re.search(r'<button class="button" data-kind="primary" type="submit"([^>]*)>', page)
    assert start
    assert "disabled" in start[1]
    assert "Choose an eval set and at least one case before you start." in page
    assert "Start 0 trials" not in page
    assert "before you start" not in pages.get("/runs/new").text


def test_a_budget_of_the_form_is_spread_shown_and_played(pages: Any) -> None:
    run = pages.finish(n="1", budget="10", allocate="uncertain")
    again = pages.post("/runs/new", **pages.form(n="1", budget="12", allocate="uncertain")).text
    page, like = pages.get(run).text, Filled(pages.get("/runs/new?like=1").text).fields

    summary = pages.desk.store.runs.summary(1)
    assert (summary.n_trials, summary.n_least, summary.n_most) == (10, 2, 3)
    assert "10 trials for 4 cases, 2 to 3 each: spread evenly, since no earlier run of this agent" in page
    assert "4 cases by 2 to 3 trials" in page
    assert "in a case on average" in page
    assert (like["budget"], like["allocate"], like["n"]) == (["10"], ["uncertain"], ["1"])
    assert "Start 12 trials" in again
    assert re.search(r"12 trials for 4 cases, [\d to]+ each: more where the outcome was less certain in run 1\.", again)


@pytest.mark.parametrize(
    ("budget", "n", "said"),
    [
        ("3", "1", "Budget = 3: 4 cases with 1 trial each need 4; say that or more"),
        ("10", "5", "Budget = 10: 4 cases with 5 trials each need 20; say that or more"),
        ("2usd", "1", "Budget = 2usd: no earlier run of these cases tells its costs"),
        ("<b>", "1", "Budget: a number of trials such as 200"),
    ],
)
def test_a_budget_that_cannot_be_spread_says_what_to_type(pages: Any, budget: str, n: str, said: str) -> None:
    page = pages.post("/runs/new", **pages.form(n=n, budget=budget)).text
    refused = pages.post("/runs", **pages.form(n=n, budget=budget))

    assert said in page
    assert refused.status_code == 422
    assert 'id="budget"' in refused.text


def test_the_form_offers_the_names_of_executors_and_takes_no_other(open_runs: Callable[..., Any]) -> None:
    cluster = ExecutorConfig("cluster", "ray", {"address": "10.0.0.4:6379"})
    pages = open_runs(executors={"cluster": cluster})

    page = pages.get("/runs/new").text
    refused = pages.post("/runs", **pages.form(on="10.0.0.4:6379"))

    assert re.search(
        r'<select id="on" name="on">\s*<option value="">Default: this machine</option><option>cluster</option>', page
    )
    assert "10.0.0.4" not in page
    assert refused.status_code == 422
    assert "no executor named" in refused.text
    assert pages.desk.store.runs.list() == []


def test_the_form_offers_the_names_of_environments_and_takes_no_path(open_runs: Callable[..., Any]) -> None:
    known = {"shop": Environment("../shop/.venv"), "box": Environment(container=Container("shop:7"))}
    pages = open_runs(environments=known)

    page = pages.get("/runs/new").text
    refused = [
        pages.post("/runs", **pages.form(environment=each)) for each in (sys.executable, "../shop/.venv", "gone")
    ]
    missing = pages.post("/runs", **pages.form(environment="shop"))

    assert re.search(
        r'<select id="environment" name="environment">\s*<option value="">Default: the agent&#39;s own</option>'
        r"<option>shop</option><option>box</option><option>evaldesk</option>",
        page,
    )
    assert "../shop/.venv" not in page
    assert "shop:7" not in page
    assert [each.status_code for each in (*refused, missing)] == [422] * 4
    assert all("no environment named" in each.text for each in refused)
    assert "there is no interpreter at" in missing.text
    assert pages.desk.store.runs.list() == []
    assert 'name="environment"' not in open_runs(environments={}).get("/runs/new").text


def test_a_workspace_without_executors_has_no_such_field(open_runs: Callable[..., Any]) -> None:
    assert 'name="on"' not in open_runs(executors={}).get("/runs/new").text
