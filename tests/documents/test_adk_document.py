"""The document on ADK's evaluation: its files, tests and commands are read and run as they are printed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from tests.cli.conftest import CommandFolder
from tests.documents.conftest import Snippets
from tests.documents.statements import commands_of

from evaldesk import match_trajectory
from evaldesk.agents.discovery import find_agents
from evaldesk.cli import cli
from evaldesk.errors import FormatError
from evaldesk.formats.files import read_file
from evaldesk.metrics import METRICS
from evaldesk.model import DEFAULT_CRITERIA, EvalSet

DOCUMENT = "adk_evaluation"


def _evalset(text: str, name: str) -> EvalSet:
    found = read_file(text.encode(), name).evalset
    assert found is not None
    return found


def test_the_trajectories_of_the_document_match(snippets: Snippets) -> None:
    names: dict[str, list[str]] = {}
    exec("\n".join(snippets(DOCUMENT)["trajectories"][1:]), names)  # noqa: S102 - two lists of names
    expected, actual = ([{"name": name} for name in names[key]] for key in ("expected_steps", "actual_steps"))

    assert match_trajectory(expected, actual).score == 1.0
    assert match_trajectory(expected, actual[::-1]).score == 0.0


def test_each_way_to_compare_is_a_metric() -> None:
    expected = [{"name": name} for name in ("a", "b")]
    more, turned = [{"name": "a"}, {"name": "x"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}]

    scores = {
        order: [match_trajectory(expected, actual, order=order).score for actual in (expected, more, turned)]
        for order in ("exact", "in_order", "any_order")
    }

    assert scores == {"exact": [1, 0, 0], "in_order": [1, 1, 0], "any_order": [1, 1, 1]}
    found = match_trajectory(expected, more, order="in_order")
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == 1.0
    assert set(METRICS) >= {
        "tool_exact",
        "tool_in_order",
        "tool_any_order",
        "tool_precision",
        "tool_recall",
        "tool_used",
    }


def test_the_test_file_of_the_document_is_refused_for_its_trailing_comma(snippets: Snippets) -> None:
    lines = snippets(DOCUMENT)["test_file"]

    with pytest.raises(FormatError, match=r"trailing comma at line 18; take the comma out") as refused:
        read_file("\n".join(lines).encode(), "evaluation.test.json")

    assert (lines[17], refused.value.line) == ('"expected_intermediate_agent_responses": [],', 18)


def test_the_test_file_of_the_document_is_read_without_its_fault(snippets: Snippets) -> None:
    lines = snippets(DOCUMENT)["test_file"]
    lines[17] = lines[17].rstrip(",")

    (case,) = _evalset("\n".join(lines), "evaluation.test.json").cases

    assert [turn.query for turn in case.turns] == ["hello", "a die, please", "is it late?"]
    assert [[call.name for call in turn.expected.tool_calls or ()] for turn in case.turns] == [[], ["roll_die"], []]
    assert [turn.expected.reference is None for turn in case.turns] == [False, True, False]


@pytest.fixture
def folder(place: CommandFolder, snippets: Snippets) -> CommandFolder:
    """The agent and the eval set of the document, in the folders that its commands name."""
    agent = place.folder / "samples_for_testing/hello_world"
    agent.mkdir(parents=True)
    (agent / "__init__.py").write_text("from . import agent\n")
    (agent / "agent.py").write_text((place.agent / "agent.py").read_text())
    (agent / "hello_world_eval_set_001.evalset.json").write_text("\n".join(snippets(DOCUMENT)["evalset"]))
    (place.folder / "criteria.json").write_text(json.dumps({"criteria": {"response_match_score": 0.1}}))
    return place


def _words(command: str) -> list[str]:
    return shlex.split(command)[1:]


def test_the_eval_set_of_the_document_is_played(folder: CommandFolder, snippets: Snippets) -> None:
    first, second = _evalset("\n".join(snippets(DOCUMENT)["evalset"]), "x.evalset.json").cases

    done = folder.run(*_words(commands_of("\n".join(snippets(DOCUMENT)["eval_example"]), "adk")[0]))

    assert done.exit_code == 1, done.output
    assert (len(first.turns), len(second.turns)) == (3, 2)
    assert (first.initial_session and first.initial_session.app_name, first.initial_state) == ("hello_world", {})
    with folder.store() as store:
        (run,) = store.runs.list()
        assert (run.counts.planned, run.counts.failed) == (2, 2)
        assert list(store.runs.case_ids(run.id).values()) == [first.id, second.id]


def test_the_default_criteria_are_those_of_the_document(document: Callable[[str], str]) -> None:
    told = document(DOCUMENT).partition("若未提供评估标准")[2]

    assert [(each.metric, each.threshold) for each in DEFAULT_CRITERIA] == [
        ("tool_trajectory_avg_score", 1.0),
        ("response_match_score", 0.8),
    ]
    assert all(
        told.find(words) >= 0 for words in ("tool_trajectory_avg_score\n:默认为1.0", "response_match_score\n:默认为0.8")
    )


def test_the_commands_of_the_document_are_carried_out(folder: CommandFolder, document: Callable[[str], str]) -> None:
    general, example = _commands(document)
    agent, evalset = _words(example)[1:]
    chosen = "roll_17_sided_dice_twice"
    filled = (
        general.replace("<AGENT_MODULE_FILE_PATH>", agent)
        .replace("<EVAL_SET_FILE_PATH>", f"{evalset}:{chosen}")
        .replace("[--config_file_path=<PATH_TO_TEST_JSON_CONFIG_FILE>]", "--config_file_path=criteria.json")
        .replace("[--print_detailed_results]", "--print_detailed_results")
    )

    done = folder.run(*_words(filled))
    by_init = folder.run(*_words(filled.replace(agent, f"{agent}/__init__.py", 1)))

    for each in (done, by_init):
        assert each.exit_code in (0, 1), f"{each.output}{each.exception!r}"
        assert chosen in each.output
        assert "What can you do?" in each.output
    with folder.store() as store:
        for run in store.runs.list():
            assert list(store.runs.case_ids(run.id).values()) == [chosen]
            assert [(each.metric, each.threshold) for each in run.config.criteria] == [("response_match_score", 0.1)]


def _commands(document: Callable[[str], str]) -> list[str]:
    """The command with its options, and the example."""
    return [each for each in commands_of(document(DOCUMENT), "adk") if each != "adk eval" and " eval " in each]


def test_the_web_command_of_the_document_finds_the_agent(folder: CommandFolder, snippets: Snippets) -> None:
    (line,) = snippets(DOCUMENT)["web"]
    words = shlex.split(line)[3:]
    command = cli.get_command(click.Context(cli), "ui")
    assert command is not None

    with command.make_context("ui", list(words)):
        pass

    assert line == "bash adk web samples_for_testing"
    assert [agent.id for agent in find_agents([Path(word) for word in words])] == ["hello_world"]


def test_the_session_file_of_the_document_is_valid(place: CommandFolder, snippets: Snippets) -> None:
    (place.folder / "initial.session.json").write_text("\n".join(snippets(DOCUMENT)["session"]))

    done = place.run("validate", "initial.session.json")

    assert done.exit_code == 0
    assert "A session to start from, without a turn: app 'trip_planner_agent'" in done.output
