"""`evaldesk mode cases`: conversations that showed a kind of failure become cases, each once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.test_mode_command import run

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.formats import load_evalset
from evaldesk.matching import read_allowances
from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    Expected,
    JsonValue,
    RunConfig,
    SessionInit,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.model.evalset import EvalSet
from evaldesk.model.failures import Anchor, FindingDraft
from evaldesk.settings import Settings
from evaldesk.store import Store

ACCEPTED: list[JsonValue] = [{"turn": at, "tool": "find", "argument": "day", "ignore": True} for at in (1, 3)]
SCRIPTED = Case(
    "trip",
    tuple(Turn(f"question {at}", Expected((ToolCall("find", {"day": at}),), reference=str(at))) for at in (1, 2, 3)),
    initial_session=SessionInit("trips", "u", {"city": "Oslo"}),
    final_state={"booked": True},
    tags=("travel",),
    extra={"also_accepted": ACCEPTED, "human_decisions": [{"turn": 3, "decision": "approve"}], "note": "kept"},
)
SIMULATED = Case("simulated", scenario={"starting_prompt": "Hi"}, initial_session=SessionInit("trips", "u", {}))


def workspace(home: Path) -> Path:
    """A run of a case with expectations and one of a scenario, two trials each, and findings of `wrong date`."""
    home.mkdir()
    with Store.open(Settings(home, (home,)).database) as store:
        run_id = store.runs.create(RunConfig(AgentRef("trips", "trips:agent"), "set", n=2), [SCRIPTED, SIMULATED])
        said = [[turn.query for turn in SCRIPTED.turns]] * 2 + [["Hi", "To Rome"], ["Hi", "To sk-0123456789abcdef"]]
        for at, queries in enumerate(said):
            turns = tuple(TurnRecord(each, (Event("agent_message", text="no"),), {"n": 1}) for each in queries)
            store.runs.record(
                [TrialResult(run_id, at // 2, at % 2, "finished", "failed", transcript=Transcript(turns))]
            )
        for case, trial, turn in ((0, 0, 1), (0, 1, 1), (0, 1, 2), (1, 0, None), (1, 1, 1)):
            store.failures.add(FindingDraft(run_id, case, trial, "late", anchor=Anchor(turn)), "Ana", "wrong date")
        store.failures.create_mode("Ana", name="never seen")
    return home


def made(home: Path, name: str = "wrong_date") -> EvalSet:
    (found,) = home.rglob(f"{name}.evalset.json")
    return load_evalset(found)


def test_each_conversation_is_a_case_up_to_the_turn_of_the_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = workspace(tmp_path / "home")
    monkeypatch.setenv("SHOP_API_KEY", "sk-0123456789abcdef")

    said = run(home, "cases", "WRONG date").stdout

    scripted, *simulated = sorted(made(home).cases, key=lambda case: len(case.rubrics))
    assert said.startswith("3 cases added to wrong_date. 2 cases without expectations got a rubric. 1 value masked: ")
    assert scripted.turns == SCRIPTED.turns[:2]
    assert (scripted.id, scripted.tags) == ("trip_wrong_date", ("travel", "wrong_date"))
    assert (scripted.initial_session, scripted.final_state) == (SCRIPTED.initial_session, None)
    assert [each.turn for each in read_allowances(scripted)] == [1]
    assert (scripted.extra["note"], "human_decisions" in scripted.extra) == ("kept", False)
    assert [
        [turn.query for turn in case.turns]
        for case in sorted(simulated, key=lambda case: case.turns[1].query, reverse=True)
    ] == [
        ["Hi", "To [SHOP_API_KEY]"],
        ["Hi", "To Rome"],
    ]
    assert all(case.scenario is None and case.rubrics for case in simulated)
    assert "wrong date" in str(simulated[0].rubrics)


def test_what_is_in_the_set_already_is_not_added_again(tmp_path: Path) -> None:
    home = workspace(tmp_path / "home")
    run(home, "cases", "wrong date", "--into", "mine")
    before = made(home, "mine")

    again = run(home, "cases", "wrong date", "--into", "mine", "--run", "1").stdout

    assert again == "0 cases added to mine; 3 were there already.\n"
    assert made(home, "mine") == before


def test_a_kind_without_conversations_makes_no_set(tmp_path: Path) -> None:
    home = workspace(tmp_path / "home")

    unseen, other = run(home, "cases", "never seen"), run(home, "cases", "wrong date", "--run", "7")
    unknown = run(home, "cases", "nothing")

    assert isinstance(unseen.exception, UsageError)
    assert isinstance(other.exception, UsageError)
    assert isinstance(unknown.exception, NotFoundError)
    assert not [*home.rglob("*.evalset.json")]
