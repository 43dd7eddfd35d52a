"""How much one turn may hold."""

from __future__ import annotations

import pytest

from evaldesk.engine.worker import turn as turn_module
from evaldesk.engine.worker.turn import OpenTurn
from evaldesk.errors import AgentError
from evaldesk.model import Event, Session


@pytest.mark.parametrize(
    ("limit", "is_partial", "said"),
    [
        ("MAX_EVENTS", False, "more than 3 events"),
        ("MAX_PARTIAL", True, "more than 3 pieces of text"),
        ("MAX_TURN_BYTES", True, "MiB of events"),
        ("MAX_TURN_BYTES", False, "MiB of events"),
    ],
)
def test_a_flood_of_events_ends_the_turn(
    monkeypatch: pytest.MonkeyPatch, limit: str, *, is_partial: bool, said: str
) -> None:
    monkeypatch.setattr(turn_module, limit, 3)
    turn = OpenTurn(Session("s1"), "hello", lambda: 0.0, None)

    with pytest.raises(AgentError, match=said):
        _flood(turn, Event("agent_message", text="more", is_partial=is_partial))


def _flood(turn: OpenTurn, event: Event) -> None:
    for _ in range(5):
        turn.take(event)
