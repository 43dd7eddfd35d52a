"""The page of a trial whose calls a metric compared over the whole conversation."""

from __future__ import annotations

import re
from typing import Any

from evaldesk.metrics import score_trial
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Event,
    Expected,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)

FIND, BOOK = ToolCall("find", {"q": "rome"}), ToolCall("book", {"id": 7})
CASE = Case("trip", (Turn("Find.", Expected((FIND, BOOK))), Turn("Book.", Expected(()))))
CRITERIA = (Criterion("tool_exact", 1.0, {"scope": "conversation"}),)


def test_a_call_of_another_turn_is_a_link_to_it_and_no_divergence(pages: Any) -> None:
    turns = [TurnRecord("q", (Event("tool_call", call=call),)) for call in (FIND, BOOK)]
    transcript = Transcript(tuple(turns))
    scores = score_trial(transcript, CASE, CRITERIA)
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("dice", "dice"), "trips", n=1, criteria=CRITERIA), [CASE])
    runs.record([TrialResult(run_id, 0, 0, "finished", "passed", "answered", transcript, scores)])

    page = pages.get(f"/runs/{run_id}/cases/0/trials/0").text

    first, second = re.split(r'<article class="turn"', page)[1:]
    assert 'made as <a href="#turn-2">call 1 of turn 2</a>' in first
    assert 'expected as <a href="#turn-1">call 2 of turn 1</a>' in second
    assert not re.search(r'data-op="[^="]', page)
    assert 'id="divergence"' not in page
