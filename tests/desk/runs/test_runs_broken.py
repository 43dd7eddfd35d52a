"""A run whose executor breaks by a fault of our own code ends, and says why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, over, started

from evaldesk.engine import GradeSpec
from evaldesk.model import TrialResult, TrialSpec

pytestmark = pytest.mark.anyio


class Raising(HandExecutor):
    """Takes trials and raises where their results are asked for."""

    async def results(self) -> AsyncIterator[TrialResult]:
        raise TypeError("a fault of ours")
        yield


class Ending(HandExecutor):
    """Takes trials and has results of none."""

    async def results(self) -> AsyncIterator[TrialResult]:
        for each in tuple[TrialResult]():
            yield each


class Refusing(HandExecutor):
    """Takes no trial."""

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        raise TypeError("a fault of ours")


@pytest.mark.parametrize(
    ("executor", "reason"),
    [
        (Raising, "Evaldesk broke off: TypeError('a fault of ours')"),
        (Ending, "the executor ended while 3 trials had no result"),
        (Refusing, "Evaldesk broke off: TypeError('a fault of ours')"),
    ],
)
async def test_the_run_fails_with_the_reason(open_desk: OpenDesk, executor: type[HandExecutor], reason: str) -> None:
    desk = open_desk(executor())

    summary = await over(desk, await started(desk))

    assert (summary.status, summary.reason) == ("failed", reason)
    assert summary.n_done == 0


async def test_a_result_that_cannot_be_judged_fails_the_run(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(*_: Any) -> TrialResult:
        raise TypeError("a fault of ours")

    monkeypatch.setattr("evaldesk.desk.runs.driver.as_tool_judges", judged)
    desk = open_desk(HandExecutor(("passed",)))

    summary = await over(desk, await started(desk, compat="adk"))

    assert (summary.status, summary.reason) == ("failed", "Evaldesk broke off: TypeError('a fault of ours')")
