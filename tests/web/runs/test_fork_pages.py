"""The page of forks: cost and tools before anything is played, branches after, and refusals in words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evaldesk.desk.desk import Desk
from evaldesk.model import Event, ToolCall, TurnRecord
from evaldesk.model.fork import Edit, Fork, ForkPoint
from evaldesk.pages.forks import ForkRequest, fork_of

CALL = Event("tool_call", call=ToolCall("pay", {"price": 3}))
RESULT = Event("tool_result", call=CALL.call, result="paid")


async def _is_over(desk: Desk, run_id: int) -> None:
    for fork in desk.store.forks.of_run(run_id):
        async for _tick in desk.runs.watch(fork.id):
            pass


def test_the_plan_stands_before_anything_is_played(pages: Any) -> None:
    trial = f"{pages.finish()}/cases/1/trials/0"

    text = pages.get(f"{trial}/fork").text

    assert 'data-key="b">Fork' in pages.get(trial).text
    assert "data-starts>" in text
    assert 'data-key="b"' not in text  # a second stroke of b starts nothing
    assert "Each trial has 1 turn left" in text
    assert "10 trials" not in text  # the number is the one in the field, which a person may change
    assert "These tools run for real: roll_die." in text
    assert "The session begins anew: nothing comes before turn 1." in text
    assert pages.desk.store.forks.of_run(1) == []


def test_a_fork_becomes_a_branch_of_its_turn(pages: Any) -> None:
    run = pages.finish()
    trial = f"{run}/cases/1/trials/0"
    before = pages.get("/runs").text.count('href="/runs/')

    started = pages.post(f"{trial}/fork", turn="1", n="2", message="Roll <b>other</b> dice.", state='{"x": 1}')
    pages.client.within(_is_over, pages.desk, 1)
    text = pages.get(f"{trial}/fork").text

    (fork,) = pages.desk.store.forks.of_run(1)
    assert (started.status_code, started.headers["location"]) == (303, f"{trial}/fork?turn=1")
    assert f'href="/runs/{fork.id}/cases/0/trials/1"' in text
    assert "Roll &lt;b&gt;other&lt;/b&gt; dice." in text
    assert [edit.kind for edit in fork.config.fork.edits] == ["message", "state"]
    assert pages.get("/runs").text.count('href="/runs/') == before
    block = pages.client.get(f"{trial}/fork?turn=1", headers={"HX-Request": "true", "HX-Target": "div#live"}).text
    assert f'href="/runs/{fork.id}" data-text>' in block
    assert "<form" not in block  # text that is typed while a branch plays stays
    assert "<form" not in pages.get(f"{trial}/fork?turn=9").text.partition('id="live"')[2].partition("</main>")[0]
    assert pages.get(f"/runs/{fork.id}/cases/0/trials/0").status_code == 200


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"turn": "9"}, "the nearest point that can be forked is before turn 1"),
        ({"n": "0"}, "trials of each case: 1 to 1000, not 0"),
        ({"n": "many"}, "trials of each case: a whole number, not &#39;many&#39;"),
        ({"n": "9" * 40}, "trials of each case: a whole number"),
        ({"state": "{"}, "the state patch cannot be read as JSON"),
        ({"state": "[" * 2000}, "the state patch cannot be read as JSON"),
        ({"state": '{"a":' * 60 + "1" + "}" * 60}, "nested deeper than 50 levels"),
        ({"state": "[1]"}, "a merge patch is an object"),
        ({"state": '{"a": NaN}'}, "a number that JSON does not have"),
        ({"state": '{"b\\ud800": 1}'}, "half a surrogate pair"),
        ({"message": " "}, "the text is empty"),
        ({"then": "message", "free_message": " "}, "say the message that is played after the point"),
        ({"tool_call": "1", "result": "3"}, "there is no turn before turn 1"),
        ({"result": "{", "tool_call": "1"}, "the result cannot be read as JSON"),
    ],
    ids=lambda value: " ".join(f"{name}={each[:9]}" for name, each in value.items()) if isinstance(value, dict) else "",
)
def test_a_fork_that_cannot_be_is_refused_in_words(shared_pages: Any, fields: dict[str, str], sentence: str) -> None:
    trial = "/runs/1/cases/1/trials/0"
    if not shared_pages.desk.store.runs.list():
        shared_pages.finish()

    answer = shared_pages.post(f"{trial}/fork", **({"turn": "1", "n": "2", "message": "Hello."} | fields))

    assert answer.status_code == 422
    assert sentence in answer.text
    form = answer.text.partition('id="fork-form"')[2]
    assert 'id="fork-error"' in (answer.text if "turn" in fields else form)
    assert shared_pages.desk.store.forks.of_run(1) == []


def test_a_branch_is_kept_as_a_case_and_the_step_is_taken_back(pages: Any) -> None:
    trial = f"{pages.finish()}/cases/1/trials/0"
    pages.post(f"{trial}/fork", turn="1", n="1", message="Roll two dice.")
    pages.client.within(_is_over, pages.desk, 1)
    (fork,) = pages.desk.store.forks.of_run(1)

    offered = pages.get(f"{trial}/fork").text
    form = pages.get(f"{trial}/fork?turn=1&keep={fork.id}").text
    added = pages.post(f"{trial}/fork/case", turn="1", fork=str(fork.id), evalset="", name="Two <dice>")
    shown = pages.get(added.headers["location"]).text

    assert f"/fork?turn=1&amp;keep={fork.id}#case-form" in offered
    assert f"Run {fork.id} as a case" in form
    assert "No turn is pinned: the fork began before turn 1." in form
    assert added.status_code == 303
    assert "1 case added, from run 1." in shown
    set_id, _, token = added.headers["location"].removeprefix("/evalsets/").partition("?changed=")
    assert [case.id for case in pages.desk.evalsets.evalset(set_id).cases] == ["Two <dice>"]
    assert pages.desk.evalsets.evalset(set_id).cases[0].turns[0].query == "Roll two dice."
    pages.post(f"/evalsets/{set_id}/steps/{token}/restoration")
    assert list(pages.desk.evalsets.evalset(set_id).cases) == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"turn": "9"}, "the nearest point that can be forked is before turn 1"),
        ({"name": "a\nb"}, "No line breaks"),
        ({"name": "x" * 2000}, "At most"),
        ({"call": "2"}, "the nearest point that can be forked is before turn 1"),
    ],
    ids=str,
)
def test_a_case_that_cannot_be_kept_is_refused_in_its_form(
    shared_pages: Any, fields: dict[str, str], sentence: str
) -> None:
    trial = "/runs/1/cases/1/trials/0"
    if not shared_pages.desk.store.runs.list():
        shared_pages.finish()
    before = [file.id for file in shared_pages.desk.evalsets.list()]

    answer = shared_pages.post(f"{trial}/fork/case", **({"turn": "1"} | fields))

    assert answer.status_code == 422
    assert sentence in answer.text.partition('id="case-form"')[2].partition("</form>")[0]
    assert [file.id for file in shared_pages.desk.evalsets.list()] == before


def test_a_branch_of_another_trial_is_not_kept(shared_pages: Any) -> None:
    if not shared_pages.desk.store.runs.list():
        shared_pages.finish()

    answer = shared_pages.post("/runs/1/cases/1/trials/0/fork/case", turn="1", fork="1")

    assert answer.status_code == 422
    assert "run 1 is not a fork of this trial" in answer.text


def test_a_call_without_a_recording_is_refused_in_words(shared_pages: Any) -> None:
    trial = "/runs/1/cases/1/trials/0"
    if not shared_pages.desk.store.runs.list():
        shared_pages.finish()

    page = shared_pages.get(f"{trial}/fork?turn=1&call=2").text
    refused = shared_pages.post(f"{trial}/fork", turn="1", call="2", n="1")

    assert "Fork before call 2 of turn 1" in page
    assert 'name="message"' not in page  # the conversation before a call is not edited
    assert "the nearest point that can be forked is before turn 1" in page
    assert refused.status_code == 422
    assert "call=2" not in shared_pages.get(f"{trial}/fork").text  # no link to a point that cannot be


def test_recorded_calls_are_points_of_the_rail(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.pages.forks.model_calls_of", lambda turn: 3)
    trial = f"{pages.finish(recording='record')}/cases/1/trials/0"

    rail = pages.get(f"{trial}/fork").text
    fork = fork_of(pages.desk.store.runs.trial(1, 1, 0).transcript.turns, 1, (1, 0), ForkRequest(1, call=2))

    assert [number for number in range(1, 5) if f"/fork?turn=1&amp;call={number}" in rail] == [2, 3]
    assert fork == Fork(ForkPoint(1, 1, 0, 1, 2), n=10)


def test_two_branches_are_compared_from_the_rail(pages: Any) -> None:
    trial = f"{pages.finish()}/cases/1/trials/0"
    pages.post(f"{trial}/fork", turn="1", n="1", message="Roll two dice.")
    pages.client.within(_is_over, pages.desk, 1)
    alone = pages.get(f"{trial}/fork").text
    pages.post(f"{trial}/fork", turn="1", n="1", message="Roll a die.")
    pages.client.within(_is_over, pages.desk, 1)
    first, second = (fork.id for fork in pages.desk.store.forks.of_run(1))

    page = pages.get(f"{trial}/fork").text
    compared = pages.get(f"/compare?run={first}&run={second}")

    assert 'name="run"' not in alone
    assert f'name="run" value="{first}"' in page
    assert f'name="run" value="{second}"' in page
    assert compared.status_code == 303
    assert pages.get(compared.headers["location"]).status_code == 200


def test_picked_branches_stand_side_by_side_the_failed_trial_beside_the_passed_one(pages: Any) -> None:
    trial = f"{pages.finish()}/cases/1/trials/0"
    for message in ("Roll two dice.", "Roll a die."):
        pages.post(f"{trial}/fork", turn="1", n="2", message=message)
        pages.client.within(_is_over, pages.desk, 1)
    first, second = (fork.id for fork in pages.desk.store.forks.of_run(1))
    other_trial = pages.finish()

    def picked(*runs: int | str) -> Any:
        return pages.get(f"{trial}/fork/pair?{'&'.join(f'run={run}' for run in runs)}")

    strips = {first: "ff", second: "fp"}
    pages.desk.store.forks.strips = lambda run_ids: {each: strips[each] for each in run_ids}
    pair = picked(first, second)

    assert pair.headers["location"] == f"/runs/{first}/cases/0/trials/0/pair?with={second}.0.1"
    assert pages.get(pair.headers["location"]).status_code == 200
    assert picked(first).status_code == picked(first, second, first).status_code == 422
    assert "tick two branches to see them side by side, not 1" in picked(first).text
    assert picked().headers["location"] == f"{trial}/fork"
    other = other_trial.rpartition("/")[2]
    assert f"run {other} is not a fork of this trial" in picked(first, other).text


def test_each_field_of_the_form_is_the_edit_of_the_command(pages: Any) -> None:
    trial = f"{pages.finish()}/cases/1/trials/0"
    turns = (TurnRecord("one", events=(CALL, RESULT, Event("agent_message", text="yes"))), TurnRecord("two"))
    request = ForkRequest(
        2,
        "3",
        message="two",
        answer="no",
        state='{"x": null}',
        tool_call=1,
        result="[1]",
        instruction="Be brief.",
        model=" openai/big ",
        agent="dice",
        insert="further",
        then="message",
        free_message="the end",
    )

    fork = fork_of(turns, 1, (0, 0), request)
    failed = fork_of(turns, 1, (0, 0), ForkRequest(2, tool_call=1, result="no money", is_error=True))
    untouched = fork_of(turns, 1, (0, 0), ForkRequest(2, message="two", answer="yes"))

    assert {edit.kind: edit for edit in fork.edits} == {
        "insert_turn": Edit("insert_turn", text="further"),
        "assistant": Edit("assistant", text="no"),
        "state": Edit("state", value={"x": None}),
        "tool_result": Edit("tool_result", call=1, value=[1]),
        "instruction": Edit("instruction", text="Be brief."),
        "model": Edit("model", name="openai/big"),
        "agent": Edit("agent", name="dice"),
    }
    assert (fork.n, fork.then, fork.message) == (3, "message", "the end")
    assert failed.edits == (Edit("tool_result", call=1, error="no money"),)
    assert (untouched.edits, untouched.n, untouched.then) == ((), 10, "script")
    page = pages.get(f"{trial}/fork").text
    named = set(
        re.findall(
            r'<(?:input|textarea|select)[^>]* name="(\w+)"', page.partition('id="fork-form"')[2].partition("</form>")[0]
        )
    )
    assert named == {
        "turn",
        "message",
        "state",
        "instruction",
        "model",
        "agent",
        "insert",
        "n",
        "then",
        "runs_tools",
        "free_message",
    }


def test_what_was_typed_stays_in_a_refused_form(pages: Any) -> None:
    trial = f"{pages.finish()}/cases/1/trials/0"
    typed = {"instruction": "Be <brief>.", "model": "openai/x", "insert": "before it", "free_message": "last"}

    text = pages.post(f"{trial}/fork", turn="1", n="0", message="Hello.", then="message", **typed).text

    for shown in ("Be &lt;brief&gt;.", "openai/x", "before it", "last"):
        assert shown in text
    assert text.partition('class="edits"')[2].count("<details open>") == 3
    assert '<option value="message" selected>' in text


def test_tools_run_for_real_unless_the_tick_is_taken_away(pages: Any) -> None:
    trial = f"{pages.finish()}/cases/1/trials/0"

    pages.post(f"{trial}/fork", turn="1", n="1", runs_tools=["no", "yes"])
    pages.post(f"{trial}/fork", turn="1", n="1", runs_tools="no")
    pages.client.within(_is_over, pages.desk, 1)

    assert 'name="runs_tools" value="yes" checked' in pages.get(f"{trial}/fork").text
    real, doubled = (pages.desk.store.runs.case(fork.id, 0) for fork in pages.desk.store.forks.of_run(1))
    assert "tool_doubles" not in real.extra
    assert doubled.extra["tool_doubles"]["unmatched"] == "refuse"
