"""`evaldesk set health`, also called `evaldesk evalset health`: findings, the tools of an agent, and `--fail-on`."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import tool_answer

TWO = {"hello there": "hello there", "Hello there!": "good day", "the word is swordfish": "swordfish"}


@pytest.fixture
def words(place: CommandFolder) -> CommandFolder:
    place.evalset("words", TWO)
    assert place.eval(place.folder / "words.evalset.json", "--n", 2).exit_code == 1
    return place


@pytest.mark.parametrize("group", ["set", "evalset"])
def test_findings_are_printed_with_count_cases_and_action(words: CommandFolder, group: str) -> None:
    result = words.run(group, "health", "words")

    assert result.exit_code == 0
    assert "words: 3 cases read; one contradiction? (3 cases, 1 run of 1 agent version)" in result.stdout
    assert "contradictions: 1. case_2 says what case_1 says (1.00 alike) and expects another reference. Open both" in (
        result.stdout
    )
    assert "answers_in_prompt: 2. case_1: hello there stands in the user" in result.stdout
    assert "needs more runs: “flaky” 4 more runs" in result.stdout


def test_a_build_fails_by_the_named_findings_only(words: CommandFolder) -> None:
    failing = words.run("set", "health", "words", "--fail-on", "never,contra")
    holding = words.run("set", "health", "words", "--fail-on", "never_passed,flaky")

    assert (failing.exit_code, holding.exit_code) == (1, 0)
    assert failing.stderr == "evaldesk: --fail-on found contradictions 1\n"
    assert holding.stderr == ""


def test_a_named_agent_is_loaded_and_its_tools_are_looked_at(words: CommandFolder) -> None:
    agent = words.agent.name

    answer = json.loads(words.run("set", "health", "words", "--agent", agent, "--json").stdout)

    assert (answer["agent"], answer["agent_error"], answer["tools"]) == (agent, "", [])
    assert answer["cases"][0]["scored"] == 2
    assert answer == tool_answer(words.folder, "health", {"set": "words", "agent": agent})


def test_an_agent_that_is_not_here_or_a_wrong_kind_is_refused(words: CommandFolder) -> None:
    unknown = words.run("set", "health", "words", "--agent", "nobody")
    wrong = words.run("set", "health", "words", "--fail-on", "untested")

    assert unknown.exception is not None
    assert "nobody" in str(unknown.exception)
    assert "untested_tools" in str(wrong.exception)


def test_an_agent_that_does_not_load_leaves_its_tools_out_and_says_so(words: CommandFolder) -> None:
    (words.agent / "agent.py").write_text("raise RuntimeError('gone')")
    for module in words.agent.glob("__init__.py"):
        module.write_text("raise RuntimeError('gone')")

    result = words.run("set", "health", "words", "--agent", words.agent.name)

    assert result.exit_code == 0
    assert f"tools of {words.agent.name} are left out" in result.stdout
