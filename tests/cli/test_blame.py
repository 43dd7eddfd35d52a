"""`evaldesk blame`: the decisive turn of a failed trial from a shell."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import lasting_budget, tool_answer

from evaldesk.desk.client_runs import spent_today
from evaldesk.desk.desk import Desk
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.pages.door.tools import Caller
from evaldesk.settings import read_settings

SOURCE = '''
import os
from collections import Counter

seen = Counter()


def root_agent(message, state):
    """Is wrong in turn 2 of its first conversation, and so at the end of it; with $TALK_ALTERNATES of every other."""
    seen[message] += 1
    if message == "step 2" and (seen[message] == 1 or "TALK_ALTERNATES" in os.environ and seen[message] % 2):
        state["wrong"] = True
    return "no" if state.get("wrong") and message == "step 3" else "yes"


root_agent.tells_cost = True
'''


@pytest.fixture
def talk(place: CommandFolder) -> CommandFolder:
    """A run of 12 trials of 3 turns, of which the first failed."""
    (place.agent / "agent.py").write_text(SOURCE)
    turns: list[dict[str, Any]] = [{"user_content": {"parts": [{"text": f"step {number}"}]}} for number in (1, 2, 3)]
    turns[2]["final_response"] = {"parts": [{"text": "yes"}]}
    path = place.folder / "talk.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "talk", "eval_cases": [{"eval_id": "talk", "conversation": turns}]}))
    assert place.eval(path, "--n", 12, "--concurrency", 1).exit_code == 1
    return place


def test_the_decisive_turn_is_named_with_its_counts(talk: CommandFolder) -> None:
    plan = json.loads(talk.run("blame", "1:talk:1", "--plan", "--budget", 40, "--json").stdout)
    assert (plan["n_forks"], plan["trials"][0]["method"], plan["trials"][0]["own"]) == (
        39,
        "profile",
        {"passes": 11, "n": 12},
    )
    assert len(json.loads(talk.run("run", "list", "--json").stdout)["items"]) == 1

    result = talk.run("blame", "1:talk:1", "--budget", 40, "--json")

    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["status"], answer["n_forks"]) == (0, "finished", 39)
    assert (answer["answer"]["finding"], answer["answer"]["turn"]) == ("located", 2)
    assert answer["answer"]["sentence"] == ("Turn 2 decides: before it 17 of 17 continuations pass, after it 0 of 17")
    assert "3 turns, a profile of each turn, at most 39 forks" in result.stderr


def test_all_failed_trials_of_a_run_are_searched_once(talk: CommandFolder) -> None:
    result = talk.run("blame", "1")

    assert result.exit_code == 0
    assert "talk, trial 1: Turn 2 decides: before it 20 of 20 continuations pass, after it 0 of 20" in result.stdout
    assert "  before turn 3: 0 of 20 pass" in result.stdout
    again = talk.run("blame", "1")
    assert str(again.exception) == "run 1 has no failed trial without an answer"


def test_a_fix_is_verified_from_the_decisive_turn_and_from_the_start(talk: CommandFolder) -> None:
    early = talk.run("blame", "1", "--verify", 3)
    assert str(early.exception) == "no trial of this run has a decisive turn yet; look for them first"
    assert talk.run("blame", "1", "--budget", 40).exit_code == 0

    plan = "1 failed trial, each 3 times from its decisive turn and 3 times from the start of its case; cost unknown."
    assert talk.run("blame", "1", "--verify", 3, "--plan").stdout == f"{plan}\n"
    assert json.loads(talk.run("blame", "1", "--verify", 3, "--plan", "--json").stdout)["n"] == 3
    verified = talk.run("blame", "1", "--verify", 3, "--json")
    answer = json.loads(verified.stdout)
    assert verified.stderr.startswith(plan)
    n_runs = len(json.loads(talk.run("run", "list", "--json").stdout)["items"])

    assert (answer["trials"], answer["cases"]) == (1, 1)
    assert answer["from_turn"]["before"] == {"passes": 17, "n": 17}
    assert answer["from_turn"]["after"] == {"passes": 3, "n": 3}
    assert answer["from_start"]["before"] == {"passes": 11, "n": 12}
    assert answer["from_start"]["after"] == {"passes": 3, "n": 3}
    assert talk.run("blame", "1:talk:1", "--verify", 3).stdout == (
        "From the decisive turns 3 of 3 pass, before 17 of 17; "
        "from the start 3 of 3 pass, before 11 of 12; over 1 case\n"
    )
    assert len(json.loads(talk.run("run", "list", "--json").stdout)["items"]) == n_runs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("1:tolk:1",), "talk"),
        (("1:talk:2",), "trial 2 passed; only a failed trial has a decisive turn"),
        (("1:talk:99",), "trials 1 to 12, and no trial 99"),
        (("9:talk",), "no run 9"),
        (("1:talk:1", "--budget", 3), "3 forks are too few for 3 turns"),
        (("1:talk:1", "--budget", -1), "the budget is 1 to 2,000 forks"),
        (("1:talk:1", "--max-cost", "nan"), "above 0 dollars"),
    ],
)
def test_what_cannot_be_searched_is_refused(talk: CommandFolder, arguments: tuple[object, ...], words: str) -> None:
    result = talk.run("blame", *arguments)

    assert isinstance(result.exception, EvaldeskError)
    assert words in str(result.exception)


def test_a_search_without_an_answer_has_its_own_exit_code(talk: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALK_ALTERNATES", "1")

    result = talk.run("blame", "1:talk:1", "--budget", 19)

    assert result.exit_code == 3
    assert "talk, trial 1: Not located" in result.stdout


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The runs and searches that are left to a process of their own, as words of its command."""
    left: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        "evaldesk.desk.client_runs.hand_over",
        lambda _, run_id, digest: left.append(("run", "drive", str(run_id), "--accept", digest)),
    )
    monkeypatch.setattr(
        "evaldesk.desk.client_runs.hand_over_search",
        lambda _, run_id, blame_id: left.append(("blame", str(run_id), "--search", str(blame_id))),
    )
    return left


FAILED = {"run": "1", "case": "talk", "trial": 1}


def client(usd: float) -> Caller:
    return Caller("Claude Code", frozenset({"run"}), lasting_budget(usd))


def test_a_coding_agent_forks_a_trial_within_the_budget(talk: CommandFolder, handed: list[tuple[str, ...]]) -> None:
    counts = talk.run("run", "info", "1", "--json").stdout
    edits = [{"kind": "message", "text": "step 2, please"}]

    started = tool_answer(talk.folder, "fork", FAILED | {"turn": 2, "n": 2, "edits": edits}, client(5))
    talk.run(*handed.pop())
    shown = json.loads(
        talk.run("fork", "1:talk:1@2", "--message", "step 2, please", "--n", 2, "--yes", "--json").stdout
    )

    assert started["result"] | {"status": "", "passed": 2, "run": 3, "page": ""} == shown["result"] | {
        "status": "",
        "page": "",
    }
    assert started.keys() == shown.keys()
    assert {key: started[key] for key in ("parent", "edits", "n_prefix_turns", "fingerprint")} == {
        key: shown[key] for key in ("parent", "edits", "n_prefix_turns", "fingerprint")
    }
    run = json.loads(talk.run("run", "info", "2", "--json").stdout)["data"]
    assert (run["started_by"], run["status"], run["summary"]["passed"]) == ("coding agent Claude Code", "finished", 2)
    assert talk.run("run", "info", "1", "--json").stdout == counts


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"turn": 9}, "nearest point that can be forked is before turn 3"),
        ({"turn": 2, "edits": [{"kind": "lower_threshold"}]}, "the kinds are message, drop_turn"),
        ({"turn": 2, "edits": [{"text": "no kind"}]}, "the kinds are message, drop_turn"),
        ({"turn": 2, "edits": [{"kind": "message", "text": "x" * 100_001}]}, "characters"),
        ({"turn": 2, "edits": [{"kind": "agent", "name": "another"}]}, "no agent"),
        ({"turn": 2, "case": "nobody"}, "no case"),
        ({"turn": 2, "trial": 99}, "trial"),
    ],
)
def test_a_fork_that_cannot_be_is_refused_in_words(
    talk: CommandFolder, handed: list[tuple[str, ...]], inputs: dict[str, Any], words: str
) -> None:
    with pytest.raises(EvaldeskError, match=words):
        tool_answer(talk.folder, "fork", FAILED | inputs, client(5))

    assert handed == []


def test_a_coding_agent_finds_the_decisive_turn_within_the_budget(
    talk: CommandFolder, handed: list[tuple[str, ...]]
) -> None:
    started = tool_answer(talk.folder, "blame", FAILED | {"forks": 40}, client(0.5))
    again = tool_answer(talk.folder, "blame", FAILED | {"again": True}, client(0.5))
    assert (started["status"], again["id"]) == ("planned", started["id"])  # it goes on
    assert _spent(talk) == 0.5  # all of the day until it is over
    with pytest.raises(UsageError, match="is held by search 1 until the end"):
        tool_answer(talk.folder, "fork", FAILED | {"turn": 2}, client(0.5))

    (command,) = handed
    assert talk.run(*command).exit_code == 0
    answer = tool_answer(talk.folder, "blame", FAILED, client(0.5))

    assert (answer["id"], answer["status"], answer["n_forks"]) == (started["id"], "finished", 39)
    assert (answer["answer"]["finding"], answer["answer"]["turn"]) == ("located", 2)
    assert answer == json.loads(json.dumps(answer))
    runs = [json.loads(talk.run("run", "info", str(run), "--json").stdout)["data"] for run in answer["runs"]]
    assert {run["note"] for run in runs} == {"Started through the door for coding agents."}
    assert _spent(talk) == answer["cost"] < 0.5
    assert talk.run(*command).exit_code == 0  # a search that is over plays nothing
    assert tool_answer(talk.folder, "blame", FAILED, client(0.5)) == answer


def _spent(talk: CommandFolder) -> float:
    desk = Desk.open(read_settings(talk.folder, (talk.folder,), environment={}))
    try:
        return round(spent_today(desk, lasting_budget(1).clock()), 6)  # type: ignore[misc]
    finally:
        asyncio.run(desk.close())
