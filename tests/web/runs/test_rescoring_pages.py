"""A finished run scored again from its page: the form, the new run, and the way back."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

import pytest

ROUGE = {"filled": "1", "metric": "response_match_score", "response_match_score.threshold": "0.1"}


def test_the_form_shows_the_criteria_of_the_run(pages: Any) -> None:
    source = pages.finish()

    text = pages.get(f"{source}/scorings/new").text

    assert f'href="{source}/scorings/new"' in pages.get(source).text
    ticked = re.findall(r'name="metric" value="([^"]*)" checked', text)
    assert ticked == ["tool_trajectory_avg_score", "response_match_score"]
    assert 'name="response_match_score.threshold" type="number" step="any" value="0.8"' in text
    assert "Re-score 8 trials" in text


def test_the_new_scores_are_a_run_beside_the_old_one(pages: Any) -> None:
    source = pages.finish(case=["greets", "misses"], cases="selected")

    answer = pages.post(f"{source}/scorings", **ROUGE)

    again = answer.headers["location"]
    assert (answer.status_code, again != source) == (303, True)
    assert "event: done" in pages.get(f"{again}/events").text
    for shown, other in ((source, again), (again, source)):
        text = pages.get(shown).text
        assert f'<a href="{shown}" aria-current="page">' in text
        assert f'<a href="{other}">' in text
        assert re.findall(r'data-label="passed">([^<]*)<', text) == ["2 of 4", "2 of 4"]
        assert "Tool trajectory at least 1.00, Response match at least 0.80" in text
        assert f'href="/compare?a={source[6:]}&amp;b={again[6:]}"' in text
    assert f"re-score of run {source[6:]}" in pages.get("/runs").text
    assert "Both runs score the same stored trials" in pages.get(f"/table?runs={source[6:]},{again[6:]}").text
    assert "tool_trajectory_avg_score" in _scores(pages.get(source).text)
    assert "tool_trajectory_avg_score" not in _scores(pages.get(again).text)


def test_a_trial_shows_what_its_other_scorings_said(pages: Any) -> None:
    source = pages.finish(case=["misses"], cases="selected", n="1")
    again = pages.post(f"{source}/scorings", **(ROUGE | {"response_match_score.threshold": "0"})).headers["location"]
    pages.get(f"{again}/events")

    played, scored = (pages.get(f"{run}/cases/0/trials/0").text for run in (source, again))

    assert re.search(rf'<a href="{source}/cases/0/trials/0">Run \d+</a>, original scores .*>failed<', scored)
    assert "at least 0.80" in scored
    assert re.search(rf'<a href="{again}/cases/0/trials/0">Run \d+</a>, re-scored .*>passed<', played)
    assert "at least 0.00" in played


def test_the_form_offers_the_expectations_of_now_where_the_set_differs(pages: Any) -> None:
    source = pages.finish(case=["greets", "misses"], cases="selected", n="1")
    file = pages.desk.evalsets.list()[0]
    before = pages.get(f"{source}/scorings/new").text
    evalset, version, _ = pages.desk.evalsets.read(file.id)
    misses = next(case for case in evalset.cases if case.id == "misses")
    turn = replace(misses.turns[0], expected=replace(misses.turns[0].expected, reference="something else"))
    edited = replace(misses, turns=(turn,))
    cases = tuple(edited if case is misses else case for case in evalset.cases)
    pages.desk.evalsets.save(file.id, replace(evalset, cases=cases), version)

    shown, form = pages.get(source).text, pages.get(f"{source}/scorings/new?expectations=set").text
    again = pages.post(f"{source}/scorings", **ROUGE, expectations="set").headers["location"]

    assert 'name="expectations"' not in before
    assert "The eval set differs from what was played: 1 case asserts something else now (misses)" in shown
    assert f'href="{source}/scorings/new?expectations=set"' in shown
    assert re.search(r'value="set" checked> As the set is now \(1 case differs\)', form)
    assert "event: done" in pages.get(f"{again}/events").text
    scored = pages.desk.store.runs.cases(int(again[6:]))
    assert [case.turns[0].expected.reference for case in scored if case.id == "misses"] == ["something else"]


def _scores(page: str) -> str:
    """The table of scores on the page of a run."""
    return page.partition('id="metrics"')[2].partition("</section>")[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric": []}, "choose at least one metric"),
        ({"response_match_score.threshold": "7"}, "out of range"),
        ({"response_match_score.threshold": "a lot"}, "a number such as 0.8"),
        ({"metric": "os:system"}, "no metric"),
    ],
)
def test_criteria_that_cannot_be_come_back_with_what_was_typed(pages: Any, changes: dict[str, Any], said: str) -> None:
    source = pages.finish(n="1")

    answer = pages.post(f"{source}/scorings", **(ROUGE | changes))

    assert answer.status_code in (404, 422)
    assert said in answer.text
    assert pages.get("/runs").text.count('name="run"') == 1


def test_criteria_that_some_scoring_has_already_are_named_and_not_refused(pages: Any) -> None:
    source = pages.finish(case=["misses"], cases="selected", n="1")
    again = pages.post(f"{source}/scorings", **ROUGE).headers["location"]
    pages.get(f"{again}/events")

    def said(**typed: Any) -> str:
        """The line that a change of the form brings; the form as it opens is that of the run."""
        headers = {"HX-Request": "true", "HX-Target": "p#same"}
        ask = pages.client.post if typed else pages.client.get
        answer = ask(f"{source}/scorings/new", **({"data": typed} if typed else {}), headers=headers).text
        return re.sub("<[^>]*>", "", answer).strip()

    known = "Run {} has the same criteria: scores change only where a metric&#39;s code or a judge did."
    assert said() == known.format(source[6:])
    assert said(**ROUGE) == known.format(again[6:])
    assert said(**ROUGE | {"response_match_score.threshold": "0.2"}) == ""
    assert said(**ROUGE | {"response_match_score.threshold": "a lot"}) == ""
    assert pages.post(f"{source}/scorings", **ROUGE).status_code == 303


def test_a_run_that_goes_on_is_not_scored_again(open_runs: Any) -> None:
    gate = threading.Event()
    pages = open_runs(gate=gate)
    source = pages.start()

    text = pages.get(f"{source}/scorings/new").text
    answer = pages.post(f"{source}/scorings", **ROUGE)

    assert "is still running" in text
    assert "/scorings/new" not in pages.get(source).text
    assert answer.status_code == 409
    gate.set()


def test_ticking_a_metric_says_what_it_cannot_judge(pages: Any) -> None:
    source = pages.finish(n="1")

    answer = pages.client.post(f"{source}/scorings/new", data=ROUGE, headers={"HX-Target": "form#plan"})

    assert answer.text.lstrip().startswith("<form")
    assert "1 of 4 cases not applicable" in answer.text


def test_a_run_that_does_not_exist_is_not_scored(pages: Any) -> None:
    assert pages.get("/runs/99/scorings/new").status_code == 404
    assert pages.post("/runs/99/scorings", **ROUGE).status_code == 404
