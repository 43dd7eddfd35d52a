"""The gates in the form of a new run: every gate of the table, how it behaves, and that a run is judged by it."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from evaldesk.desk.runs.gates.forecasts import assumed_subject, gate_forecasts, history_subject
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATE_OPTIONS
from evaldesk.model import Gates
from evaldesk.model.conclusion import Undecided
from evaldesk.model.evalset import QUARANTINE
from evaldesk.run_options import RunOption, has_door
from evaldesk.wording.forecasts import forecast_sentence, passes_words

TYPED = {
    "min_pass_rate": ("0.5", 0.5),
    "min_case_pass_rate": ("0.25", 0.25),
    "pass_at": ("1=0.5, 2=0.9", ((1, 0.5), (2, 0.9))),
    "pass_hat": ("2=0.1", ((2, 0.1),)),
    "min_scored": ("3", 3),
    "max_unscored_rate": ("0.75", 0.75),
    "max_error_rate": ("0.5", 0.5),
    "max_cost": ("2.5", 2.5),
    "baseline": ("1", "run 1"),
    "max_regressions": ("2", 2),
    "margin": ("0.05", 0.05),
    "regression_rule": ("confirm", "confirm"),
    "confirm": ("2/4", (2, 4)),
    "new_cases": ("inform", "inform"),
    "undecided": ("neutral", "neutral"),
    "stop_when_decided": ("exact", "exact"),
}
"""What is typed for each gate, and its value in the run."""
WITH = {
    "max_regressions": {"baseline": "1"},
    "margin": {"baseline": "1"},
    "regression_rule": {"baseline": "1"},
    "confirm": {"baseline": "1", "regression_rule": "confirm"},
    "new_cases": {"baseline": "1"},
}
"""What a gate needs beside it."""
TOLERANT = {"max_unscored_rate": "1", "max_error_rate": "1"}
FORM_GATES = [option for option in GATE_OPTIONS if has_door(option, "form")]
PLAYED = [option for option in FORM_GATES if option.name != "max_cost"]
of_gates = pytest.mark.parametrize("option", FORM_GATES, ids=lambda option: option.name)
of_played = pytest.mark.parametrize("option", PLAYED, ids=lambda option: option.name)


def played(pages: Any, **typed: str) -> int:
    """The number of a run of the form that has ended."""
    return int(pages.finish(**typed).rpartition("/")[2])


def shown(page: str) -> str:
    """The text of a page."""
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", page)).split())


@of_played
def test_each_gate_is_typed_kept_by_the_run_and_typed_again(shared_pages: Any, option: RunOption) -> None:
    if not shared_pages.desk.store.runs.list():
        shared_pages.finish(n="2")  # run 1, the baseline
    text, value = TYPED[option.name]

    run_id = played(shared_pages, n="2", **{**WITH.get(option.name, {}), option.name: text})
    again = shared_pages.get(f"/runs/new?like={run_id}").text

    assert getattr(shared_pages.desk.stored_runs.summary(run_id).config.gates, option.name) == value
    if option.kind == "choice" or option.name == "baseline":
        assert re.search(rf'<select id="{option.name}".*?<option[^>]* selected>(run )?{text}', again, re.S)
    else:
        assert re.search(rf'name="{option.name}"[^>]* value="{text}"', again)


@of_gates
def test_a_gate_that_cannot_be_stands_beside_its_field(shared_pages: Any, option: RunOption) -> None:
    answer = shared_pages.post("/runs", **shared_pages.form(**{option.name: "half a dozen"}))

    assert answer.status_code == 422
    assert f'id="{option.name}-error"' in answer.text


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"max_regressions": "0"}, "baseline", "Maximum regressed cases needs Compared with run"),
        ({"pass_hat": "8=0.5", "n": "5"}, "pass_hat", "asks for 8 trials of each case; say Trials per case 8 or more"),
        ({"min_scored": "999"}, "min_scored", "Minimum scored trials 999 can never hold"),
        ({"confirm": "3/5"}, "confirm", "which plays the fresh trials"),
        ({"baseline": "77"}, "baseline", "77"),
        ({"baseline": "../../etc/passwd"}, "baseline", "choose a run by its number"),
    ],
)
def test_gates_that_do_not_go_together_are_refused_in_the_words_of_the_form(
    shared_pages: Any, typed: dict[str, str], field: str, words: str
) -> None:
    answer = shared_pages.post("/runs", **shared_pages.form(**typed))

    assert answer.status_code == 422
    assert words in shown(answer.text)
    assert f'id="{field}-error"' in answer.text


@pytest.mark.parametrize(
    ("typed", "gates"),
    [
        ({}, Gates()),
        ({"min_pass_rate": "0.9"}, Gates(min_pass_rate=0.9)),
        ({"pass_hat": "5=0.5"}, Gates(pass_hat=((5, 0.5),))),
    ],
)
def test_it_says_how_often_a_gate_fails_though_nothing_changed(pages: Any, typed: dict[str, str], gates: Gates) -> None:
    page = shown(pages.post("/runs/new", **pages.form(n="5", **typed)).text)

    (found,) = gate_forecasts(gates, assumed_subject(0.9, [5] * 4, 1.0))
    assert found.sought is not None
    assert forecast_sentence(found) in page
    assert f"An agent that is 15 points worse passes in {passes_words(*found.sought)}." in page
    assert "the sentences above assume a pass rate of 90 % in every case" in page


def test_the_chances_are_those_of_the_last_run_where_there_is_one(pages: Any) -> None:
    run_id = played(pages, n="2")

    page = pages.get(f"/runs/new?like={run_id}").text

    assert f'rest on all runs of the agent as it was in <a href="/runs/{run_id}">' in page
    assert "this agent is below the bar" in shown(page) or "of 8 passed" in shown(page)


@pytest.mark.parametrize("has_run", [False, True])
def test_a_case_in_quarantine_is_in_no_forecast(pages: Any, *, has_run: bool) -> None:
    run_id = played(pages, n="2") if has_run else 0
    path = pages.desk.evalsets.read(pages.evalset)[2]
    content = json.loads(path.read_text())
    content["eval_cases"][0]["tags"] = [QUARANTINE]
    path.write_text(json.dumps(content))

    page = shown(pages.post("/runs/new", **pages.form(n="5", min_pass_rate="0.9")).text)

    subject = assumed_subject(0.9, [5] * 3, 1.0)
    if has_run:
        runs = pages.desk.stored_runs
        by_history = history_subject(runs.history(runs.summary(run_id)).of((1, 2, 3)), [5] * 3, 1.0)
        assert by_history
        subject = by_history
    (forecast,) = gate_forecasts(Gates(min_pass_rate=0.9), subject, is_searched=False)
    assert forecast_sentence(forecast) in page


def put_in_quarantine(pages: Any, *places: int) -> None:
    path = pages.desk.evalsets.read(pages.evalset)[2]
    content = json.loads(path.read_text())
    for place in places:
        content["eval_cases"][place]["tags"] = [QUARANTINE]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("is_ticked", [True, False])
def test_the_tick_of_cases_in_quarantine_is_obeyed_and_kept_for_a_run_again(pages: Any, *, is_ticked: bool) -> None:
    put_in_quarantine(pages, 0, 2)
    tick = {"quarantine": "1"} | ({"in_no_gate": "1"} if is_ticked else {})

    first = pages.get(f"/runs/new?evalset={pages.evalset}").text
    run_id = played(pages, n="1", **tick)
    again = pages.get(f"/runs/new?like={run_id}").text

    words = "2 cases in quarantine are in no gate"
    assert words in shown(first)
    assert re.search(r'name="in_no_gate" value="1" checked', first)
    assert bool(re.search(r'name="in_no_gate" value="1" checked', again)) == is_ticked
    assert words in shown(again)
    left_out = pages.desk.stored_runs.summary(run_id).config.left_out
    assert len(left_out) == (2 if is_ticked else 0)


def test_a_set_without_cases_in_quarantine_has_no_tick(pages: Any) -> None:
    assert "in_no_gate" not in pages.get(f"/runs/new?evalset={pages.evalset}").text


def test_a_case_with_its_own_trials_is_in_cost_and_forecast(pages: Any) -> None:
    path = pages.desk.evalsets.read(pages.evalset)[2]
    content = json.loads(path.read_text())
    content["eval_cases"][1]["trials"] = 9
    path.write_text(json.dumps(content))

    page = shown(pages.post("/runs/new", **pages.form(n="5", min_pass_rate="0.9")).text)

    (forecast,) = gate_forecasts(Gates(min_pass_rate=0.9), assumed_subject(0.9, [5, 9, 5, 5], 1.0), is_searched=False)
    assert "1 of 4 cases names its own number of trials: 9." in page
    assert "24 trials" in page
    assert forecast_sentence(forecast) in page


def test_a_better_gate_is_taken_into_the_fields_by_its_button(pages: Any) -> None:
    pages.finish(n="1")
    typed = pages.form(n="5", baseline="1", max_regressions="0")
    page = pages.post("/runs/new", **typed, search="1").text
    assert "Too little history to propose a gate" in page
    confirm = "--n 2 --max-regressions 0 --regression-rule confirm"

    used = pages.post("/runs/new", **typed, use=confirm).text

    assert re.search(r'<select id="regression_rule".*?<option selected>confirm', used, re.S)
    assert re.search(r'<select id="baseline".*?<option value="1" selected>', used, re.S)


def test_a_button_takes_over_nothing_but_gates(pages: Any) -> None:
    typed = pages.form(n="5")

    for use in ("--agent other", "--base-url http://169.254.169.254", "'", "--n", "--n 7 --workspace /"):
        page = pages.post("/runs/new", **typed, use=use).text
        assert "169.254" not in page
        assert re.search(rf'name="n"[^>]* value="{"7" if "7" in use else "5"}"', page)


def test_a_limit_of_cost_is_refused_where_the_price_is_not_known(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*checked: object) -> None:
        raise UsageError(f"{checked[-1]}: the price of 'nobody/knows' is not known", field="max_cost")

    monkeypatch.setattr("evaldesk.desk.runs.model_checks.check_prices", refuse)

    answer = pages.post("/runs", **pages.form(max_cost="2.5"))

    assert answer.status_code == 422
    assert "Maximum cost, US dollars: " in shown(answer.text)
    assert 'id="max_cost-error"' in answer.text


def test_a_run_of_the_form_is_judged_by_its_gates(pages: Any) -> None:
    strict = played(pages, n="1", min_pass_rate="1", max_unscored_rate="1", max_error_rate="1")
    lenient = played(pages, n="1", min_pass_rate="0", max_unscored_rate="1", max_error_rate="1")

    outcomes = [pages.desk.stored_runs.conclusion(pages.desk.stored_runs.summary(each)) for each in (strict, lenient)]
    page = shown(pages.get(f"/runs/{strict}").text)

    assert [each.outcome for each in outcomes] == ["failed", "passed"]
    assert "pass rate" in page
    assert outcomes[0].gates[0].sentence[1:] in page


def test_one_trial_to_try_has_no_gates(pages: Any) -> None:
    run_id = played(pages, min_scored="4", **{"try": "1"})

    assert pages.desk.stored_runs.summary(run_id).config.gates == Gates()


def test_a_better_gate_with_trials_of_its_own_is_used_in_place_of_a_budget(pages: Any) -> None:
    typed = pages.form(n="2", budget="20", allocate="uncertain", min_pass_rate="0.9")

    page = pages.post("/runs/new", **typed, use="--n 9 --min-pass-rate 0.6").text
    other = pages.post("/runs/new", **typed, use="--min-pass-rate 0.6").text

    assert "Start 36 trials" in page
    assert 'name="budget" value=""' in page
    assert "Start 20 trials" in other
    assert 'name="budget" value="20"' in other


def test_a_decided_run_says_why_once_and_lists_its_gates(pages: Any) -> None:
    run_id = played(pages, n="5", min_pass_rate="0.95", stop_when_decided="exact", **TOLERANT)

    page = shown(pages.get(f"/runs/{run_id}").text)

    assert "Gates Minimum pass rate 0.95; " in page
    assert "; stop when decided exact" in page
    assert "any more.." not in page
    assert "Pass rate: pass rate" not in page
    assert page.count("ass rate cannot reach 0.95 any more") == 1
    assert re.search(r"Stopped when decided, after \d+ of 20 trials\. The trials that are left could not", page)


def test_a_decided_run_that_passed_says_why_once(pages: Any) -> None:
    run_id = played(pages, n="5", min_pass_rate="0.01", stop_when_decided="exact", **TOLERANT)

    page = shown(pages.get(f"/runs/{run_id}").text)

    assert page.count("pass rate stays at least 0.01") == 1


@pytest.mark.parametrize(("undecided", "is_red"), [("fail", True), ("neutral", False), ("pass", False)])
def test_the_chances_are_of_what_a_number_too_close_to_its_bar_counts_as(
    pages: Any, undecided: Undecided, is_red: bool
) -> None:
    answer = pages.post("/runs/new", **pages.form(n="5", min_pass_rate="0.9", undecided=undecided)).text
    page = shown(answer)

    (found,) = gate_forecasts(Gates(min_pass_rate=0.9, undecided=undecided), assumed_subject(0.9, [5] * 4, 1.0))
    assert forecast_sentence(found) in page
    assert ("It is too close to tell in" in page) == (undecided == "neutral")
    assert ("Too close to tell" in page) == (undecided == "neutral")
    assert bool(re.search(r'class="note" data-kind="failed">.{0,200}nothing changes', answer, re.S)) == is_red


def test_a_stop_says_after_how_many_trials_it_comes(pages: Any) -> None:
    typed = pages.form(n="5", min_pass_rate="0.5", stop_when_decided="likely")

    one = shown(pages.post("/runs/new", **typed).text)
    two = shown(pages.post("/runs/new", **typed, min_case_pass_rate="0.2").text)

    assert re.search(
        r"It stops after about \d+ trials if nothing changes, and after about \d+ trials with an agent", one
    )
    assert "At most one likely stop in 20 is wrong." in two
