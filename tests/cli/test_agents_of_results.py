"""The agents of a tree in result files: who called whom, how often, with tokens, cost and time."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

TREE = '''
from evaldesk import Event, ToolCall, Usage


def root_agent(message, state):
    """A lead that asks a scout, once for each word."""
    for number, word in enumerate(message.split()):
        ask, look = ToolCall("ask_scout", {"about": word}, f"a{number}"), ToolCall("look", {}, f"l{number}")
        yield Event("tool_call", author="lead", call=ask)
        yield Event("tool_call", author="=scout", parent="lead", within="ask_scout", call=look)
        below = {"author": "=scout", "parent": "lead", "within": "ask_scout"}
        yield Event("tool_result", call=look, result="no", is_error=True, **below)
        usage = Usage("m", tokens_in=10, tokens_out=5, cost=0.25)
        yield Event("usage", author="=scout", parent="lead", within="ask_scout", usage=usage)
        yield Event("tool_result", author="lead", call=ask, result="no")
    yield Event("agent_message", author="lead", text=message)
'''


@pytest.fixture
def tree(place: CommandFolder) -> CommandFolder:
    """A folder whose agent is a tree."""
    (place.agent / "agent.py").write_text(TREE)
    return place


def rows(place: CommandFolder, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((place.folder / name).read_text().splitlines()))


def test_the_tables_have_a_line_for_each_agent_of_a_trial(tree: CommandFolder) -> None:
    path = tree.evalset("first", {"one": "one", "one two": "three"})

    tree.eval(path, "-o", "a.agents.csv", "-o", "a.csv", "-o", "a.jsonl")

    keys = ("case_id", "verdict", "agent", "parent", "tool", "n_entries", "n_calls", "n_errors", "tokens", "cost")
    assert [tuple(row[key] for key in keys) for row in rows(tree, "a.agents.csv")] == [
        ("case_1", "passed", "lead", "", "", "1", "1", "0", "0", "0.0"),
        ("case_1", "passed", "'=scout", "lead", "ask_scout", "1", "1", "1", "15", "0.25"),
        ("case_2", "failed", "lead", "", "", "1", "2", "0", "0", "0.0"),
        ("case_2", "failed", "'=scout", "lead", "ask_scout", "2", "2", "2", "30", "0.5"),
    ]
    assert [row["agents"] for row in rows(tree, "a.csv")] == ["lead,\u200b=scout"] * 2  # no formula
    assert [json.loads(line)["agents"] for line in (tree.folder / "a.jsonl").read_text().splitlines()] == [
        "lead,=scout"
    ] * 2


def test_a_trial_of_one_agent_has_no_lines(place: CommandFolder) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")

    place.eval(place.evalset("first", {"one": "one"}), "-o", "a.agents.csv", "-o", "a.agents.parquet", "-o", "a.csv")

    assert rows(place, "a.agents.csv") == []
    assert (
        (place.folder / "a.agents.csv").read_text().startswith("run_id,evalset_id,case_id,trial_index,verdict,agent,")
    )
    frame = pd.read_parquet(place.folder / "a.agents.parquet")
    assert len(frame) == 0
    assert "parent" in frame.columns
    assert rows(place, "a.csv")[0]["agents"] == ""


def test_the_run_as_json_and_as_text_has_the_sums_of_each_agent(tree: CommandFolder) -> None:
    path = tree.evalset("first", {"one": "one", "one two": "three"})
    tree.eval(path, "-o", "a.json", "--summary", "s.md")

    of_result = json.loads((tree.folder / "a.json").read_text())["runs"][0]["agents"]
    answer = json.loads(tree.run("run", "info", "1", "--json").stdout)["data"]["results"]["agents"]
    text = tree.run("run", "info", "1").stdout

    assert of_result == answer
    keys = ("name", "parent", "n_trials", "n_failed", "n_entries", "n_calls", "tokens", "cost", "is_cost_least")
    assert [tuple(agent[key] for key in keys) for agent in answer] == [
        ("lead", "", 2, 1, 1 + 1, 3, 0, 0.0, False),
        ("=scout", "lead", 2, 1, 3, 3, 45, 0.75, False),
    ]
    assert "=scout, called 3 times by lead: 2 trials, 1 failed, 3 calls, 45 tokens, $0.75" in text
    summary = (tree.folder / "s.md").read_text()
    assert "<details><summary>2 agents</summary>" in summary
    assert "| `=scout` | `lead` | 3 | 1 | 0 | 3 | 45 | $0.75 |" in summary


def test_one_agent_leaves_the_summary_as_it_is(place: CommandFolder) -> None:
    place.eval(place.evalset("first", {"one": "one"}), "-o", "a.json", "--summary", "s.md")

    assert json.loads((place.folder / "a.json").read_text())["runs"][0]["agents"] == []
    assert "<details>" not in (place.folder / "s.md").read_text()
    assert "Agent of tree" not in place.run("run", "info", "1").stdout
