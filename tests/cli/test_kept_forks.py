"""Cases of forks: their first turns are pinned, so no trial plays them and nothing judges them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli.refund_case import REFUND_CASE

from evaldesk.cli import cli
from evaldesk.errors import UsageError

AGENT = """
from pathlib import Path


def agent(message, state, session):
    heard = [turn.query + "=" + turn.answer for turn in session.turns]
    with Path(__file__).with_name("heard.txt").open("a") as file:
        file.write(f"{message}|{heard}|{state.get('card')}\\n")
    return "yes" if state.get("card", "good") == "good" else "no"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(AGENT)
    (tmp_path / "talk.evalset.json").write_text(json.dumps({"eval_set_id": "talk", "eval_cases": [REFUND_CASE]}))
    result = run(tmp_path, "eval", "shop:agent", "talk.evalset.json")
    assert "0 of 1 passed" in result.output, result.output
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--workspace", str(folder)])


def _messages_of_agent(folder: Path) -> list[str]:
    path = folder / "heard.txt"
    lines = path.read_text().splitlines()
    path.unlink()
    return lines


def test_a_played_fork_becomes_a_case_whose_pinned_turns_are_neither_played_nor_judged(folder: Path) -> None:
    forked = run(folder, "fork", "1:refund:1@3", "--state", '{"card": "good"}', "--n", "1", "--yes", "--json")
    fork_id = json.loads(forked.stdout)["result"]["run"]
    _messages_of_agent(folder)

    result = run(folder, "fork", str(fork_id), "--keep", "pinned")
    (path,) = folder.rglob("pinned.evalset.json")
    file_case = json.loads(path.read_text())["eval_cases"][0]
    eval_result = run(folder, "eval", "shop:agent", str(path), "--n", "2")

    assert result.exit_code == 0, result.output
    assert "Turns 1 and 2 are pinned" in result.output
    assert "Case refund_from_turn_3 added to pinned, with 2 pinned turns." in result.output
    assert [each["user_content"]["parts"][0]["text"] for each in file_case["conversation"]] == ["one", "two", "three"]
    assert ["final_response" in each for each in file_case["conversation"]] == [False, False, True]
    assert len(file_case["evaldesk_pinned"]["turns"]) == 2
    assert file_case["provenance"] == {
        "run": 1, "case": "refund", "trial": 1, "turn": 3, "fork": fork_id, "edits": ["state"],
    }  # fmt: skip
    # the pinned answers were "no": judged, they would fail both trials
    assert "2 of 2 passed" in eval_result.output, eval_result.output
    assert _messages_of_agent(folder) == ["three|['one=no', 'two=no']|good"] * 2


def test_a_point_is_kept_without_playing_it_and_the_step_is_taken_back(folder: Path) -> None:
    _messages_of_agent(folder)
    first = run(folder, "fork", "1:refund:1@2", "--keep", "talk", "--json")
    second = run(folder, "fork", "1:refund:1@3", "--message", "last", "--keep", "talk", "--case", "own name")
    cases = json.loads((folder / "talk.evalset.json").read_text())["eval_cases"]

    assert (first.exit_code, second.exit_code) == (0, 0), second.output
    assert json.loads(first.stdout)["n_pinned"] == 1
    assert [each["eval_id"] for each in cases] == ["refund", "refund_from_turn_2", "own name"]
    assert cases[2]["conversation"][2]["user_content"]["parts"][0]["text"] == "last"
    assert not (folder / "heard.txt").exists()
    (line,) = [line for line in second.output.splitlines() if line.endswith("takes that back.")]
    undone = run(folder, *line.removeprefix("evaldesk ").removesuffix(" takes that back.").split())
    assert undone.exit_code == 0, undone.output
    assert [each["eval_id"] for each in json.loads((folder / "talk.evalset.json").read_text())["eval_cases"]] == [
        "refund",
        "refund_from_turn_2",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["1", "--keep", "talk"], "run 1 is not a fork"),
        (["1:refund:1", "--keep", "talk"], "name a fork by its run"),
        (["1:refund:1@9", "--keep", "talk"], "the nearest point that can be forked is before turn 3"),
        (["1:refund:1@2", "--keep", "talk", "--case", "refund"], "has a case 'refund' already"),
        (["1:refund:1@2", "--keep", "talk", "--case", "a\nb"], "No line breaks"),
        (["1:refund:1@2", "--case", "x"], "add --keep SET"),
        (["1", "--keep", "talk", "--message", "x"], "was played with its own edits"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_fork_that_cannot_be_kept_is_refused_in_words(folder: Path, words: list[str], sentence: str) -> None:
    before = (folder / "talk.evalset.json").read_bytes()

    result = run(folder, "fork", *words)

    assert isinstance(result.exception, UsageError | SystemExit)
    assert sentence in f"{result.output} {result.exception}"
    assert (folder / "talk.evalset.json").read_bytes() == before


@pytest.mark.parametrize(
    ("pinned", "sentence"),
    [
        ([], "must be an object with a list of turns"),
        ({"turns": []}, "must be an object with a list of turns"),
        ({"turns": [{}] * 3}, "none is left to play"),
        ({"turns": [{}] * 300}, "at most 200 can be pinned"),
        ({"turns": ["one"]}, "turn 1: expected an object"),
        ({"turns": [{"event": []}]}, "unknown key 'event'"),
        ({"turns": [{}, {"events": [{"kind": "shout"}]}]}, "turn 2: Invalid enum value 'shout'"),
        ({"turns": [{"events": [{"kind": "usage", "usage": {"model": "m", "tokens_in": -1}}]}]}, "turn 1:"),
        ({"turns": [{"state_after": 4}]}, "turn 1:"),
    ],
    ids=str,
)
def test_pinned_turns_that_cannot_be_read_are_refused_by_their_turn(
    folder: Path, pinned: object, sentence: str
) -> None:
    content = {"eval_set_id": "bad", "eval_cases": [REFUND_CASE | {"evaldesk_pinned": pinned}]}
    (folder / "bad.evalset.json").write_text(json.dumps(content))

    result = run(folder, "eval", "shop:agent", "bad.evalset.json")

    assert result.exit_code != 0
    assert sentence in f"{result.output} {result.exception}"
