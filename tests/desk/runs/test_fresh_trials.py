"""Fresh trials are never answered from a recording, and no decision counts a replayed trial as new evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, over, subject

from evaldesk.desk.runs.gates.impossible import check_gates
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.model import Gates, TrialResult
from evaldesk.model.conclusion import Conclusion
from evaldesk.model.options import Recording
from evaldesk.model.transcript import Usage

pytestmark = pytest.mark.anyio

CONFIRM = Gates(max_regressions=0, baseline="run 1", regression_rule="confirm")


async def against_passed(open_desk: OpenDesk, executor: HandExecutor, **options: Any) -> Conclusion:
    """The conclusion of a run of one case that passed in the run before and failed at first in this one."""
    desk = open_desk(HandExecutor(["passed"]), executor)
    before = await desk.start(desk.plan_for(subject(1), RunOptions(n=1)))
    await over(desk, before)
    plan = desk.plan_for(subject(1), RunOptions(n=1, gates=CONFIRM, **options))
    baseline = StoredRuns(desk.run_store).baseline_of(before)
    found = await over(desk, await desk.start(replace(plan, baseline=baseline)))
    return StoredRuns(desk.run_store).conclusion(found)


@pytest.mark.parametrize(("mode", "modes"), [("auto", ["auto"]), ("record", ["record"]), ("off", ["off"])])
async def test_trials_that_confirm_a_regression_bypass_the_recording(
    mode: str, modes: list[str], open_desk: OpenDesk
) -> None:
    executor = HandExecutor(["failed", "passed", "passed", "passed", "passed", "passed"])

    found = await against_passed(open_desk, executor, recording=mode)

    assert [spec.recording.mode for spec in executor.specs] == [*modes, *["off"] * 5]
    assert found.outcome == "passed"


async def test_a_replay_confirms_nothing_and_leaves_the_gate_open(open_desk: OpenDesk) -> None:
    executor = HandExecutor(["failed"])

    found = await against_passed(open_desk, executor, recording="replay")

    (gate,) = found.gates
    assert (len(executor.specs), found.outcome, gate.answer) == (1, "undecided", "undecided")
    assert "Not judged: recording = 'replay' asks no model, so no fresh trial is played; say recording" in gate.sentence


async def test_a_run_that_may_replay_is_not_stopped_by_what_is_likely(open_desk: OpenDesk) -> None:
    desk, gates = open_desk(), Gates(min_pass_rate=0.5, stop_when_decided="likely")
    plan = desk.plan_for(subject(1), RunOptions(n=1, gates=gates, recording="auto"))

    with pytest.raises(UsageError, match="may replay trials, which are not new evidence; leave it out, or say"):
        check_gates(gates, [plan])

    check_gates(gates, [replace(plan, config=replace(plan.config, recording=Recording("record")))])


@pytest.mark.parametrize(
    ("usages", "is_replayed"),
    [
        ((), False),
        ((Usage("m", cost=0.1),), False),
        ((Usage("m"), Usage("m", is_replayed=True)), True),
        ((Usage("m"), Usage("judge", role="judge", is_replayed=True)), False),
    ],
    ids=["no call", "asked", "one call replayed", "a judge replayed"],
)
def test_a_trial_knows_whether_it_was_replayed(usages: tuple[Usage, ...], *, is_replayed: bool) -> None:
    assert TrialResult(1, 0, 0, "finished", "passed", usages=usages).is_replayed is is_replayed
