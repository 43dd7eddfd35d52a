"""The page of the search for a decisive turn: its plan before anything is played, its curve, its answer."""

from __future__ import annotations

import asyncio
import json
import re
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


SOURCE = '''
from evaldesk import Event, ToolCall

n_played = 0


def answer(message, state):
    """Is wrong in turn 2 of its first conversation, and so at its end."""
    global n_played
    if message == "step 2":
        n_played += 1
        state["wrong"] = n_played == 1
    if message == "step 1":
        yield Event("tool_call", call=ToolCall("book_train", {}))
    yield "no" if state.get("wrong") and message == "step 3" else "yes"


root_agent = answer
'''


@pytest.fixture
def located(pages: Any) -> str:
    """A failed trial of three turns, of which the second is the decisive one."""
    turns: list[dict[str, Any]] = [{"user_content": {"parts": [{"text": f"step {number}"}]}} for number in (1, 2, 3)]
    turns[2]["final_response"] = {"parts": [{"text": "yes"}]}
    value = {"eval_set_id": "talk", "eval_cases": [{"eval_id": "talk", "conversation": turns}]}
    workspace = pages.desk.settings.workspace
    (workspace / "evalsets" / "talk.evalset.json").write_text(json.dumps(value))
    (workspace / "agents" / "dice" / "agent.py").write_text(SOURCE)
    evalset = next(each.id for each in pages.desk.evalsets.list() if each.name == "talk")
    run = str(pages.finish(evalset=evalset, n="12", concurrency="1"))
    trial = f"{run}/cases/0/trials/0"
    assert pages.post(f"{trial}/blame", budget="60").status_code == 303
    wait(pages, run)
    return trial


async def _is_verified(desk: Desk, run_id: int) -> None:
    if task := desk.blames._verifications.get(run_id):
        await asyncio.wait({task})


def fix_panel(text: str) -> str:
    return text.partition('id="fix"')[2].partition("</section>")[0]


def test_a_decisive_turn_leads_to_the_test_of_a_fix_and_to_a_case(pages: Any, located: str) -> None:
    text = pages.get(f"{located}/blame").text

    assert "Turn 2 decides" in text
    assert f'href="{located}/fork?turn=2" data-key="b">' in text
    assert "1 turn pinned, turn 2 played and judged" in text
    assert "The failed trial of run 1" in text
    assert 'data-part="diamond"' not in text
    assert all(f'href="{located}/fork?turn={turn}">Fork here' in text for turn in (1, 2, 3))
    assert "1 failed trial, each so often from its decisive turn and from the start of its case" in fix_panel(text)
    assert "Tools that run for real: <code>book_train</code>" in fix_panel(text)


def test_the_edit_of_a_person_is_a_repair_test(pages: Any, located: str) -> None:
    pages.post(f"{located}/fork", turn="3", n="2", message="step 3", answer="yes", state='{"wrong": null}')
    pages.client.within(_forks_are_over, pages.desk, 1)

    text = pages.get(f"{located}/blame").text

    repair = text.partition('id="repair-title"')[2].partition("</section>")[0]
    picture = text.partition('data-kind="blame"')[2].partition("</svg>")[0]
    assert "2 of 2" in repair
    assert "state" in repair
    assert picture.count('data-part="diamond"') == 1
    assert "in its place 2 of 2" in picture.partition(">")[0]  # for a reader who does not see it


def test_a_fix_is_verified_from_a_page_of_the_trial_and_of_the_run(pages: Any, located: str) -> None:
    run = located.partition("/cases")[0]
    n_runs = pages.get("/runs").text.count('href="/runs/')

    started = pages.post(f"{located}/blame", op="verify", n="2", agent="")
    pages.client.within(_is_verified, pages.desk, 1)
    first = fix_panel(pages.get(f"{located}/blame").text)
    n_forks = len(pages.desk.store.forks.of_run(1))
    again = pages.post(f"{run}/blame", op="verify", n="2")
    pages.client.within(_is_verified, pages.desk, 1)
    second = fix_panel(pages.get(f"{run}/blame").text)

    assert (started.status_code, again.status_code) == (303, 303)
    sentence = r"From the decisive turns 2 of 2 pass, before \d+ of \d+; from the start 2 of 2 pass, before 11 of 12"
    assert re.search(sentence, first)
    assert re.search(sentence, second)
    assert len(pages.desk.store.forks.of_run(1)) == n_forks  # no continuation is played twice
    assert pages.get("/runs").text.count('href="/runs/') == n_runs


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"n": "0"}, 422, "trials of each case: 1 to 1000, not 0"),
        ({"n": "101"}, 422, "the continuations of a trial are 1 to 100, not 101"),
        ({"n": "<b>"}, 422, "&lt;b&gt;"),
        ({"n": "1", "agent": "<i>none</i>"}, 422, "&lt;i&gt;none&lt;/i&gt;"),
    ],
)
def test_a_fix_that_cannot_be_verified_is_refused_in_its_form(
    pages: Any, located: str, fields: dict[str, str], status: int, words: str
) -> None:
    n_forks = len(pages.desk.store.forks.of_run(1))

    answers = [pages.post(address, op="verify", **fields) for address in (f"{located}/blame", "/runs/1/blame")]

    assert [answer.status_code for answer in answers] == [status, status]
    assert all(words in fix_panel(answer.text) for answer in answers)
    assert len(pages.desk.store.forks.of_run(1)) == n_forks


def test_no_fix_is_verified_before_a_search(pages: Any) -> None:
    run = pages.finish()

    answer = pages.post(f"{run}/blame", op="verify", n="1")

    assert answer.status_code == 422
    assert "no trial of this run has a decisive turn yet; look for them first" in answer.text


async def _forks_are_over(desk: Desk, run_id: int) -> None:
    for fork in desk.store.forks.of_run(run_id):
        async for _tick in desk.runs.watch(fork.id):
            pass
