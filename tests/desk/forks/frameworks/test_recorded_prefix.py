"""Forks inside a turn: the calls before the point are answered from the recording of the trial, or the fork ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.desk.forks.conftest import SHOP, Forks
from tests.desk.forks.frameworks.sources import FRAMEWORKS

from evaldesk.desk.forks.forks import ForkDesk, play_fork
from evaldesk.engine.worker import player
from evaldesk.errors import UsageError
from evaldesk.model import Case, Criterion, Expected, Turn
from evaldesk.model.fork import Edit, Fork, ForkPoint
from evaldesk.model.stored import RunSummary

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # of the frameworks

CASE = Case("dice", (Turn("turn 1", Expected(reference="done")), Turn("turn 2", Expected(reference="done"))))
CRITERIA = (Criterion("response_exact", 1.0),)
OURS = """
from evaldesk import LlmAgent

def roll_die(sides: int, state: dict) -> int:
    state["rolls"] = [*state.get("rolls", []), sides]
    return sides

root_agent = LlmAgent(
    name="dice", model="hosted_vllm/small", api_base="{address}", tools=[roll_die], instruction="Roll."
)
"""
SOURCES = FRAMEWORKS | {"ours": ("", OURS)}


@pytest.fixture(params=SOURCES)
def recorded_forks(request: pytest.FixtureRequest, forks: Forks, play_by: Callable[[str, str], None]) -> Forks:
    play_by(*SOURCES[request.param])
    return forks


async def play_parent(forks: Forks, endpoint: Endpoint, recording: str = "record") -> RunSummary:
    """A run whose second turn asks the model three times: it rolls two dice, one after the other."""
    endpoint.says("done").says("", ("c1", "roll_die", '{"sides": 6}')).says("", ("c2", "roll_die", '{"sides": 8}'))
    endpoint.says("done")
    parent = await forks.play(CASE, criteria=CRITERIA, recording=recording)
    assert (parent.n_passed, len(endpoint.asked)) == (1, 4), forks.store.runs.trial(parent.id, 0, 0).error
    return parent


async def test_calls_before_the_point_are_answered_from_the_recording(
    recorded_forks: Forks, endpoint: Endpoint, tmp_path: Path
) -> None:
    forks = recorded_forks
    parent = await play_parent(forks, endpoint)
    files = sorted(tmp_path.joinpath(".evaldesk", "recordings").rglob("*.json"))
    requests = list(endpoint.asked)
    endpoint.asked.clear()
    endpoint.says("another end")
    point = ForkPoint(parent.id, 0, 0, 2, call=3)

    plan = await ForkDesk(forks.store, forks.desk.runs, forks.desk.agents).plan(Fork(point, n=1))
    fork = await forks.over(await play_fork(forks.store, forks.desk, Fork(point, n=1)))

    own, trial = (forks.store.runs.trial(run_id, 0, 0) for run_id in (parent.id, fork.id))
    assert trial.error is None
    assert [each | {"seed": 0} for each in endpoint.asked] == [each | {"seed": 0} for each in requests[3:]]
    assert (plan.restored, plan.real_tools) == ("recorded prefix", ())
    assert [call.args for call in trial.transcript.turns[1].tool_calls] == [{"sides": 6}, {"sides": 8}]
    assert trial.transcript.turns[1].state_after == own.transcript.turns[1].state_after
    assert trial.transcript.turns[1].answer == "another end"
    assert (fork.n_failed, trial.n_prefix_turns) == (1, 1)
    assert sorted(tmp_path.joinpath(".evaldesk", "recordings").rglob("*.json")) == files


async def test_a_changed_instruction_ends_the_fork_before_the_point(
    recorded_forks: Forks, endpoint: Endpoint, tmp_path: Path, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks = recorded_forks
    parent = await play_parent(forks, endpoint)
    endpoint.asked.clear()
    source = next(source for package, source in SOURCES.values() if _is_of(forks, package))
    new_source = source.replace("Rolled so far", "Dice so far").replace('"Roll."', '"Roll well."')
    monkeypatch.setitem(player._agents, SHOP, loaded(new_source.replace("{address}", endpoint.address)))

    fork = await forks.over(await play_fork(forks.store, forks.desk, Fork(ForkPoint(parent.id, 0, 0, 2, 2), n=1)))

    trial = forks.store.runs.trial(fork.id, 0, 0)
    assert new_source != source
    assert trial.error is not None
    assert (trial.status, trial.error.kind) == ("errored", "prefix_diverged")
    assert "is not the recorded one" in trial.error.message
    lines = trial.error.trace.splitlines()
    removed_words, added_words = (
        [line for line in lines if line.startswith(sign) and not line.startswith(sign * 3)] for sign in "-+"
    )
    assert lines[:2] == ["--- recorded request", "+++ request of the fork"]
    assert ["Rolled so far" in line or "Roll." in line for line in removed_words] == [True]
    assert ["Dice so far" in line or "Roll well." in line for line in added_words] == [True]
    assert endpoint.asked == []


def _is_of(forks: Forks, package: str) -> bool:
    kind = player._agents[SHOP].describe().kind  # type: ignore[union-attr]
    return {"google.adk": "adk", "agents": "openai_agents", "": "litellm"}.get(package, package) == kind


async def test_points_without_a_recorded_call_are_refused_with_the_nearest(
    recorded_forks: Forks, endpoint: Endpoint, tmp_path: Path
) -> None:
    forks = recorded_forks
    parent = await play_parent(forks, endpoint, recording="off")
    nearest = "the nearest point that can be forked is before turn 2"

    for call, words in ((2, "were not recorded"), (4, "the turn has 3 model calls"), (0, "the turn has 3 model calls")):
        with pytest.raises(UsageError, match=words) as refusal:
            await play_fork(forks.store, forks.desk, Fork(ForkPoint(parent.id, 0, 0, 2, call)))
        assert nearest in str(refusal.value)
        assert refusal.value.field == "call"


@pytest.mark.parametrize("kind", ["message", "state", "tool_result", "assistant", "drop_turn", "insert_turn"])
async def test_the_conversation_before_a_call_is_not_edited(
    forks: Forks, endpoint: Endpoint, tmp_path: Path, loaded: Any, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setitem(player._agents, SHOP, loaded(OURS.replace("{address}", endpoint.address)))
    parent = await play_parent(forks, endpoint)
    edit = Edit(kind, text="x", call=1, value={"a": 1})

    with pytest.raises(UsageError, match="the nearest point for it is before turn 2"):
        await play_fork(forks.store, forks.desk, Fork(ForkPoint(parent.id, 0, 0, 2, 2), (edit,)))
