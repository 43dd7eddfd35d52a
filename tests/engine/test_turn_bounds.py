"""How much one turn may hold."""

from __future__ import annotations

import base64
import json

import pytest
from tests.media_samples import png

from evaldesk.engine.frames import MAX_FRAME, Ended
from evaldesk.engine.worker import turn as turn_module
from evaldesk.engine.worker.jobs import _result_frame
from evaldesk.engine.worker.turn import OpenTurn
from evaldesk.errors import AgentError
from evaldesk.model import Event, JsonValue, Session, ToolCall, Transcript, TrialResult, TurnRecord
from evaldesk.model.media import MAX_IMAGES, images_in, media_of
from evaldesk.wire import from_json


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


def _screenshot(n_bytes: int) -> str:
    return media_of("image/png", png() + b"\0" * (n_bytes - len(png()))).data


SCREEN = _screenshot(5_000_000)


def _result(data: str) -> JsonValue:
    return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}


def _taken(turn: OpenTurn, result: JsonValue) -> JsonValue:
    turn.take(Event("tool_result", call=ToolCall("look"), result=result))
    return turn.record("answered").events[-1].result


@pytest.mark.parametrize(
    "result",
    [_result(SCREEN), json.dumps(_result(SCREEN)), {"url": f"data:image/png;base64,{SCREEN}"}],
    ids=["value", "JSON as text", "data URL"],
)
def test_a_screenshot_of_5_mb_is_kept_whole(result: JsonValue) -> None:
    turn = OpenTurn(Session("s1"), "hello", lambda: 0.0, None)

    kept = _taken(turn, result)

    assert kept == result
    assert [image.content() for image in images_in(kept)] == [base64.b64decode(SCREEN)]


def test_images_of_a_turn_are_bounded_and_those_beyond_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_module, "MAX_TURN_BYTES", 2 * len(SCREEN))
    monkeypatch.setattr(turn_module, "MAX_IMAGES", 2 * len(SCREEN))
    turn = OpenTurn(Session("s1"), "hello", lambda: 0.0, None)

    kept = [_taken(turn, _result(SCREEN)) for _ in range(5)]

    assert kept[:2] == [_result(SCREEN)] * 2
    assert "an image is left out: a turn keeps 24 MiB" in str(kept[2])
    assert kept[2] == kept[3] == kept[4]


@pytest.mark.parametrize("data", [_screenshot(9_100_000), "A" * 5_000_000], ids=["too large", "no image"])
def test_other_long_texts_of_a_result_are_cut(data: str) -> None:
    turn = OpenTurn(Session("s1"), "hello", lambda: 0.0, None)

    assert len(str(_taken(turn, _result(data)))) < 1_001_000


def test_a_state_keeps_no_screenshot() -> None:
    session = Session("s1")
    turn = OpenTurn(session, "hello", lambda: 0.0, None)
    session.state["screen"] = SCREEN

    turn.take(Event("agent_message", text="look"))

    assert len(str(turn.record("answered").state_after["screen"])) < 1_001_000


def test_a_trial_with_many_images_keeps_the_first_and_its_texts() -> None:
    n = MAX_IMAGES // len(SCREEN)
    event = Event("tool_result", call=ToolCall("look"), result=_result(SCREEN))
    said = Event("agent_message", text="x" * 20_000)
    turns = tuple(TurnRecord("Look", (event, said)) for _ in range(n + 2))
    result = TrialResult(1, 0, 0, "finished", "passed", transcript=Transcript(turns))

    frame = _result_frame(1, result)

    assert len(frame) < MAX_FRAME
    sent = from_json(frame, Ended).result.transcript.turns
    assert sent[:n] == turns[:n]
    assert [turn.events[1] for turn in sent] == [said] * len(turns)
    assert all("an image is left out" in str(turn.events[0].result) for turn in sent[n:])
