"""Forks of agents of real frameworks: an endpoint counts the requests of the model, and reads the history in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.desk.forks.conftest import Forks
from tests.desk.forks.frameworks.sources import FRAMEWORKS

from evaldesk.desk.forks.forks import play_fork
from evaldesk.model import Case, Criterion, Expected, Turn
from evaldesk.model.fork import Fork, ForkPoint
from evaldesk.model.stored import RunSummary

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # of the frameworks

FIRST_REQUEST = {1: 0, 2: 2, 3: 3, 4: 5}
"""The number of the first request of each turn of the conversation, from 0; it has 6."""
CASE = Case("dice", tuple(Turn(f"turn {number}", Expected(reference="done")) for number in range(1, 5)))


@pytest.fixture(params=FRAMEWORKS)
def framework_forks(request: pytest.FixtureRequest, forks: Forks, play_by: Callable[[str, str], None]) -> Forks:
    play_by(*FRAMEWORKS[request.param])
    return forks


def add_answers(endpoint: Endpoint, turn: int) -> None:
    """The answers of the model from that turn on: dice are rolled in turns 1 and 3."""
    for number in range(turn, 5):
        if number in (1, 3):
            endpoint.says("", (f"call-{number}", "roll_die", f'{{"sides": {number}}}'))
        endpoint.says("done")


async def play_parent(forks: Forks, endpoint: Endpoint) -> tuple[RunSummary, list[dict[str, Any]]]:
    """The run of the conversation, and the requests of its model."""
    add_answers(endpoint, 1)
    parent = await forks.play(CASE, criteria=(Criterion("response_exact", 1.0),))
    trial = forks.store.runs.trial(parent.id, 0, 0)
    assert (parent.n_passed, trial.error) == (1, None)
    requests = list(endpoint.asked)
    endpoint.asked.clear()
    return parent, requests


def read(request: dict[str, Any]) -> dict[str, Any]:
    """A request with the arguments of its tool calls as objects: spaces between them do not count."""
    for message in request["messages"]:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return request


@pytest.mark.parametrize("turn", FIRST_REQUEST)
async def test_the_model_is_asked_for_the_free_turns_alone_and_sees_the_history_and_state_of_the_trial(
    framework_forks: Forks, endpoint: Endpoint, turn: int
) -> None:
    forks = framework_forks
    parent, requests = await play_parent(forks, endpoint)
    add_answers(endpoint, turn)

    fork = await forks.over(await play_fork(forks.store, forks.desk, Fork(ForkPoint(parent.id, 0, 0, turn), n=1)))

    assert len(requests) == 6
    assert [read(each) for each in endpoint.asked] == [read(each) for each in requests[FIRST_REQUEST[turn] :]]
    own, fork_turns = (forks.store.runs.trial(run_id, 0, 0).transcript.turns for run_id in (parent.id, fork.id))
    assert [each.state_before for each in fork_turns] == [each.state_before for each in own]
    assert fork_turns[-1].state_after == own[-1].state_after
    assert fork_turns[-1].state_after["rolls"] == [1, 3]
    assert fork.n_passed == 1
