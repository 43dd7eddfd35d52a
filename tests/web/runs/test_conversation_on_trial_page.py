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
WHOLE = Criterion("tool_exact", 1.0, {"scope": "conversation"})


def shown(pages: Any, *criteria: Criterion) -> str:
    """The page of a trial that calls in its second turn what was expected in the first."""
    turns = [TurnRecord("q", (Event("tool_call", call=call),)) for call in (FIND, BOOK)]
    transcript = Transcript(tuple(turns))
    scores = score_trial(transcript, CASE, criteria)
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("dice", "dice"), "trips", n=1, criteria=criteria), [CASE])
    runs.record([TrialResult(run_id, 0, 0, "finished", "passed", "answered", transcript, scores)])
    return str(pages.get(f"/runs/{run_id}/cases/0/trials/0").text)


def test_a_call_of_another_turn_is_a_link_to_it_and_no_divergence(pages: Any) -> None:
    page = shown(pages, WHOLE)

    first, second = re.split(r'<article class="turn"', page)[1:]
    assert 'made as <a href="#turn-2">call 1 of turn 2</a>' in first
    assert 'expected as <a href="#turn-1">call 2 of turn 1</a>' in second
    assert not re.search(r'data-op="[^="]', page)
    assert 'id="divergence"' not in page
    assert 'id="conversation"' not in page


def test_beside_a_metric_of_single_turns_the_whole_conversation_is_drawn_once_more(pages: Any) -> None:
    page = shown(pages, WHOLE, Criterion("tool_exact/turns", 1.0))

    turns, whole = page.split('id="conversation"')
    assert re.findall(r'data-op="([^=])"', turns) == ["-", "+"]
    assert "Passed. First difference: turn 1, call 2" in turns
    assert "2 calls of the whole conversation, compared as one list" in whole
    assert re.findall(r'data-op="(.)"', whole) == ["=", "="]
    assert re.findall(r"<small>(turn \d, call \d)</small>", whole) == [
        "turn 1, call 1",
        "turn 1, call 1",
        "turn 1, call 2",
        "turn 2, call 1",
    ]
