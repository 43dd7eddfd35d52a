"""The page of the search for a decisive turn: its plan before anything is played, its curve, its answer."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.desk.desk import Desk


async def _is_over(desk: Desk, run_id: int) -> None:
    for each in desk.store.blames.of_run(run_id):
        async for _blame in desk.blames.watch(each.id):
            pass


def wait(pages: Any, run: str) -> None:
    pages.client.within(_is_over, pages.desk, int(run.rpartition("/")[2]))


def test_a_plan_stands_before_anything_is_played(pages: Any) -> None:
    run = pages.finish()
    trial = f"{run}/cases/1/trials/0"
    n_runs = len(pages.desk.store.runs.list())

    text = pages.get(f"{trial}/blame").text

    assert f'href="{trial}/blame" data-key="w"' in pages.get(trial).text
    assert "data-starts>" in text
    assert 'data-key="w"' not in text  # a second stroke of w starts nothing
    assert "1 turn, a profile of each turn, at most 18 forks, cost unknown" in text
    assert "Tools that run for real" in text
    assert "roll_die" in text
    assert len(pages.desk.store.runs.list()) == n_runs
    assert pages.desk.store.forks.of_run(1) == []


def test_the_answer_its_curve_and_its_forks_stand_on_the_page(pages: Any) -> None:
    run = pages.finish()
    trial = f"{run}/cases/1/trials/0"

    started = pages.post(f"{trial}/blame", budget="20", max_cost="")
    wait(pages, run)
    text = pages.get(f"{trial}/blame").text

    assert (started.status_code, started.headers["location"]) == (303, f"{trial}/blame")
    assert "Already lost at the start" in text
    assert "the case fails whatever happens in its turns" in text
    assert "Share of continuations that pass: before turn 1 0 of 20" in text
    fork = pages.desk.store.forks.of_run(1)[0].id
    assert f'href="/runs/{fork}/cases/0/trials/0"' in text
    assert "0 of 20" in text
    assert 'name="op"' not in text


def test_the_failed_trials_of_a_run_are_searched_together(pages: Any) -> None:
    run = pages.finish()
    text = pages.get(f"{run}/blame").text
    assert "2 failed trials, at most 36 forks together" in text

    assert pages.post(f"{run}/blame", budget="40").status_code == 303
    wait(pages, run)
    text = pages.get(f"{run}/blame").text
    room = pages.get("/failures?run=1").text

    assert "2 already lost at the start" in text
    assert "misses, trial 1" in text
    assert "Run 1 has no failed trial without an answer." in text
    assert f'href="{run}/blame">2 already lost at the start</a>' in room


@pytest.mark.parametrize(
    ("trial", "fields", "status", "words"),
    [
        ("1/trials/0", {"budget": "many"}, 422, "the budget is a number of forks"),
        ("1/trials/0", {"budget": "0"}, 422, "the budget is 1 to 2,000 forks, not 0"),
        ("1/trials/0", {"budget": "9" * 5_000}, 422, "the budget is"),
        ("1/trials/0", {"budget": "1"}, 422, "1 forks are too few for 1 turns; at least 3 are needed"),
        ("1/trials/0", {"max_cost": "nan"}, 422, "above 0 dollars"),
        ("1/trials/0", {"max_cost": "<b>1</b>"}, 422, "not &#39;&lt;b&gt;1&lt;/b&gt;&#39;"),
        ("0/trials/0", {}, 422, "trial 1 passed; only a failed trial has a decisive turn"),
        ("2/trials/0", {}, 422, "trial 1 errored"),
        ("1/trials/0", {"op": "stop"}, 409, "no search for its decisive turn yet"),
        ("1/trials/7", {}, 404, ""),
        ("9/trials/0", {}, 404, ""),
    ],
)
def test_what_cannot_be_searched_is_refused_in_words(
    shared_pages: Any, trial: str, fields: dict[str, str], status: int, words: str
) -> None:
    if not shared_pages.desk.store.runs.list():
        shared_pages.finish()

    answer = shared_pages.post(f"/runs/1/cases/{trial}/blame", **fields)

    assert answer.status_code == status
    assert words in answer.text
    assert shared_pages.desk.store.blames.of_run(1) == []


@pytest.mark.parametrize("fields", [{"budget": "0"}, {"budget": "many"}, {"budget": "60", "max_cost": "-1"}])
def test_a_refused_search_has_its_error_in_its_form(pages: Any, fields: dict[str, str]) -> None:
    trial = f"{pages.finish()}/cases/1/trials/0"

    answer = pages.post(f"{trial}/blame", **fields)

    form = answer.text.partition('aria-labelledby="plan-title"')[2].partition("</form>")[0]
    assert answer.status_code == 422
    assert 'id="blame-error"' in form
    assert answer.text.count('id="blame-error"') == 1
