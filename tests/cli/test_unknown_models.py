"""A variant whose model no provider has is refused before any trial, at every door, by its name and with a way out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import lasting_budget, tool_answer

import evaldesk
from evaldesk import LlmAgent
from evaldesk.errors import EvaldeskError
from evaldesk.pages.door.tools import Caller

ANSWERS = {"one": "one", "two": "two"}
FAULT = "variant 'antropic/x': the model 'antropic/x': no provider is named 'antropic'; did you mean 'anthropic'?"
FILE = (
    '[experiment]\nagent = "asking"\nevalset = "shop.evalset.json"\ncriteria = "test_config.json"\n'
    '[[variants]]\nmodel = "demo/dice"\n[[variants]]\nmodel = "antropic/x"\n'
)
COMMANDS: dict[str, list[str]] = {
    "--vary": ["eval", "asking", "shop.evalset.json", "--vary", "model=demo/dice,antropic/x"],
    "--model twice": ["eval", "asking", "shop.evalset.json", "--model", "demo/dice", "--model", "antropic/x"],
    "a plan": ["eval", "asking", "shop.evalset.json", "--vary", "model=demo/dice,antropic/x", "--check"],
    "run play": ["run", "play", "trial.toml"],
    "run submit": ["run", "submit", "trial.toml", "--yes"],
}


@pytest.fixture
def asking(place: CommandFolder) -> CommandFolder:
    """A place whose agent asks models by their names."""
    folder = place.folder / "asking"
    folder.mkdir()
    (folder / "agent.py").write_text("from evaldesk import LlmAgent\nroot_agent = LlmAgent('asking', 'demo/dice')\n")
    place.evalset("shop", ANSWERS)
    (place.folder / "trial.toml").write_text(FILE)
    return place


def n_runs(place: CommandFolder) -> int:
    """The stored runs; none without a workspace."""
    return len(place.store().runs.list()) if (place.folder / ".evaldesk/evaldesk.db").exists() else 0


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_refuses_it(asking: CommandFolder, command: list[str]) -> None:
    result = asking.run(*command)

    assert isinstance(result.exception, EvaldeskError), result.output
    assert FAULT in str(result.exception)
    assert n_runs(asking) == 0


def test_an_experiment_is_not_extended_by_it(asking: CommandFolder) -> None:
    begun = asking.run("eval", "asking", "shop.evalset.json", "--vary", "temperature=0,1", "--n", 1)

    result = asking.run("experiment", "add", 1, "--vary", "model=antropic/x")

    assert begun.exit_code == 0, begun.output
    assert FAULT in str(result.exception)
    assert n_runs(asking) == 2


def test_a_single_run_of_it_is_refused_as_well(asking: CommandFolder) -> None:
    result = asking.run("eval", "asking", "shop.evalset.json", "--model", "antropic/x")

    assert FAULT.partition(": ")[2] in str(result.exception)
    assert n_runs(asking) == 0


def test_a_run_at_an_address_of_its_own_may_name_any_model(asking: CommandFolder) -> None:
    result = asking.run(
        "eval", "asking", "shop.evalset.json", "--model", "antropic/x", "--base-url", "http://127.0.0.1:9/v1", "--check"
    )

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("agent", ["asking", LlmAgent("asking", "demo/dice")], ids=["by name", "an object"])
def test_python_refuses_it(asking: CommandFolder, agent: Any) -> None:
    with pytest.raises(EvaldeskError, match=FAULT.replace("?", r"\?")):
        evaldesk.evaluate(
            agent, "shop.evalset.json", workspace=".", variants=[{"model": "demo/dice"}, {"model": "antropic/x"}]
        )
    assert n_runs(asking) == 0


JUDGED = {"criteria": {"rubric_based_final_response_quality_v1": {"threshold": 0.5, "rubrics": ["Is kind."]}}}
JUDGE_FAULT = (
    "the judge 'antropic/x' of rubric_based_final_response_quality_v1: "
    "no provider is named 'antropic'; did you mean 'anthropic'?"
)
USER_FAULT = "the simulated user (antropic/x): no provider is named 'antropic'; did you mean 'anthropic'?"


def judge(place: CommandFolder, **options: Any) -> None:
    """Have the eval set judged by a model of these options."""
    (criterion,) = JUDGED["criteria"].values()
    criteria = {name: {**criterion, **options} for name in JUDGED["criteria"]}
    (place.folder / "test_config.json").write_text(json.dumps({"criteria": criteria}))


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    "options",
    [{"judge_model": "antropic/x"}, {"judge_model_options": {"judge_models": ["demo/judge", "antropic/x"]}}],
    ids=["one judge", "one of two"],
)
def test_a_judge_that_no_provider_has_is_refused_by_a_command(
    asking: CommandFolder, command: list[str], options: dict[str, Any]
) -> None:
    judge(asking, **options)
    (asking.folder / "trial.toml").write_text(FILE.replace("antropic/x", "demo/trips"))
    words = [each.replace("antropic/x", "demo/trips") for each in command]

    result = asking.run(*words, *(("--config-file-path", "test_config.json") if words[0] == "eval" else ()))

    assert JUDGE_FAULT in str(result.exception), result.output
    assert n_runs(asking) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"judge_model": "demo/judge"},
        {"judge_model": "antropic/x", "judge_model_options": {"base_url": "http://127.0.0.1:9/v1"}},
        {"judge_model": "ollama/of-this-house"},
    ],
    ids=["a scripted one", "an address", "a model that its provider knows"],
)
def test_a_judge_that_may_be_asked_is_planned(asking: CommandFolder, options: dict[str, Any]) -> None:
    judge(asking, **options)

    result = asking.run("eval", "asking", "shop.evalset.json", "--config-file-path", "test_config.json", "--check")

    assert result.exit_code == 0, repr(result.exception)


def test_any_name_is_a_judge_at_the_server_of_the_environment(
    asking: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:9/v1")
    judge(asking, judge_model="of-this-house")

    result = asking.run("eval", "asking", "shop.evalset.json", "--config-file-path", "test_config.json", "--check")

    assert result.exit_code == 0, repr(result.exception)


def test_a_function_among_the_criteria_may_register_the_provider_of_a_judge(asking: CommandFolder) -> None:
    judge(asking, judge_model="antropic/x")
    (asking.folder / "own_metrics.py").write_text("def kind(transcript):\n    return 1.0\n")
    path = asking.folder / "test_config.json"
    criteria = json.loads(path.read_text())["criteria"]
    path.write_text(json.dumps({"criteria": {**criteria, "own_metrics:kind": 0.5}}))

    result = asking.run("eval", "asking", "shop.evalset.json", "--config-file-path", path, "--check")

    assert result.exit_code == 0, repr(result.exception)


@pytest.mark.parametrize("more", [(), ("--vary", "temperature=0,1")], ids=["a run", "an experiment"])
def test_a_simulated_user_that_no_provider_has_is_refused(asking: CommandFolder, more: tuple[str, ...]) -> None:
    scenario = {"eval_id": "a", "conversation_scenario": {"starting_prompt": "Hi", "conversation_plan": "Ask."}}
    (asking.folder / "talk.evalset.json").write_text(json.dumps({"eval_set_id": "talk", "eval_cases": [scenario]}))
    options = ("--criterion", "response_match_score=0.8", "--user-model", "antropic/x")

    of_scenario = asking.run("eval", "asking", "talk.evalset.json", *options, *more)
    of_turns = asking.run("eval", "asking", "shop.evalset.json", *options, "--check")

    assert USER_FAULT in str(of_scenario.exception), of_scenario.output
    assert n_runs(asking) == 0
    assert of_turns.exit_code == 0, "no user is simulated where all cases have turns"


def test_python_refuses_a_judge_that_no_provider_has(asking: CommandFolder) -> None:
    judge(asking, judge_model="antropic/x")

    with pytest.raises(EvaldeskError, match="the judge 'antropic/x'"):
        evaldesk.evaluate("asking", "shop.evalset.json", workspace=".", criteria="test_config.json")
    assert n_runs(asking) == 0


def test_a_coding_agent_is_refused_it_before_any_trial(asking: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over", lambda *_: pytest.fail("nothing is to be played"))
    path = asking.folder / "shop.evalset.json"
    criteria = {name: {**each, "judge_model": "antropic/x"} for name, each in JUDGED["criteria"].items()}
    path.write_text(json.dumps({**json.loads(path.read_text()), "criteria": criteria}))
    asking.run("eval", "asking", "shop.evalset.json", "--criterion", "response_match_score=0.8", "--check")
    caller = Caller(allowed=frozenset({"run"}), budget=lasting_budget(5))

    with pytest.raises(EvaldeskError, match="the judge 'antropic/x'"):
        tool_answer(asking.folder, "start_run", {"agent": "asking", "set": "shop"}, caller)
    assert n_runs(asking) == 0
