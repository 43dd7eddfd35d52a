"""The page of forks: cost and tools before anything is played, branches after, and refusals in words."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.desk.desk import Desk


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
    assert f"run {fork.id}:" in block
    assert "<form" not in block  # text that is typed while a branch plays stays
    assert "<form" not in pages.get(f"{trial}/fork?turn=9").text.partition('id="live"')[2].partition("</main>")[0]
    assert pages.get(f"/runs/{fork.id}/cases/0/trials/0").status_code == 200


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"turn": "9"}, "the nearest point that can be forked is before turn 1"),
        ({"n": "0"}, "a fork is played at least once"),
        ({"n": "many"}, "n is a number of trials"),
        ({"n": "9" * 40}, "n"),
        ({"state": "{"}, "the state patch cannot be read as JSON"),
        ({"state": "[" * 2000}, "the state patch cannot be read as JSON"),
        ({"state": '{"a":' * 60 + "1" + "}" * 60}, "nested deeper than 50 levels"),
        ({"state": "[1]"}, "a merge patch is an object"),
        ({"state": '{"a": NaN}'}, "a number that JSON does not have"),
        ({"state": '{"b\\ud800": 1}'}, "half a surrogate pair"),
        ({"message": " "}, "the text is empty"),
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
