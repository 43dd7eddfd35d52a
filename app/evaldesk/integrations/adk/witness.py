"""Facts of an invocation that google-adk's runner does not report."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from evaldesk.integrations.adk.answers import Answers
from evaldesk.model import Event, ModelOptions, ToolCall, Waiting


@dataclass(slots=True)
class Witness:
    """Calls, durations and pending approvals of one invocation.

    Model calls are keyed by their agent, `tools` by the session that they run; `parents` has the agent above each.
    """

    session_id: str
    options: ModelOptions
    model: str = ""
    models: dict[str, str] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    calls: dict[str, ToolCall] = field(default_factory=dict)
    requests: dict[str, Waiting] = field(default_factory=dict)
    start_s: dict[str, float] = field(default_factory=dict)
    took_ms: dict[str, float] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    inner_events: list[Event] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)

    def begin(self, key: str) -> None:
        """Start the clock of a model call of the agent `key`, or of the tool call with the id `key`."""
        self.start_s[key] = time.perf_counter()

    def end(self, key: str) -> None:
        """Stop its clock."""
        self.took_ms[key] = (time.perf_counter() - self.start_s.get(key, time.perf_counter())) * 1000

    def take_inner_events(self) -> tuple[Event, ...]:
        """Remove and return the events of nested runners, and the notes of doubles and recordings."""
        events = (*self.inner_events, *self.answers.notes)
        self.inner_events.clear()
        self.answers.notes.clear()
        return events
