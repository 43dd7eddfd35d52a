"""Watching a simulated user in a chat: from the page of a scenario to its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaldesk.model.evalset import case_key

SET = {
    "eval_set_id": "talks",
    "eval_cases": [
        {
            "eval_id": "asks",
            "conversation_scenario": {"starting_prompt": "Hello", "conversation_plan": "Ask for a roll."},
            "session_input": {"app_name": "dice", "user_id": "u", "state": {"rolls": [4]}},
        },
        {"eval_id": "scripted", "conversation": [{"user_content": {"parts": [{"text": "hi"}]}}]},
    ],
}


@pytest.fixture
def talks(tmp_path: Path, open_chat: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    names = ("agents", "sessions", "turns", "cases")
    monkeypatch.setattr("evaldesk.web.server.ROUTES", tuple(f"evaldesk.web.routes.{name}:routes" for name in names))
    folder = tmp_path / "evalsets"
    folder.mkdir()
    (folder / "talks.evalset.json").write_text(json.dumps(SET))
    return open_chat()


def case_path(talks: Any, case_id: str) -> str:
    [found] = [file for file in talks.desk.evalsets.list() if file.name == "talks"]
    return f"/evalsets/{found.id}/cases/{case_key(case_id)}"


def test_the_page_of_a_scenario_offers_to_watch_it_with_an_agent(talks: Any) -> None:
    shown = talks.client.get(f"{case_path(talks, 'asks')}/json").text
    scripted = talks.client.get(f"{case_path(talks, 'scripted')}/json").text

    assert "Watch in a chat" in shown
    assert '<option value="dice" selected>' in shown
    assert "Watch in a chat" not in scripted


def test_watching_opens_a_session_that_says_how_it_ended(talks: Any) -> None:
    answer = talks.client.post(f"{case_path(talks, 'asks')}/simulation", data={"agent": "dice"})
    session = talks.client.get(answer.headers["location"]).text

    assert answer.status_code == 303
    assert "The simulated user ended the conversation." in session
    assert "asks, simulated" in session
    assert talks.host.specs[-1].agent.kind == "evaldesk.agents.users.agent:adapt"
    assert talks.host.specs[-1].state == {"rolls": [4]}


@pytest.mark.parametrize(
    ("case_id", "agent", "status"),
    [("asks", "os:system", 404), ("asks", "", 404), ("scripted", "dice", 422), ("missing", "dice", 404)],
)
def test_what_cannot_be_watched_is_refused(talks: Any, case_id: str, agent: str, status: int) -> None:
    answer = talks.client.post(f"{case_path(talks, case_id)}/simulation", data={"agent": agent})

    assert answer.status_code == status
    assert talks.host.specs == []
    assert talks.desk.sessions.list() == []
