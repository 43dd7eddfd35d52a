"""Pooled verdicts of ADK at every door: the pages, coding agents, a resumed run, and cases of several turns."""

from __future__ import annotations

import json
import random
import re
from html import unescape
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient
from tests.cli.door_calls import tool_answer

from evaldesk import evaluate
from evaldesk.desk.runs.gates.conclusion import POOLED
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.desk.trash import open_desk
from evaldesk.settings import read_settings
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

POOL = ("--criterion", "response_match_score=0.5", "--compat", "adk-pooled", "--concurrency", 1)
WORDS = {"one": "one", "flaky": "flaky", "two": "other"}
FAILED = "case_3 (response_match_score: the mean 0 over 2 turns of 2 runs does not reach 0.5)"


@pytest.fixture
def pooled(place: CommandFolder) -> CommandFolder:
    """A run of three cases, of which one passes though a trial failed, and one fails."""
    done = place.run("eval", place.agent, place.evalset("first", WORDS), *POOL, "--n", 2)
    assert done.exit_code == 1, done.output
    return place


def _pages(place: CommandFolder, *addresses: str) -> dict[str, str]:
    """The text of pages of a desk on that folder, without markup."""
    token = "a-token-of-enough-letters"
    with open_desk(read_settings(place.folder, (place.folder,), environment={})) as desk:
        client = TestClient(
            create_app(desk, guard_settings(token, 8420)),
            base_url="http://127.0.0.1:8420",
            headers={"Cookie": f"evaldesk-8420={token}"},
        )
        answers = {address: client.get(address) for address in addresses}
    assert {answer.status_code for answer in answers.values()} == {200}
    return {name: " ".join(unescape(re.sub(r"<[^>]+>", " ", each.text)).split()) for name, each in answers.items()}


def test_each_page_says_the_pooled_verdict(pooled: CommandFolder) -> None:
    pages = _pages(pooled, "/runs/1", "/runs", "/gates", "/runs/1/cases/2/trials/0", "/runs/new?from=1")

    assert "Failed. Every case must pass in the mean: 2 of 3 cases reached the thresholds" in pages["/runs/1"]
    assert FAILED in pages["/runs/1"]
    assert "3 of 6 passed" in pages["/runs/1"], "the head counts single trials"
    assert "failed" in pages["/runs"]


def test_a_coding_agent_gets_the_same_answer_as_the_command(pooled: CommandFolder) -> None:
    told = tool_answer(pooled.folder, "get_run", {"run": "1"})
    shown = json.loads(pooled.run("run", "info", 1, "--json").output)

    assert FAILED in json.dumps(told)
    assert FAILED in json.dumps(shown)


def test_a_pooled_gate_has_no_forecast_and_says_so(pooled: CommandFolder) -> None:
    told = tool_answer(pooled.folder, "explain_gate", {"run": "1"})
    shown = pooled.run("gate", "explain", "--from", 1)
    of_trials = pooled.run("gate", "explain", "--from", 1, "--min-pass-rate", 0.9)

    assert told["measured_sentence"].startswith("No forecast: the cases of this run pass by the means of their scores")
    assert "A case passes by the means of its scores over all trials." in shown.output
    assert told["measured_sentence"] in shown.output
    assert "no gate about verdicts" not in shown.output
    assert "--min-pass-rate 0.9: " in of_trials.output
    assert "No forecast" not in of_trials.output


def test_a_run_with_trials_left_is_judged_when_it_is_resumed(place: CommandFolder) -> None:
    place.run("eval", place.agent, place.evalset("first", WORDS), *POOL, "--n", 2)
    with place.store() as store:
        cases = [store.runs.case(1, index) for index in range(3)]
        run_id = store.runs.create(store.runs.summary(1).config, cases)
        store.runs.set_status(run_id, "stopped")
        runs = StoredRuns(store.runs)
        before = runs.conclusion(runs.summary(run_id)).outcome

        resumed = place.run("run", "resume", run_id)

        conclusion = runs.conclusion(runs.summary(run_id))
    assert before == "interrupted"
    assert resumed.exit_code == 1, resumed.output
    assert FAILED in resumed.output
    assert [gate.names for gate in conclusion.gates if gate.name == POOLED] == [("case_3",)]


@pytest.mark.parametrize("seed", range(30))
def test_a_case_of_several_turns_passes_by_the_mean_over_all_turns_of_all_trials(
    place: CommandFolder, seed: int
) -> None:
    chance = random.Random(seed)
    threshold, n = chance.choice([0.25, 0.5, 0.75]), chance.randint(1, 4)
    turns = {f"case_{number}": chance.randint(1, 3) for number in range(4)}
    is_right = {name: [[chance.random() < 0.5 for _ in range(size)] for _ in range(n)] for name, size in turns.items()}
    answers = {name: iter([right for trial in trials for right in trial]) for name, trials in is_right.items()}
    cases: list[dict[str, Any]] = [
        {
            "eval_id": name,
            "conversation": [
                {"user_content": {"parts": [{"text": name}]}, "final_response": {"parts": [{"text": "yes"}]}}
                for _ in range(size)
            ],
        }
        for name, size in turns.items()
    ]
    path = place.folder / "several.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "several", "eval_cases": cases}))

    def agent(message: str, state: dict[str, Any]) -> str:
        return "yes" if next(answers[message]) else "no"

    criteria = {"response_match_score": threshold}
    result = evaluate(agent, path, criteria=criteria, n=n, concurrency=1, compat="adk-pooled")

    means = {name: fmean(right for trial in trials for right in trial) for name, trials in is_right.items()}
    (gate,) = (gate for gate in result.conclusion.gates if gate.name == POOLED)
    assert [*gate.names] == [name for name, mean in means.items() if mean < threshold]
    assert result.conclusion.outcome == ("failed" if gate.names else "passed")
