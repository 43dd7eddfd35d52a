"""`evaldesk fork`: cost and tools first, then a run of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli.refund_case import REFUND_CASE

from evaldesk.cli import cli
from evaldesk.errors import NotFoundError, UsageError

AGENT = """
def agent(message, state):
    state["n"] = state.get("n", 0) + 1
    return "yes" if state.get("card", "good") == "good" else "no"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(AGENT)
    (tmp_path / "talk.evalset.json").write_text(json.dumps({"eval_set_id": "talk", "eval_cases": [REFUND_CASE]}))
    result = run(tmp_path, "eval", "shop:agent", "talk.evalset.json", "--n", "2")
    assert "0 of 2 passed" in result.output, result.output
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--workspace", str(folder)])


def test_a_fork_is_a_run_of_its_own_and_its_parent_stays(folder: Path) -> None:
    before = run(folder, "run", "info", "1", "--json").output

    unchanged = run(folder, "fork", "1:refund:1@3", "--n", "2", "--yes", "--json")
    mended = run(folder, "fork", "1:refund@2", "--n", "3", "--state", '{"card": "good"}', "--yes", "--json")

    assert (unchanged.exit_code, mended.exit_code) == (0, 0), mended.output
    first, second = json.loads(unchanged.stdout), json.loads(mended.stdout)
    assert (first["result"]["passed"], first["result"]["failed"], first["n_prefix_turns"]) == (0, 2, 2)
    assert first["parent"] == {"run": 1, "case_id": "refund", "trial": 1, "turn": 3, "call": None}
    assert (second["edits"], second["n_turns_left"]) == ([{"kind": "state", "value": {"card": "good"}}], 2)
    assert run(folder, "run", "info", "1", "--json").output == before
    assert [each["id"] for each in json.loads(run(folder, "run", "list", "--json").stdout)["items"]] == [1]


def test_the_plan_is_shown_and_nothing_is_played_without_a_yes(folder: Path) -> None:
    refused = run(folder, "fork", "1:refund@2")
    plan = run(folder, "fork", "1:refund@2", "--dry-run")

    assert isinstance(refused.exception, UsageError)
    assert "add --yes to play the fork, or --dry-run to see its plan" in str(refused.exception)
    assert plan.exit_code == 0
    for output in (refused.output, plan.output):
        assert "10 trials with 2 turns left each" in output
        assert "The turn before the point is pinned: taken from the record, not played again." in output
    assert isinstance(run(folder, "run", "info", "2").exception, NotFoundError)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["1:refund@9"], "the nearest point that can be forked is before turn 3"),
        (["1:refund"], "write RUN:CASE[:TRIAL]@TURN"),
        (["1@2"], "name the case as well"),
        (["1:refnd@2"], "did you mean"),
        (["1:refund:7@2"], "trial 7: not played yet"),
        (["1:refund@2", "--n", "0"], "a fork is played at least once"),
        (["1:refund@2", "--state", "{"], "--state"),
        (["1:refund@2", "--state", "[1]"], "a merge patch is an object"),
        (["1:refund@2", "--tool-result", "1"], "write N=VALUE"),
        (["1:refund@2", "--tool-result", "1=2"], "the turn before has no tool call"),
        (["1:refund@2", "--agent", "nobody"], "nobody"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_forked_is_refused_in_words(folder: Path, words: list[str], sentence: str) -> None:
    result = run(folder, "fork", *words, "--yes")

    assert isinstance(result.exception, UsageError | SystemExit)
    assert sentence in f"{result.output} {result.exception}"


@pytest.mark.parametrize("point", ["3.1", "3.2"])
def test_a_call_that_the_turn_does_not_have_is_refused_with_the_nearest_point(folder: Path, point: str) -> None:
    result = run(folder, "fork", f"1:refund:1@{point}", "--dry-run")

    assert isinstance(result.exception, UsageError), result.output
    assert "the turn has no model call; the nearest point that can be forked is before turn 3" in str(result.exception)


@pytest.mark.parametrize("point", ["3.", "3.x", "3.-1", "3.1.1", ".1"])
def test_a_point_inside_a_turn_has_the_number_of_a_call(folder: Path, point: str) -> None:
    result = run(folder, "fork", f"1:refund:1@{point}", "--dry-run")

    assert result.exit_code == 2
    assert "write RUN:CASE[:TRIAL]@TURN[.CALL]" in result.output
