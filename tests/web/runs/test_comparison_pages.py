"""The page of a comparison, and the ways that lead to it; all of them without a script."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from evaldesk.model import AgentRef, Case, RunConfig, Turn


def test_two_ticked_runs_are_compared_the_earlier_first(pages: Any) -> None:
    first, second = pages.finish(), pages.finish()

    answer = pages.get(f"/compare?run={second[6:]}&run={first[6:]}")

    assert answer.status_code == 303
    assert answer.headers["location"] == f"/table?runs={first[6:]}%2C{second[6:]}"
    assert f'name="run" value="{first[6:]}"' in pages.get("/runs").text


def test_a_comparison_says_what_it_found_in_words(pages: Any) -> None:
    a, b = pages.finish()[6:], pages.finish()[6:]

    text = pages.get(f"/table?runs={a},{b}").text

    assert "No difference in the mean" in text
    assert "No verdict changed." in text
    table = text.partition('id="metrics-title"')[2].partition("</table>")[0]
    assert table.count("<summary>Why<span") == table.count('<th scope="row">') > 0
    assert "p 1.00" not in table.partition("<details")[0]
    assert re.search(r"Changed <b>0</b>", text)
    assert f'href="/table?runs={b}%2C{a}"' in text
    assert ">Seed<" in text
    shown = pages.get(f"/table?runs={a},{b}&show=same").text
    assert f'href="/runs/{a}/cases/1/trials/0"' in shown
    assert f'href="/runs/{b}/cases/1/trials/0"' in shown


def test_cases_of_one_run_alone_are_counted_by_its_number_in_both_orders(pages: Any) -> None:
    whole, part = pages.finish(n="1"), pages.finish(n="1", cases="selected", case="greets")

    texts = [pages.get(f"/table?runs={a[6:]},{b[6:]}").text for a, b in ((whole, part), (part, whole))]

    assert [f"Left out: 3 cases only in run {whole[6:]}." in text for text in texts] == [True, True]


def test_runs_without_a_scored_trial_have_no_rate_of_nothing(pages: Any) -> None:
    config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc")
    a, b = (pages.desk.store.runs.create(config, [Case("a", (Turn("hi"),))]) for _ in range(2))

    assert "0 of 0" not in pages.get(f"/table?runs={a},{b}").text


def test_a_run_leads_to_the_choice_of_another(pages: Any) -> None:
    first, second = pages.finish(), pages.finish()

    assert f'href="/compare?b={second[6:]}"' in pages.get(second).text
    text = pages.get(f"/compare?b={second[6:]}").text
    assert f'<option value="{second[6:]}" selected>' in text
    assert f'<option value="{first[6:]}" selected>' in text


def test_a_single_run_has_nothing_to_be_compared_with(pages: Any) -> None:
    assert "No runs yet" in pages.get("/compare").text
    pages.finish()
    assert "Only one run" in pages.get("/compare").text


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("a=1&b=1", 422, "Run 1 is the same as itself"),
        ("&".join(f"run={n}" for n in range(1, 22)), 422, "Tick 2 to 20 runs, not 21"),
        ("run=1&run=1", 200, "Compare two runs"),
        ("a=1&b=99", 404, "the list of runs has no run 99"),
        ("a=1&b=../2", 200, "Compare two runs"),
    ],
)
def test_what_cannot_be_compared_says_why(pages: Any, query: str, status: int, said: str) -> None:
    pages.finish(n="1")
    pages.finish(n="1")

    answer = pages.get(f"/compare?{query}")

    assert (answer.status_code, said.lower() in answer.text.lower()) == (status, True)


def test_a_run_that_is_not_among_the_newest_is_chosen_by_its_number(
    pages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (pages.finish(n="1")[6:] for _ in range(3))
    assert 'name="a-number"' not in pages.get("/compare").text
    monkeypatch.setattr("evaldesk.pages.comparison.N_OFFERED", 1)

    asked = pages.get(f"/compare?b={one}").text
    answer = pages.get(f"/compare?a={three}&b={three}&a-number={one}&b-number=")

    assert f'<option value="{one}" selected>' in asked
    assert f'<option value="{two}"' not in asked
    assert 'name="a-number"' in asked
    assert (answer.status_code, answer.headers["location"]) == (303, f"/compare?a={one}&b={three}")


def test_a_comparison_names_cases_that_changed_between_its_runs_and_who_changed_them(pages: Any) -> None:
    a = pages.finish()[6:]
    unchanged = pages.get(f"/table?runs={a},{pages.finish()[6:]}").text
    (file,) = pages.desk.evalsets.list()
    case_id = pages.desk.evalsets.evalset(file.id).cases[0].id
    content = json.loads(file.path.read_text())
    content["eval_cases"][0]["conversation"][0]["final_response"] = {"parts": [{"text": "any other"}]}
    file.path.write_text(json.dumps(content))

    changed = pages.get(f"/table?runs={a},{pages.finish()[6:]}").text

    assert "Changed between these runs" not in unchanged
    block = changed.partition("Changed between these runs")[2].partition("</section>")[0]
    assert case_id in block
    assert "changed outside" in block


def test_the_table_of_three_runs_names_each_change_since_the_first(pages: Any) -> None:
    a, b = (pages.finish()[6:] for _ in range(2))
    (file,) = pages.desk.evalsets.list()
    content = json.loads(file.path.read_text())
    content["eval_cases"][0]["conversation"][0]["final_response"] = {"parts": [{"text": "any other"}]}
    file.path.write_text(json.dumps(content))
    c = pages.finish()[6:]

    text = pages.get(f"/table?runs={a},{b},{c}").text

    block = text.partition("Changed between these runs")[2].partition("</section>")[0]
    assert f"{a} to {c}" in block
    assert f"{a} to {b}" not in block
    assert "changed outside" in block
