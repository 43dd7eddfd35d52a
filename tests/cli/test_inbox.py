"""`evaldesk inbox`: conversations in the terminal and as JSON, labels, drops and cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conversations import put_conversation
from tests.forked_commands import ForkedCommands
from tests.spans_of_agents import request, turn_spans

from evaldesk.desk.inbox.joining import join_new
from evaldesk.desk.inbox.receiver import span_reader
from evaldesk.store import Store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A workspace with two conversations, one of which had an error, and one that Evaldesk played."""
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store:
        body = json.dumps(request(turn_spans("Train to Graz?", "On Friday.", tool="search"), service__version="1.5"))
        batches = span_reader((), {}, tmp_path).batches(body.encode(), "spans", "shop", is_json=True)
        store.inbox_spans.receive(batches)
        join_new(store, 0)
        put_conversation(store, "Broken", feedback=-1.0, source="shop")
        put_conversation(store, "Played", is_eval=True, source="shop")
    return tmp_path


def run(commands: ForkedCommands, home: Path, *words: str) -> str:
    result = commands.run("inbox", *words, "--workspace", str(home), cwd=home)
    assert result.returncode == 0, result.stderr
    return result.stdout


def as_json(commands: ForkedCommands, home: Path, *words: str) -> Any:
    return json.loads(run(commands, home, *words, "--json"))


def test_a_filter_finds_conversations(home: Path, commands: ForkedCommands) -> None:
    rows = as_json(commands, home, "list", "not", "error")

    assert [(row["first_words"], row["tools"], row["release"]) for row in rows] == [
        ("Train to Graz?", ["search"], "1.5")
    ]
    assert "Broken" in run(commands, home, "list", "feedback<0")
    assert "Played" in run(commands, home, "list", "--eval")
    assert commands.run("inbox", "list", "turns", "--workspace", str(home), cwd=home).returncode == 2


def test_a_conversation_is_shown_with_its_turns_and_labels(home: Path, commands: ForkedCommands) -> None:
    run(commands, home, "label", "1", "failed", "--note", "wrong day", "--by", "jo")

    text = run(commands, home, "show", "1")
    values = as_json(commands, home, "show", "1")

    assert "search(" in text
    assert "failed by jo: wrong day" in text
    assert values["state"] == "read"
    assert values["turns"] == [
        {
            "query": "Train to Graz?",
            "answer": "On Friday.",
            "calls": [{"name": "search", "args": {"q": "Train to Graz?"}}],
        }
    ]
    assert values["labels"] == [{"by": "jo", "verdict": "failed", "note": "wrong day"}]


def test_dropped_conversations_are_taken_back_or_removed(home: Path, commands: ForkedCommands) -> None:
    assert as_json(commands, home, "drop", "1", "2") == {"n": 2}
    assert as_json(commands, home, "drop", "1", "--undo") == {"n": 1}
    assert [row["id"] for row in as_json(commands, home, "list", "state:dropped")] == [2]
    assert commands.run("inbox", "drop", "2", "--remove", "--workspace", str(home), cwd=home).returncode != 0
    assert as_json(commands, home, "drop", "2", "--remove", "--yes") == {"n": 1}
    assert [row["id"] for row in as_json(commands, home, "list")] == [1]


def test_conversations_become_cases_that_expect_good_outcomes_alone(home: Path, commands: ForkedCommands) -> None:
    preview = as_json(commands, home, "case", "1", "2", "--evalset", "trips", "--preview")
    added = as_json(commands, home, "case", "1", "2", "--evalset", "trips")
    again = as_json(commands, home, "case", "1", "--evalset", "trips")
    evalset = json.loads((home / "evalsets" / "trips.evalset.json").read_text())

    assert preview["added"] == []
    assert added["added"] == [row["case"] for row in added["cases"]]
    assert [row["expectation"] for row in added["cases"]] == ["its calls", "nothing: it had an error"]
    assert (again["added"], again["cases"][0]["twins"]) == ([], added["added"][:1])
    good, bad = evalset["eval_cases"]
    assert good["provenance"]["release"] == "1.5"
    assert [use["name"] for use in good["conversation"][0]["intermediate_data"]["tool_uses"]] == ["search"]
    assert "final_response" not in bad["conversation"][0] or bad["conversation"][0]["final_response"] is None
    assert {row["state"] for row in as_json(commands, home, "list")} == {"case"}


def test_the_status_counts_conversations_and_names_sources(home: Path, commands: ForkedCommands) -> None:
    values = as_json(commands, home, "status")

    assert (values["address"], values["conversations"], values["eval"]) == (None, 2, 1)
    assert [(row["name"], row["spans"]) for row in values["sources"]] == [("shop", 4)]
    assert "Not listening" in run(commands, home, "status")


def test_masks_and_addresses_that_cannot_be_are_refused_at_the_start(home: Path, commands: ForkedCommands) -> None:
    for text, words in (
        ('mask = ["\\\\w+"]', "masks 100 %"),
        ('host = "0.0.0.0"', "needs a key"),
        ("port = 70000", "port"),
        ("keep_days = -1", "keep_days"),
    ):
        (home / "evaldesk.toml").write_text(f"[inbox]\n{text}\n")
        result = commands.run("inbox", "listen", "--port", "0", "--workspace", str(home), cwd=home)

        assert result.returncode == 2
        assert words in result.stderr
