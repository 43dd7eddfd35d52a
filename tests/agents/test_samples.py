"""The sample agents on their scripted model."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from evaldesk.agents import Agent, agent_ref, load_agent
from evaldesk.errors import ModelError
from evaldesk.model import Session

pytestmark = pytest.mark.anyio

DICE = [
    "Hi who are you?",
    "Roll a 20-sided die",
    "roll two dice d6 and d8",
    "check whether the rolls are prime",
    "Roll a die with 10 sides and check whether it is prime",
    "What is the capital of France?",
]
TRIP = [
    "I want to see a European city next autumn. I am thinking of London or Paris. What do you need to know?",
    "Six days in October, 2,400 euros for everything.",
    "Paris then. Plan the days and save the plan.",
]


@pytest.fixture
def hello_world() -> Agent:
    return load_agent(agent_ref("samples/hello_world"))


@pytest.fixture
def trip_planner() -> Agent:
    return load_agent(agent_ref("samples/trip_planner"))


async def test_the_dice_roller_talks_without_a_mistake(hello_world: Agent, play: Any) -> None:
    session = Session("s")

    for message in DICE:
        await play(hello_world, session, message)

    calls = [[(call.name, call.args) for call in turn.tool_calls] for turn in session.turns]
    rolls: Any = session.state["rolls"]
    assert calls == [
        [],
        [("roll_die", {"sides": 20})],
        [("roll_die", {"sides": 6}), ("roll_die", {"sides": 8})],
        [("check_prime", {"nums": rolls[:3]})],
        [("roll_die", {"sides": 10}), ("check_prime", {"nums": rolls[3:]})],
        [],
    ]
    assert session.turns[1].answer == f"I rolled a 20 sided die, and got {rolls[0]}."
    assert session.turns[5].answer.startswith("I am afraid that is beyond me")
    assert all(turn.answer and not turn.error for turn in session.turns)
    assert all(usage.cost == 0.0 for turn in session.turns for usage in turn.usages)


async def test_a_session_of_dice_repeats_exactly(hello_world: Agent, play: Any) -> None:
    sessions = [Session("one"), Session("two"), Session("other", state={"dice_seed": 8})]

    for session in sessions:
        for message in DICE:
            await play(hello_world, session, message)

    one, two, other = ([turn.answer for turn in session.turns] for session in sessions)
    assert one == two
    assert one != other


async def test_trials_of_the_dice_roller_differ(hello_world: Agent, play: Any) -> None:
    outcomes: Counter[str] = Counter()

    for seed in range(40):
        session = Session("s", seed=seed)
        try:
            await play(hello_world, session, "Roll a die with 10 sides and check whether it is prime")
        except ModelError as error:
            outcomes[error.kind] += 1
        else:
            outcomes[str([(call.name, call.args) for call in session.turns[0].tool_calls])] += 1

    assert len(outcomes) > 2
    assert outcomes.most_common(1)[0][1] >= 24


async def test_the_demo_provider_fails_sometimes_with_a_marked_error(hello_world: Agent, play: Any) -> None:
    failures = []

    for seed in range(80):
        try:
            await play(hello_world, Session("s", seed=seed, model="demo/dice?mistakes=1"), "Roll a d6")
        except ModelError as error:
            failures.append(error)

    assert 0 < len(failures) < 20
    assert {error.kind for error in failures} == {"server_error"}
    assert "the scripted demo model pretends to be overloaded" in str(failures[0])


async def test_the_trip_planner_compares_and_saves(trip_planner: Agent, play: Any) -> None:
    state: Any = copy.deepcopy(dict(trip_planner.describe().initial_state))
    session = Session("s", state=state)

    for message in TRIP:
        await play(trip_planner, session, message)

    assert [[call.name for call in turn.tool_calls] for turn in session.turns] == [
        [],
        ["note_wishes", "search_flights", "daily_cost"],
        ["save_itinerary"],
    ]
    assert "San Francisco" in session.turns[0].answer
    assert "food, shopping and museums" in session.turns[0].answer
    assert session.turns[1].answer.startswith("Paris fits")
    assert (state["days"], state["budget_eur"], state["cities"]) == (6, 2400, ["London", "Paris"])
    assert (state["itinerary"]["city"], len(state["itinerary"]["days"])) == ("Paris", 6)
    assert all(not event.is_error for turn in session.turns for event in turn.events)


async def test_the_trip_planner_without_a_state_names_the_missing_key(trip_planner: Agent, play: Any) -> None:
    events = await play(trip_planner, Session("s"), TRIP[0])

    assert "'origin'" in events[-1].error.message


def test_the_same_agents_run_on_a_real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("EVALDESK_MODEL", "openai/gpt-4o-mini")
    for name in [name for name in sys.modules if name.startswith("hello_world")]:
        monkeypatch.delitem(sys.modules, name)

    described = load_agent(agent_ref("samples/hello_world")).describe()

    assert (described.model, described.is_demo) == ("openai/gpt-4o-mini", False)
    for name in [name for name in sys.modules if name.startswith("hello_world")]:
        del sys.modules[name]  # `monkeypatch` would bring back the agent of this model
