"""`evaldesk inbox score`: scores of what needs no model, rates of releases, and the exit code of the alarm."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conversations import put_conversation
from tests.forked_commands import ForkedCommands

from evaldesk.model import Event, Transcript, TrialResult, TurnRecord
from evaldesk.store import Store

TURNS = ("--criterion", "turn_count=1")


def conversation(n_turns: int) -> TrialResult:
    """A conversation of so many turns."""
    events = (Event("user_message", 0.0, text="hi"), Event("agent_message", 1.0, text="yes", author="a"))
    turns = tuple(TurnRecord("hi", events) for _ in range(n_turns))
    return TrialResult(0, 0, 0, "finished", "unscored", transcript=Transcript(turns))


def home_of(tmp_path: Path, counts: list[tuple[str, int, int]]) -> Path:
    """A workspace with conversations of releases: so many of one turn, and so many of two."""
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store:
        for release, n_short, n_long in counts:
            for number in range(n_short + n_long):
                result = conversation(1 if number < n_short else 2)
                put_conversation(store, f"q{number}", result, release=release, source="shop", ending="closed")
        put_conversation(store, "open", conversation(2), release="1.5", source="shop")
        put_conversation(store, "played", conversation(2), release="1.5", source="shop", ending="closed", is_eval=True)
    return tmp_path


def score(commands: ForkedCommands, home: Path, *words: str) -> tuple[int, Any]:
    result = commands.run("inbox", "score", *words, "--workspace", str(home), "--json", cwd=home)
    assert result.returncode in (0, 1), result.stderr
    return result.returncode, json.loads(result.stdout)


def test_releases_are_counted_and_compared_without_open_and_played_conversations(
    tmp_path: Path, commands: ForkedCommands
) -> None:
    home = home_of(tmp_path, [("1.4", 9, 1), ("1.5", 6, 2)])

    code, values = score(commands, home, *TURNS)

    assert (code, values["scored"], values["alarms"]) == (0, 18, [])
    assert [(each["release"], each["passed"], each["scored"]) for each in values["releases"]] == [
        ("1.4", 9, 10),
        ("1.5", 6, 8),
    ]
    assert values["change"]["difference"] == pytest.approx(-0.15)
    assert values["change"]["interval"][0] < 0 < values["change"]["interval"][1]
    assert score(commands, home, *TURNS)[1]["scored"] == 0
    text = commands.run("inbox", "score", *TURNS, "--workspace", str(home), cwd=home).stdout
    assert "release 1.4: 9 of 10 passed" in text
    assert "15 points less than release 1.4, could be chance." in text


def test_a_conversation_with_an_unscored_criterion_has_no_verdict(tmp_path: Path, commands: ForkedCommands) -> None:
    """Nothing tells the cost of these conversations, so no rate says that they passed, or that they failed."""
    home = home_of(tmp_path, [("1.5", 3, 2)])

    code, values = score(commands, home, *TURNS, "--criterion", "cost=0.1")

    assert (code, values["scored"], values["releases"], values["alarms"]) == (0, 5, [], [])


def test_the_alarm_is_an_exit_code(tmp_path: Path, commands: ForkedCommands) -> None:
    home = home_of(tmp_path, [("1.5", 0, 12)])

    code, values = score(commands, home, *TURNS, "--alpha", "0.001")

    assert code == 1
    assert len(values["alarms"]) >= 1
    text = commands.run("inbox", "score", *TURNS, "--alpha", "0.001", "--workspace", str(home), cwd=home).stdout
    assert "Alarm: the pass rate is below 0.85, after conversation" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--criterion", "safety_v1=1"), "needs a budget"),
        (("--criterion", "no_such=1"), "no_such"),
        ((*TURNS, "--bar", "1"), "bar and alpha lie between 0 and 1"),
        ((*TURNS, "--since", "soon"), "a time is so long ago"),
        ((*TURNS, "--since", "7d error"), "write 7d, 12h or a date"),
        ((), "--criterion"),
    ],
)
def test_scoring_that_cannot_be_is_refused(
    tmp_path: Path, commands: ForkedCommands, words: tuple[str, ...], sentence: str
) -> None:
    home = home_of(tmp_path, [("1.5", 1, 0)])

    result = commands.run("inbox", "score", *words, "--workspace", str(home), cwd=home)

    assert result.returncode == 2
    assert sentence in result.stderr


def test_criteria_of_the_file_score_and_status_tells_the_alarm(tmp_path: Path, commands: ForkedCommands) -> None:
    home = home_of(tmp_path, [("1.4", 0, 30)])
    place = home / "notice.json"
    code = f"import sys; open({str(place)!r}, 'w').write(sys.stdin.read())"
    (home / "evaldesk.toml").write_text(
        f"[inbox]\non_alarm = {json.dumps([sys.executable, '-c', code])}\n"
        "[inbox.score]\ncriteria = { turn_count = 1 }\nbar = 0.9\n"
    )
    words = ("--workspace", str(home))
    assert commands.run("inbox", "status", *words, cwd=home).returncode == 0

    result = commands.run("inbox", "score", "--json", "--trust", *words, cwd=home)
    status = commands.run("inbox", "status", *words, cwd=home)
    values = json.loads(commands.run("inbox", "status", "--json", *words, cwd=home).stdout)

    assert result.returncode == 1, result.stderr
    assert (json.loads(result.stdout)["bar"], json.loads(result.stdout)["scored"]) == (0.9, 30)
    assert json.loads(place.read_text())["release"] == "1.4"
    assert status.returncode == 1
    assert "Alarm: the pass rate fell below the bar" in status.stdout
    assert values["alarms"]
