"""A run says which of its eval functions were edited since the desk was opened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, over, started

from evaldesk.model import Criterion

pytestmark = pytest.mark.anyio


async def test_an_edit_after_the_desk_was_opened_is_named_in_the_next_run(open_desk: OpenDesk, tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("def word(solution_str):\n    return 0.0\n")
    criteria = (Criterion("word", 1.0, {"function": "rewards:word", "root": str(tmp_path)}),)
    desk = open_desk(*(HandExecutor(("passed",)) for _ in range(3)))
    reasons = []

    reasons.append((await over(desk, await started(desk, criteria=criteria))).reason)
    (tmp_path / "rewards.py").write_text("def word(solution_str):\n    return 1.0\n")
    for _ in range(2):
        reasons.append((await over(desk, await started(desk, criteria=criteria))).reason)

    assert [bool(reason) for reason in reasons] == [False, True, False]
    assert re.match(r"rewards\.py \(at \d\d:\d\d:\d\d\) changed after this desk was opened", reasons[1])
