"""The forks of a trial on its own page: the branches of its turns, and the pinned turns of a trial that is a fork."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from evaldesk.desk.desk import Desk
from evaldesk.model.fork import Fork, ForkPoint
from evaldesk.pages.fork_rail import MOST_BRANCHES, MOST_SQUARES

TURNS = ("hello there", "roll it", "wrongly greet")


@pytest.fixture
def trial(pages: Any) -> str:
    """A failed trial of three turns; its case is the first of run 1."""
    turns = [{"user_content": {"parts": [{"text": text}]}} for text in TURNS]
    turns[2] |= {"final_response": {"parts": [{"text": "nothing of the kind"}]}}
    value = {"eval_set_id": "talk", "eval_cases": [{"eval_id": "talk", "conversation": turns}]}
    path = pages.desk.settings.workspace / "evalsets" / "talk.evalset.json"
    path.write_text(json.dumps(value))
    evalset = next(each.id for each in pages.desk.evalsets.list() if each.name == "talk")
    return f"{pages.finish(evalset=evalset, n='1')}/cases/0/trials/0"


async def _is_over(desk: Desk) -> None:
    for fork in desk.store.forks.of_run(1):
        async for _tick in desk.runs.watch(fork.id):
            pass


def play(pages: Any, trial: str, **fields: str) -> int:
    """A fork of the form, played to its end; gives its run."""
    assert pages.post(f"{trial}/fork", **fields).status_code == 303
    pages.client.within(_is_over, pages.desk)
    return int(pages.desk.store.forks.of_run(1)[-1].id)


def rail_of(text: str) -> str:
    return text.partition('id="outline"')[2].partition("</nav>")[0]


def test_each_turn_of_a_trial_leads_to_its_fork(pages: Any, trial: str) -> None:
    text = pages.get(trial).text

    assert [f'href="{trial}/fork?turn={turn}" data-row-key="b"' in text for turn in (1, 2, 3, 4)] == [True] * 3 + [
        False
    ]
    assert 'class="branches"' not in text
    assert "Branches" not in rail_of(text)


def test_a_fork_that_was_played_twice_is_one_branch_of_its_turn(pages: Any, trial: str) -> None:
    first = play(pages, trial, turn="3", n="2")
    second = play(pages, trial, turn="3", n="1")
    other = play(pages, trial, turn="2", n="1", message="<i>hello</i>")

    rail = rail_of(pages.get(trial).text)

    assert "<p>2, from 2 turns</p>" in rail
    assert re.findall(r'<a href="(/runs/\d+)" data-text>', rail) == [
        f"/runs/{other}",
        f"/runs/{first}",
    ]  # of the same fork the run with the most trials
    assert "again from here</a><b>0 of 3</b>" in rail
    assert re.findall(
        r'data-status="(\w+)" href="(/runs/\d+/cases/0/trials/\d+)"', rail.partition("again from")[2]
    ) == [("failed", f"/runs/{run}/cases/0/trials/{at}") for run, at in ((first, 0), (first, 1), (second, 0))]
    assert "message &#34;&lt;i&gt;hello&lt;/i&gt;&#34;" in rail


def test_a_rail_is_bounded(pages: Any, trial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play(pages, trial, turn="3", n=str(MOST_SQUARES + 2))
    play(pages, trial, turn="3", n="1", message="roll another")
    monkeypatch.setattr("evaldesk.pages.fork_rail.MOST_BRANCHES", 1)
    newest = rail_of(pages.get(trial).text)
    monkeypatch.setattr("evaldesk.pages.fork_rail.MOST_BRANCHES", MOST_BRANCHES)

    rail = rail_of(pages.get(trial).text)

    assert (newest.count("<b>"), "roll another" in newest) == (1, True)
    assert rail.count('class="square"') == MOST_SQUARES + 1
    assert "and 2 more" in rail


def test_pinned_turns_of_a_fork_are_folded_until_the_address_names_one(pages: Any, trial: str) -> None:
    fork = play(pages, trial, turn="3", n="1")
    address = f"/runs/{fork}/cases/0/trials/0"

    text = pages.get(address).text
    named = pages.get(f"{address}?turn=2").text

    folded = text.partition('id="pinned">')[2].partition("</details>")
    assert "2 turns shared" in folded[0]
    assert "“hello there” · “roll it”" in folded[0]
    assert [f'id="turn-{turn}"' in text.partition('id="pinned">')[2].partition("Turn 3")[0] for turn in (1, 2)] == [
        True
    ] * 2
    assert 'id="turn-3"' in text
    assert 'id="pinned" open>' in named
    assert 'id="pinned"' not in pages.get(trial).text


def test_a_fork_names_the_trial_that_it_continues(pages: Any, trial: str) -> None:
    fork = play(pages, trial, turn="3", n="1", message="hello")

    origin = pages.get(f"/runs/{fork}/cases/0/trials/0").text.partition('id="fork-origin">')[2].partition("</p>")[0]

    assert f'href="{trial}?turn=3#turn-3">run 1, trial 1</a> before turn 3: message &#34;hello&#34;' in origin
    assert "agent has changed since" not in origin


def test_a_fork_of_an_edited_agent_says_so(pages: Any, trial: str) -> None:
    agent = pages.desk.settings.workspace / "agents" / "dice" / "agent.py"
    agent.write_text(agent.read_text() + "\n# edited\n")

    planned = pages.client.within(pages.desk.forks.plan, Fork(ForkPoint(1, 0, 0, 3), n=1))
    fork = play(pages, trial, turn="3", n="1")

    assert planned.is_agent_changed
    text = pages.get(f"/runs/{fork}/cases/0/trials/0").text
    assert "agent has changed since" in text.partition('id="fork-origin">')[2].partition("</p>")[0]


def test_the_turns_that_two_branches_share_are_folded_side_by_side(pages: Any, trial: str) -> None:
    first = play(pages, trial, turn="3", n="1")
    second = play(pages, trial, turn="2", n="1", message="raise it")

    both = pages.get(f"/runs/{first}/cases/0/trials/0/pair?with=1.0.0").text
    other = pages.get(f"/runs/{first}/cases/0/trials/0/pair?with={second}.0.0").text

    assert "2 turns shared" in both.partition('id="pinned">')[2].partition("</details>")[0]
    assert "“hello there” · “roll it”" in both
    assert ['id="turn-2"' in part for part in both.partition("</details>")[::2]] == [True, False]
    assert "1 turn shared" in other.partition('id="pinned">')[2].partition("</details>")[0]
    assert 'id="pinned"' not in pages.get(f"{pages.finish()}/cases/0/trials/0/pair").text
