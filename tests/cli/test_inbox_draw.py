"""`evaldesk inbox draw`: what is drawn, the share of failures once labels tell it, and cases of a draw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conversations import put_conversation
from tests.forked_commands import ForkedCommands

from evaldesk.store import Store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A workspace with 2 conversations with errors, 3 with bad feedback and 10 others, 2 of which are twins."""
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store:
        for number in range(15):
            put_conversation(
                store,
                f"Question {number}",
                has_error=number < 2,
                feedback=-1.0 if 2 <= number < 5 else None,
                source="shop",
                twin_group="same" if number in (8, 9) else f"question {number}",
            )
    return tmp_path


def run(commands: ForkedCommands, home: Path, *words: str) -> str:
    result = commands.run("inbox", *words, "--workspace", str(home), cwd=home)
    assert result.returncode == 0, result.stderr
    return result.stdout


def as_json(commands: ForkedCommands, home: Path, *words: str) -> Any:
    return json.loads(run(commands, home, *words, "--json"))


STRATA = ("--strata", "error:all", "feedback<0:2", "rest:4")


def test_a_draw_has_the_sizes_of_its_strata_and_the_same_seed_draws_the_same(
    home: Path, commands: ForkedCommands
) -> None:
    first = as_json(commands, home, "draw", *STRATA, "--seed", "7")
    again = as_json(commands, home, "draw", *STRATA, "--seed", "7")

    assert [(each["name"], each["size"], each["drawn"]) for each in first["strata"]] == [
        ("error", 2, 2),
        ("feedback<0", 3, 2),
        ("rest", 10, 4),
    ]
    assert first["conversations"] == again["conversations"]
    assert len({each["id"] for each in first["conversations"]}) == 8
    assert as_json(commands, home, "draw", *STRATA)["seed"] == 3
    assert as_json(commands, home, "draw", *STRATA, "--with-twins")["strata"][2]["size"] == 10
    assert as_json(commands, home, "draw", "rest:all", "--where", "feedback<0")["strata"][0]["size"] == 3


def test_the_labels_of_a_draw_are_weighted(home: Path, commands: ForkedCommands) -> None:
    draw = as_json(commands, home, "draw", *STRATA, "--seed", "7")
    for each in draw["conversations"]:
        verdict = "failed" if each["stratum"] == "error" else "passed"
        run(commands, home, "label", str(each["id"]), verdict)
        if each["stratum"] == "error":
            assert as_json(commands, home, "draw")["failure_share"] is None

    values, text = as_json(commands, home, "draw"), run(commands, home, "draw")

    assert values["failure_share"] == pytest.approx(2 / 15)  # and not 2 of 8 read
    assert values["interval"][0] < 2 / 15 < values["interval"][1]
    assert "among 15 conversations, weighted by the sizes of strata and groups of twins: 13 %, 95 % CI" in text
    assert "error: 2 of 2 drawn, 2 read, 2 failed" in text


def test_a_draw_becomes_cases_of_a_set(home: Path, commands: ForkedCommands) -> None:
    values = as_json(commands, home, "draw", "feedback<0:2", "--to", "trips")
    evalset = json.loads((home / "evalsets" / "trips.evalset.json").read_text())

    assert len(values["added"]) == len(evalset["eval_cases"]) == 2
    assert {each["eval_id"] for each in evalset["eval_cases"]} == {*values["added"]}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "there is no draw yet"),
        (("--seed", "7"), "name strata to draw"),
        (("eror:5",), "did you mean error?"),
        (("error",), "a stratum is a filter, a colon, and a number or all"),
        (("tool:none:5",), "no conversation meets the filters"),
        (("rest:5", "--seed", "-1"), "a seed is 0 to"),
        (("rest:5", "--where", "turns"), "turns needs a comparison"),
    ],
)
def test_a_draw_that_cannot_be_is_refused(
    home: Path, commands: ForkedCommands, words: tuple[str, ...], sentence: str
) -> None:
    result = commands.run("inbox", "draw", *words, "--workspace", str(home), cwd=home)

    assert result.returncode == 2
    assert sentence in result.stderr
