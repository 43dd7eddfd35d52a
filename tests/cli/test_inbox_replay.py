"""`evaldesk inbox replay`: conversations as they were seen, and played by the agent of today; tools not for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.conversations import put_conversation

from evaldesk.cli import cli
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import Event, ToolCall, Transcript, TrialResult, TurnRecord
from evaldesk.store import Store

AGENT = """
from pathlib import Path
from evaldesk import LlmAgent

def roll_die(sides: int) -> int:
    '''Roll a die.

    Args:
        sides: How many sides it has.
    '''
    (Path(__file__).parent / "rolled").write_text(str(sides))
    return 5

root_agent = LlmAgent(name="dice", model="demo/dice?mistakes=0&delay_ms=0", instruction="Roll.", tools=[roll_die])
"""
CALL = ToolCall("roll_die", {"sides": 6}, "c1")
ROLLED = TurnRecord(
    "Roll a 6-sided die.",
    (
        Event("user_message", text="Roll a 6-sided die."),
        Event("tool_call", call=CALL),
        Event("tool_result", call=CALL, result=2),
        Event("agent_message", text="I rolled a 2.", author="clerk"),
    ),
)


def conversation(store: Store, *turns: TurnRecord, **values: Any) -> int:
    result = TrialResult(0, 0, 0, "finished", "unscored", transcript=Transcript(turns))
    words = turns[0].query if turns else ""
    usual = {"has_error": False, "first_words": words, "tools": ("roll_die",), "source": "shop", "release": "1.5"}
    return put_conversation(store, words or "none", result, **usual | values)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dice").mkdir()
    (tmp_path / "dice" / "agent.py").write_text(AGENT)
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store:
        conversation(store, ROLLED)
        conversation(store, ROLLED, feedback=-1.0)
        conversation(store, TurnRecord("", (Event("agent_message", text="Hello."),)))
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--workspace", str(folder)])


def replayed(folder: Path, *words: str) -> Any:
    result = run(folder, "inbox", "replay", *words, "--yes", "--trust", "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def answers(folder: Path, run_id: int) -> list[str]:
    with Store.open(folder / ".evaldesk" / "evaldesk.db") as store:
        keys = [(case, trial) for case in store.runs.case_ids(run_id) for trial in range(3)]
        return [trial.transcript.turns[-1].answer for trial in store.runs.trials(run_id, keys).values()]


def test_the_agent_of_today_answers_with_recorded_tools_beside_the_conversation_as_seen(folder: Path) -> None:
    values = replayed(folder, "1", "--n", "2")

    assert (values["conversations"], values["agent"], values["n"]) == ([1], "dice", 2)
    assert (values["real_tools"], values["doubled_tools"]) == ([], ["roll_die"])
    assert values["result"]["status"] == "finished"
    assert not (folder / "dice" / "rolled").exists()
    assert answers(folder, values["seen_run"]) == ["I rolled a 2."]
    assert len(answers(folder, values["run"])) == 2
    assert {"2" in answer for answer in answers(folder, values["run"])} == {True}, answers(folder, values["run"])
    assert not list(folder.glob("evalsets/*"))  # an eval set that nobody saves


def test_both_runs_have_the_case_with_its_provenance_and_are_compared(folder: Path) -> None:
    values = replayed(folder, "1", "--n", "1")

    with Store.open(folder / ".evaldesk" / "evaldesk.db") as store:
        seen, played = (store.runs.case(values[key], 0) for key in ("seen_run", "run"))
        assert store.runs.summary(values["seen_run"]).reason == "As in production: seen once, not a trial."
    assert seen == played
    assert (seen.extra["provenance"] or {})["release"] == "1.5"  # type: ignore[call-overload, index]
    compared = run(folder, "compare", str(values["seen_run"]), str(values["run"]))
    assert compared.exit_code == 0, (compared.output, compared.exception)


def test_a_second_replay_stands_beside_the_same_conversations(folder: Path) -> None:
    first, second = replayed(folder, "1", "2", "--n", "1"), replayed(folder, "1", "2", "--n", "2")

    assert first["seen_run"] == second["seen_run"]
    assert first["run"] != second["run"]


def test_a_bad_outcome_is_expected_of_nobody(folder: Path) -> None:
    values = replayed(folder, "1", "2", "--n", "1")

    with Store.open(folder / ".evaldesk" / "evaldesk.db") as store:
        good, bad = (store.runs.case(values["run"], at).turns[0].expected for at in range(2))
    assert [call.name for call in good.tool_calls or ()] == ["roll_die"]
    assert bad.tool_calls is None
    assert values["result"]["scored"] == 1


def test_tools_run_for_real_only_where_that_is_said(folder: Path) -> None:
    values = replayed(folder, "1", "--n", "1", "--run-tools")

    assert values["real_tools"] == ["roll_die"]
    assert (folder / "dice" / "rolled").read_text() == "6"
    assert ["5" in answer for answer in answers(folder, values["run"])] == [True]


def test_the_plan_names_tools_and_conversations_left_out_and_plays_nothing(folder: Path) -> None:
    result = run(folder, "inbox", "replay", "1", "3", "--trust", "--dry-run")

    assert result.exit_code == 0, (result.output, result.exception)
    assert "1 conversation x 3 = 3 trials with dice." in result.output
    assert "Recorded results answer the tools roll_die; any other call is refused." in result.output
    assert "Left out, without a message of a user: 1 conversation." in result.output
    assert json.loads(run(folder, "run", "list", "--json").stdout)["items"] == []


def test_conversations_are_chosen_by_a_filter_or_a_draw(folder: Path) -> None:
    run(folder, "inbox", "draw", "feedback<0:all")

    by_filter = replayed(folder, "--where", "feedback<0", "--n", "1")
    by_draw = replayed(folder, "--draw", "1", "--n", "1")

    assert by_filter["conversations"] == by_draw["conversations"] == [2]


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        ((), UsageError, "name conversations"),
        (("1", "--where", "error"), UsageError, "name conversations"),
        (("--where", "tool:nothing"), UsageError, "no conversation meets the filter"),
        (("--where", "turns"), UsageError, ""),
        (("3",), UsageError, "has a message of a user"),
        (("99",), NotFoundError, ""),
        (("--draw", "9"), NotFoundError, ""),
        (("1", "--agent", "nobody"), NotFoundError, "nobody"),
    ],
)
def test_a_replay_that_cannot_be_is_refused_and_stores_nothing(
    folder: Path, words: tuple[str, ...], kind: type[Exception], sentence: str
) -> None:
    result = run(folder, "inbox", "replay", *words, "--trust", "--yes")

    assert isinstance(result.exception, kind), (result.output, result.exception)
    assert sentence in str(result.exception)
    assert json.loads(run(folder, "run", "list", "--json").stdout)["items"] == []


def test_without_a_terminal_it_needs_a_yes(folder: Path) -> None:
    result = run(folder, "inbox", "replay", "1", "--trust")

    assert isinstance(result.exception, UsageError)
    assert "add --yes" in str(result.exception)
