"""How trials of other tools end: the agent's own end is scored, an accident is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaldesk.formats.exchange import MARKS
from evaldesk.model.transcript import BOUNDS
from evaldesk.transcripts.recorded_ends import BOUND_TEXTS, ENDS, Ends, bound_of

FORMATS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


def table_row(name: str, ends: Ends) -> str:
    scored, errored = (", ".join(f"`{word}`" for word in words) for words in (ends.scored_keys, ends.errored))
    if ends.is_text:
        scored, errored = "a text that names a bound of the agent", "any other text"
    return f"| `{name}` | `{ends.key}` | {scored} | {errored} |"


def test_the_page_of_formats_has_the_table_of_ends() -> None:
    rows = [table_row(name, ends) for name, all_ends in ENDS.items() for ends in all_ends]

    assert "\n".join(rows) in FORMATS_PAGE.read_text()
    assert set(ENDS) <= set(MARKS)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("AgentStuckInLoopError: Agent got stuck in a loop", "stuck"),
        ("Agent reached maximum iteration in headless mode", "max_iterations"),
        ("MaxIterationsReached: 30", "max_iterations"),
        ("max_turns (10) exceeded", "max_iterations"),
        ("context_length_exceeded", "context_window"),
        ("This model's maximum context length is 8192 tokens", "context_window"),
        ("Agent reached maximum budget for conversation", "budget"),
        ("Content policy violation", "content_filter"),
        ("finish_reason: content_filter", "content_filter"),
        ("502 Server Error", None),
        ("Maximum retries (5) reached: rate limited", None),
        ("ExceededBudget: the key has spent its budget", None),
        ("Timeout after 300 seconds", None),
    ],
)
def test_a_text_names_a_bound_of_the_agent_or_an_accident(text: str, bound: str | None) -> None:
    assert bound_of(text) == bound


def test_every_bound_is_a_stop_reason_of_a_turn_without_an_answer() -> None:
    assert set(BOUND_TEXTS) < BOUNDS
