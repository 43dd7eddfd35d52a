"""Watching runs go on."""

from __future__ import annotations

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, over, started

from evaldesk.desk.runs import players

pytestmark = pytest.mark.anyio


async def test_watchers_of_a_run_share_each_tick(open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(players, "TICK_S", 0.0)
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=2, concurrency=2)
    await executor.holds(2)
    one, other = desk.watch(run_id), desk.watch(run_id)

    first = (await anext(one), await anext(other))
    executor.end(2)
    rest = ([tick async for tick in one], [tick async for tick in other])

    assert first[0] is first[1]
    assert rest[0][-1] is rest[1][-1]
    assert rest[0][-1].is_last


async def test_a_run_that_is_over_has_one_last_tick(open_desk: OpenDesk) -> None:
    desk = open_desk(HandExecutor(["passed"]))
    run_id = await started(desk)
    await over(desk, run_id)

    assert [tick.is_last async for tick in desk.watch(run_id)] == [True]
