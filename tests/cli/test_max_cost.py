"""`--max-cost` ends a run as soon as it is too expensive, and says so."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from evaldesk.engine import ChatPlayers
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

DEAR = """
from evaldesk.model import Event, Usage


class Dear:
    tells_cost = True

    async def reply(self, session, message):
        price = None if message == "unpriced" else 0.1
        yield Event("usage", usage=Usage("dear", 10, 1, cost=price))
        yield Event("agent_message", text=message)


root_agent = Dear()
"""


UNPRICED = """
from evaldesk import LlmAgent

root_agent = LlmAgent(name="unpriced", model="nobody/knows")
"""

JUDGED = {"threshold": 0.5, "judge_model": "ollama/judge", "rubrics": ["Is kind."]}


@pytest.fixture
def dear(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> CommandFolder:
    async def unpriced(self: ChatPlayers, ref: AgentRef, models: Sequence[str]) -> tuple[str, ...]:
        return tuple(model for model in models if not model.startswith("demo/"))

    monkeypatch.setattr(ChatPlayers, "unpriced", unpriced)
    (place.agent / "agent.py").write_text(DEAR)
    return place


@pytest.fixture
def unpriced(dear: CommandFolder) -> CommandFolder:
    (dear.agent / "agent.py").write_text(UNPRICED)
    return dear


def test_a_run_that_costs_too_much_begins_no_more_trials(dear: CommandFolder) -> None:
    path = dear.evalset("words", {"one": "one", "two": "two", "three": "three"})

    result = dear.eval(path, "--n", 4, "--concurrency", 2, "--max-cost", 0.3, "--min-pass-rate", 0.5)

    with dear.store() as store:
        summary = store.runs.summary(1)
    # The fourth trial is more than 30 cents, and one other is in flight by then.
    done, todo = summary.n_done, summary.n_todo
    assert (summary.status, done, todo) == ("stopped", 5, 7)
    assert result.exit_code == 1, result.output
    cost = f"{done / 10:.2f}"
    assert f"The trials cost ${cost}, more than the limit of $0.3, so {todo} trials were not started." in result.stdout
    failed = f"the run cost ${cost}, more than $0.3; it was stopped, and {todo} of 12"
    assert f"✗ failed --max-cost: {failed}" in result.stdout
    assert "? open   --min-pass-rate" in result.stdout
    assert f"Stopped: {done} of 12 trials are done and stored. Continue with: evaldesk run resume 1" in result.stderr


def test_a_run_within_its_cost_is_played_to_the_end(dear: CommandFolder) -> None:
    path = dear.evalset("words", {"one": "one", "two": "two", "three": "three"})

    result = dear.eval(path, "--max-cost", 0.3)

    assert result.exit_code == 0, result.output
    assert "✓ held   --max-cost: the run cost $0.30, within $0.3" in result.stdout


def test_the_eval_sets_of_a_command_share_one_limit(dear: CommandFolder) -> None:
    paths = [dear.evalset(name, {"one": "one", "two": "two"}) for name in ("first", "second", "third")]

    result = dear.eval(*paths, "--max-cost", 0.25, "--concurrency", 1, "--json")

    all_passed, cost = json.loads(result.stdout)["gates"]
    assert result.exit_code == 1
    assert (all_passed["answer"], all_passed["sentence"]) == ("undecided", "3 of 6 trials passed (3 not played)")
    assert cost["sentence"].startswith("the run cost $0.30, more than $0.25; it was stopped, and 3 of 6")
    assert "run resume 2" in result.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "the price of 'nobody/knows' is not known, so its cost has no limit; say price_in and price_out, in US"),
        (("--check",), "under [model] in evaldesk.toml"),
        (("--model", "ollama/one"), "the price of 'ollama/one' is not known"),
    ],
    ids=["its own model", "check", "another model"],
)
def test_a_model_without_a_price_is_refused_before_the_start(
    unpriced: CommandFolder, more: tuple[str, ...], said: str
) -> None:
    result = unpriced.eval(unpriced.evalset("words", {"one": "one"}), "--max-cost", 1, *more)

    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)
    with unpriced.store() as store:
        assert not store.runs.list()


def test_a_simulated_user_and_a_judge_without_a_price_are_refused(dear: CommandFolder) -> None:
    path = dear.folder / "scenario.evalset.json"
    scenario = {"eval_id": "a", "conversation_scenario": {"starting_prompt": "Hi", "conversation_plan": "Ask."}}
    path.write_text(json.dumps({"eval_set_id": "scenario", "eval_cases": [scenario]}))
    (dear.folder / "test_config.json").write_text(
        json.dumps({"criteria": {"rubric_based_final_response_quality_v1": JUDGED}})
    )

    user = dear.eval(path, "--max-cost", 1, "--user-model", "ollama/user")
    judge = dear.eval(path, "--max-cost", 1, "--user-model", "demo/user")

    assert "the price of 'ollama/user' is not known" in str(user.exception)
    assert "under [user.options] in evaldesk.toml" in str(user.exception)
    assert "the price of 'ollama/judge' is not known" in str(judge.exception)


@pytest.mark.parametrize("said", ["[model]\nprice_in = 1\nprice_out = 2\n", 'recording = "replay"\n'])
def test_a_price_that_is_said_or_a_recording_needs_no_other(unpriced: CommandFolder, said: str) -> None:
    (unpriced.folder / "evaldesk.toml").write_text(said)

    result = unpriced.eval(unpriced.evalset("words", {"one": "one"}), "--max-cost", 1, "--check")

    assert result.exit_code == 0, result.output


def test_a_recording_that_may_lack_an_answer_needs_a_price(unpriced: CommandFolder) -> None:
    (unpriced.folder / "evaldesk.toml").write_text('recording = "auto"\n')

    result = unpriced.eval(unpriced.evalset("words", {"one": "one"}), "--max-cost", 1, "--check")

    assert "the price of 'nobody/knows' is not known" in str(result.exception)


REPORTING = """
from evaldesk.model import Event, Usage


def root_agent(message):
    if message != "silent":
        yield Event("usage", usage=Usage("dear", 10, 1, cost=0.1))
    yield Event("agent_message", text=message)
"""


COMMAND = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)["message"]
    if message != "silent":
        print(json.dumps({"kind": "usage", "model": "dear", "tokens_in": 10, "tokens_out": 1, "cost": 0.1}))
    print(json.dumps({"kind": "message", "text": message}))
    print(json.dumps({"kind": "done"}), flush=True)
"""
"""Its model calls are not seen, so that only it can tell their cost."""


@pytest.fixture
def command(dear: CommandFolder) -> str:
    """The spec of the command."""
    (dear.folder / "command.py").write_text(COMMAND)
    return f"command:{sys.executable} -S command.py"


@pytest.mark.parametrize("kind", ["python", "command"])
def test_an_agent_that_reports_its_cost_is_played_within_the_limit(
    kind: str, dear: CommandFolder, command: str
) -> None:
    (dear.agent / "agent.py").write_text(REPORTING)
    path = dear.evalset("words", {"one": "one", "two": "two"})
    agent = dear.agent if kind == "python" else command
    given = ("eval", agent, path, "--config-file-path", dear.folder / "test_config.json", "--concurrency", 1)

    within = dear.run(*given, "--max-cost", 0.3)
    beyond = dear.run(*given, "--max-cost", 0.05)

    assert within.exit_code == 0, within.output
    assert "✓ held   --max-cost: the run cost $0.20, within $0.3" in within.stdout
    assert beyond.exit_code == 1
    assert "1 trial was not started" in beyond.output


def test_a_run_stops_as_soon_as_a_finished_trial_does_not_tell_its_cost(dear: CommandFolder, command: str) -> None:
    path = dear.evalset("words", {"one": "one", "silent": "silent", "two": "two", "three": "three"})
    given = ("--config-file-path", dear.folder / "test_config.json", "--concurrency", 1)

    stopped = dear.run("eval", command, path, *given, "--max-cost", 1)
    with dear.store() as store:
        (run,) = store.runs.list()
    resumed = dear.run("run", "resume", "1")

    assert (stopped.exit_code, run.status) == (3, "stopped"), stopped.output
    assert (
        "does not tell its cost, so that the limit of $1 cannot be kept, and 2 trials were not started." in run.reason
    )
    assert "--max-cost: the cost of at least 1 trial is not known, so the run cannot be held to $1" in stopped.stdout
    assert resumed.exit_code == 3, resumed.output
    with dear.store() as store:
        assert store.runs.summary(1).status == "finished"


def test_a_silent_trial_of_a_function_does_not_tell_its_cost(dear: CommandFolder) -> None:
    """Its calls by gRPC, and those of processes that it starts, are not noticed."""
    path = dear.evalset("words", {"one": "one", "silent": "silent", "two": "two"})
    (dear.agent / "agent.py").write_text(REPORTING)

    stopped = dear.eval(path, "--max-cost", 1, "--concurrency", 1)
    unlimited = dear.eval(path, "--json")

    assert stopped.exit_code == 3, stopped.output
    assert "Trial 1 of case 'case_2' does not tell its cost, so that the limit of $1 cannot be kept" in stopped.stdout
    assert "An agent that reports the cost of each call, or makes none, says tells_cost = true." in stopped.stdout
    assert json.loads(unlimited.stdout)["runs"][0]["cost"] == 0.2


def test_a_silent_trial_costs_nothing_where_the_function_promises_to_tell(dear: CommandFolder) -> None:
    (dear.agent / "agent.py").write_text(f"{REPORTING}\nroot_agent.tells_cost = True\n")

    result = dear.eval(dear.evalset("words", {"one": "one", "silent": "silent", "two": "two"}), "--max-cost", 1)

    assert result.exit_code == 0, result.output
    assert "✓ held   --max-cost: the run cost $0.20, within $1" in result.stdout


def test_a_cost_that_is_not_known_does_not_hold(dear: CommandFolder) -> None:
    result = dear.eval(dear.evalset("words", {"unpriced": "unpriced"}), "--max-cost", 1)

    assert result.exit_code == 3
    assert "the cost of 1 trial is not known" in result.stdout


def test_prices_do_not_make_the_cost_of_calls_that_are_not_seen_known(dear: CommandFolder, command: str) -> None:
    (dear.folder / "evaldesk.toml").write_text("[model]\nprice_in = 1\nprice_out = 2\n")
    path = dear.evalset("words", {"silent": "silent"})
    given = ("eval", command, path, "--config-file-path", dear.folder / "test_config.json")

    limited = dear.run(*given, "--max-cost", 1)
    played = dear.run(*given, "--json")
    listed = dear.run("run", "info", "1")

    assert limited.exit_code == 3, limited.output
    assert json.loads(played.stdout)["runs"][0]["cost"] is None
    assert "not known" in next(line for line in listed.stdout.splitlines() if line.startswith("Cost"))
