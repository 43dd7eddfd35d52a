"""Keys of an event that mean nothing to Evaldesk are named on the trial, whichever way the event came."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.agents.answering import answering

from evaldesk.agents import Agent, agent_ref, load_agent
from evaldesk.agents.remote.protocol import _MAKERS, read_events
from evaldesk.model import AgentRef, Session

pytestmark = pytest.mark.anyio

EVENTS: list[dict[str, Any]] = [
    {"kind": "usage", "usage": {"model": "small", "tokens_in": 30}},
    {"kind": "usage", "model": "small", "tokens_in": 3, "tokens": 4, "usage": 1},
    {"kind": "message", "text": "hello", "author": "other"},
    {"kind": "message", "text": "again", "at": 3},
]
TOLD = [
    "A `usage` event has 'usage', which Evaldesk does not read; it reads "
    "kind, author, parent, within, model, tokens_in, tokens_out, tokens_cached, tokens_reasoning, cost.",
    "A `message` event has 'at', which Evaldesk does not read; "
    "it reads kind, author, parent, within, text, media, is_partial.",
]


@pytest.fixture(params=["function", "command", "lines", "whole"])
def agent(request: pytest.FixtureRequest, loaded: Any, tmp_path: Path) -> Iterator[Agent]:
    with ExitStack() as stack:
        if request.param == "function":
            yield loaded(f"def root_agent(message): yield from {EVENTS!r}")
        elif request.param == "command":
            lines = "\n".join(map(json.dumps, [*EVENTS, {"kind": "done"}]))
            (tmp_path / "agent.py").write_text(f"import sys\nfor line in sys.stdin: print({lines!r}, flush=True)")
            yield load_agent(AgentRef("cmd", f"{sys.executable} -S agent.py", root=str(tmp_path), kind="command"))
        else:
            address, server = stack.enter_context(answering())
            if request.param == "lines":
                server.gives(*EVENTS, kind="application/x-ndjson")
            else:
                server.gives({"events": EVENTS})
            yield load_agent(agent_ref(f"json:{address}/"))


async def test_unknown_keys_are_logged_once_for_each_kind_and_a_usage_without_numbers_is_a_lower_bound(
    agent: Agent, played: Any
) -> None:
    turn = await played(agent, Session("s"), "hi")

    logs = [event.text for event in turn.events if event.kind == "log" and event.author == "evaldesk"]
    assert (turn.error, logs) == (None, TOLD)
    assert [(usage.tokens_in, usage.is_least) for usage in turn.usages] == [(0, True), (3, False)]


@pytest.mark.parametrize("kind", _MAKERS)
def test_an_event_with_known_keys_is_logged_without_a_note(kind: str) -> None:
    fit: dict[str, Any] = {"name": "look", "state": {}, "media": [], "choices": ["approve"], "args": {}, "tokens_in": 1}
    keys = _MAKERS[kind][1].split()
    texts = {"text", "message", "code", "model"}
    event = {key: fit.get(key, "x" if key in texts else 0 if key.startswith("tokens") else None) for key in keys}

    found = [*read_events({"kind": kind, "author": "a", **event}, Session("s"), "a")]

    assert "log" not in [each.kind for each in found if each.author == "evaldesk"]


def test_long_lists_of_unknown_keys_are_truncated() -> None:
    event = {"kind": "log", "text": "x"} | {f"{at}{'k' * 500}": 1 for at in range(1000)}

    told, _ = read_events(event, Session("s"), "a")

    assert "and 995 more" in told.text
    assert len(told.text) < 600
