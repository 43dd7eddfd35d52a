"""What adapters remember of chat sessions, for as long as it is not too much."""

from __future__ import annotations

import pytest

from evaldesk.agents.agent import SessionResource
from evaldesk.engine.frames import Talk
from evaldesk.engine.worker.jobs import TurnJob
from evaldesk.model import AgentRef, TurnSpec


class Process(SessionResource):
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_what_is_kept_for_the_session_unused_longest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.engine.worker.jobs._memories", {})
    monkeypatch.setattr("evaldesk.engine.worker.jobs.MAX_SESSIONS", 2)
    kept = {}

    for name in ("a", "b", "a", "c"):
        work = TurnJob(Talk(1, TurnSpec(name, AgentRef("x", "x:x"), "hello")), lambda _: None)
        kept[name] = work._session().memory.setdefault("process", Process())

    assert {name: getattr(process, "is_closed", None) for name, process in kept.items()} == {
        "a": False,
        "b": True,
        "c": False,
    }
