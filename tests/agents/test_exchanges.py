"""Exchanges with real packages of other frameworks, made by `make newest`: read again, they give the same calls."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from evaldesk.engine.worker.prompts import read_seen
from evaldesk.engine.worker.wire_calls import WireCall, wire_events
from evaldesk.llm.retry_events import HttpCall
from evaldesk.transcripts.plumbing import ENDING_TOOLS

FOLDER = Path(__file__).with_name("exchanges")
FILES = sorted(FOLDER.glob("*.json"))
TEXTS = ("smolagents", "smolagents_agents_of_code")  # their results, and calls of code, are texts of messages


def calls_of(content: dict[str, Any]) -> list[HttpCall]:
    exchanges = content["exchanges"]
    return [HttpCall(each["path"], each["request"], each["answer"].encode(), 1.0) for each in exchanges]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_calls_results_and_tokens_are_read_from_the_exchanges(path: Path) -> None:
    content = json.loads(path.read_text("utf-8"))
    calls = calls_of(content)
    seen = [read_seen(call, dict(call.request)) for call in calls if isinstance(call.request, dict)]

    wired = wire_events(
        [
            WireCall(float(at), call, exchange)
            for at, (call, (_, exchange)) in enumerate(zip(calls, seen, strict=True))
            if exchange
        ],
        (),
    )

    # The turns are read as one here, so the call that ended the first is followed by a request with its result.
    own = [event for event in wired.events if event.call and event.call.name not in ENDING_TOOLS]
    told = [(event.kind, event.call.name, event.call.args) for event in own if event.call]
    wanted = [(kind, content["tool"], {"sides": 6}) for kind in ("tool_call", "tool_result")]
    assert told == (wanted[:1] if path.stem == TEXTS[0] else [] if path.stem in TEXTS else wanted)
    assert all("6" in str(event.result) for event in own if event.kind == "tool_result")
    tokens = [(usage.tokens_in, usage.tokens_out, usage.tokens_cached) for usage, _ in seen]
    assert tokens == [(11, 5, 3)] * len(calls)


def test_every_framework_of_the_table_with_requests_of_its_own_has_exchanges() -> None:
    frameworks = {json.loads(path.read_text("utf-8"))["framework"] for path in FILES}

    assert {"Agent Framework", "Agno", "Claude Agent SDK", "CrewAI", "smolagents"} <= frameworks


@pytest.mark.parametrize(("problem", "code", "cell"), [("", 0, "yes"), ("it broke", 1, "no")], ids=["green", "red"])
def test_a_cell_that_was_green_and_breaks_fails_and_is_written(
    problem: str, code: int, cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])
    newest = import_module("bench.newest.__main__")
    page = tmp_path / "agents.md"
    page.write_text(newest.DOC.read_text("utf-8"), "utf-8")
    monkeypatch.setattr(newest, "DOC", page)
    monkeypatch.setattr(newest, "_environment", lambda *_: "python")
    monkeypatch.setattr(newest, "_version", lambda *_: "99.0")
    monkeypatch.setattr(newest, "_played", lambda *_: dict.fromkeys(newest.SHAPES, problem))

    assert newest.main(["agno"]) == code

    rows = page.read_text("utf-8").splitlines()
    [row] = [row for row in rows if row.startswith("| Agno | 99.0 |")]
    assert row.endswith("| " + " | ".join([cell] * len(newest.SHAPES)) + " |")
    assert any(row.startswith("| CrewAI | ") and " yes |" in row for row in rows)
