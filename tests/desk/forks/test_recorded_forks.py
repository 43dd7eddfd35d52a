"""Forks of trials that came in a file: where a session state is told they are played on, else refused in words."""

from __future__ import annotations

import pytest
from tests.desk.forks.conftest import Forks, talk

from evaldesk.desk.forks.forks import ForkDesk, play_fork
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Event, RunConfig, ToolCall, Transcript, TrialResult, TurnRecord
from evaldesk.model.fork import Edit, Fork, ForkPoint
from evaldesk.store.runs.histories import IMPORTED

pytestmark = pytest.mark.anyio

SEARCH = ToolCall("search", {"to": "Graz"}, id="call-1")


def recorded_turn(number: int, *, has_state: bool) -> TurnRecord:
    states = ({"n": number - 1}, {"n": number}) if has_state else ({}, {})
    events = (
        Event("tool_call", 1.0, call=SEARCH),
        Event("tool_result", 2.0, call=SEARCH, result=["a train"]),
        Event("agent_message", 3.0, text=f"answer {number}"),
    )
    return TurnRecord(f"step {number}", events, *states)


def import_run(forks: Forks, *, has_state: bool = True, agent: str = "shop", **changes: TurnRecord) -> int:
    """A run of three recorded turns; gives its id. `changes` are other turns, such as `turn_2`."""
    turns = [changes.get(f"turn_{at}", recorded_turn(at, has_state=has_state)) for at in (1, 2, 3)]
    config = RunConfig(AgentRef(agent, agent, kind=IMPORTED), "set", n=1)
    run_id = forks.store.runs.create(config, [talk(3)])
    result = TrialResult(run_id, 0, 0, "finished", "failed", transcript=Transcript(tuple(turns)))
    forks.store.runs.record([result])
    forks.store.runs.set_status(run_id, "finished")
    return run_id


@pytest.mark.parametrize("turn", [1, 2, 3])
async def test_a_recorded_trial_is_played_on_from_its_state_by_the_agent_of_its_name(forks: Forks, turn: int) -> None:
    run_id = import_run(forks)

    fork = await forks.over(await play_fork(forks.store, forks.desk, Fork(ForkPoint(run_id, 0, 0, turn), n=1)))

    trial = forks.store.runs.trial(fork.id, 0, 0)
    assert fork.config.agent.target == "shop:agent"
    assert forks.shop.messages == [f"step {at}" for at in range(turn, 4)]
    assert forks.shop.histories[0] == [f"step {at}" for at in range(1, turn)]
    assert forks.shop.states[0] == {"n": turn - 1}
    assert [each.answer for each in trial.transcript.turns] == [
        *(f"answer {at}" for at in range(1, turn)),
        *["yes"] * (4 - turn),
    ]


async def test_tools_of_a_recorded_trial_answer_with_its_results_unless_a_person_says_otherwise(forks: Forks) -> None:
    run_id = import_run(forks)
    desk = ForkDesk(forks.store, forks.desk.runs, forks.desk.agents)

    usual = await desk.plan(Fork(ForkPoint(run_id, 0, 0, 2)))
    real = await desk.plan(Fork(ForkPoint(run_id, 0, 0, 2), runs_tools=True))

    assert (usual.real_tools, usual.doubled_tools) == ((), ("search",))
    doubles = usual.run.cases[0].extra["tool_doubles"]
    assert doubles == {
        "tools": {"search": [{"args": {"to": "Graz"}, "result": ["a train"]}] * 2},
        "unmatched": "refuse",
    }
    assert (real.real_tools, real.doubled_tools) == (("search",), ())


async def test_without_a_state_the_nearest_point_is_before_the_first_turn(forks: Forks) -> None:
    run_id = import_run(forks, has_state=False)
    desk = ForkDesk(forks.store, forks.desk.runs, forks.desk.agents)

    for turn in (2, 3):
        with pytest.raises(UsageError) as refusal:
            await desk.plan(Fork(ForkPoint(run_id, 0, 0, turn)))
        assert str(refusal.value) == (
            f"turn {turn}: the file of this trial tells no session state; "
            "the nearest point that can be forked is before turn 1"
        )
    assert (await desk.plan(Fork(ForkPoint(run_id, 0, 0, 1)))).n_turns_left == 3


async def test_a_value_outside_of_json_in_a_recorded_state_is_named_with_the_nearest_point(forks: Forks) -> None:
    turn = TurnRecord("step 3", state_before={"n": 2, "client": {"of": "<shop.Client object at 0x7f00>"}})
    run_id = import_run(forks, turn_3=turn)

    with pytest.raises(UsageError) as refusal:
        await play_fork(forks.store, forks.desk, Fork(ForkPoint(run_id, 0, 0, 3)))

    assert str(refusal.value) == (
        "turn 3: the state 'client' holds a value outside of JSON, which was not stored; "
        "the nearest point that can be forked is before turn 2"
    )


async def test_a_recorded_trial_without_an_agent_of_its_name_needs_one(forks: Forks) -> None:
    run_id = import_run(forks, agent="elsewhere")
    point = ForkPoint(run_id, 0, 0, 2)

    with pytest.raises(UsageError, match="no agent here is named 'elsewhere'; name the agent that plays on") as refusal:
        await play_fork(forks.store, forks.desk, Fork(point, n=1))
    fork = await forks.over(await play_fork(forks.store, forks.desk, Fork(point, (Edit("agent", name="shop"),), n=1)))

    assert refusal.value.field == "agent"
    assert (fork.n_passed, fork.config.agent.id) == (1, "shop")


async def test_a_call_of_a_recorded_trial_is_no_point(forks: Forks) -> None:
    run_id = import_run(forks)

    with pytest.raises(UsageError, match="the nearest point that can be forked is before turn 2"):
        await play_fork(forks.store, forks.desk, Fork(ForkPoint(run_id, 0, 0, 2, call=2)))
