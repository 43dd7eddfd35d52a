"""A gate is measured against stored runs by the rule that judges runs."""

from __future__ import annotations

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, over, started

from evaldesk.desk.runs.gates.measured import measured_pairs
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import Gates, Verdict
from evaldesk.store import Store

pytestmark = pytest.mark.anyio


async def test_flips_of_single_trials_are_measured_as_each_rule_judges_them(open_desk: OpenDesk, store: Store) -> None:
    passed: list[Verdict] = ["passed"] * 19
    strips: list[list[Verdict]] = [passed, [*passed, "failed"]]
    desk = open_desk(*(HandExecutor(verdicts) for verdicts in strips * 3))
    summary = None
    for _ in range(6):
        summary = await over(desk, await started(desk, n_cases=20, seed=1))
    assert summary

    any_flip, likely = (
        measured_pairs(StoredRuns(store.runs), summary, Gates(max_regressions=0, regression_rule=rule))
        for rule in ("any", "likely")
    )

    assert any_flip
    assert likely
    assert (any_flip.n_runs, likely.n_runs) == (6, 6)
    assert any_flip.share > 0
    assert likely.share == 0
