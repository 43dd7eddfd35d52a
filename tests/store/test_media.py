"""The bytes of media are kept once, come back whole, and go with the last run or session that has them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Connection, func, select
from tests.media_samples import picture

from evaldesk.errors import NotFoundError
from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    JsonValue,
    Prompts,
    RunConfig,
    ToolCall,
    Transcript,
    Turn,
    TurnRecord,
)
from evaldesk.model.media import TO_URL, images_in
from evaldesk.model.stored import OpenTurn
from evaldesk.store import Store, media, sessions
from evaldesk.store.runs import trash
from evaldesk.store.tables.media import MEDIA, RUN_MEDIA, SESSION_MEDIA
from evaldesk.store.tables.runs import CASE_SNAPSHOT, RUN_CASE, TRANSCRIPT
from evaldesk.store.tables.sessions import SESSION_TURN, TURN_PROMPTS
from evaldesk.wire import to_json

CONFIG = RunConfig(agent=AgentRef("hello", "agent:root_agent"), evalset_id="calc", n=1)
CAT = picture()
FORM: Any = {
    "$form": {"raw": {"user_content": {"parts": [{"inline_data": {"data": CAT.data.translate({43: 45, 47: 95})}}]}}}
}
CASE = Case("cat", (Turn("What is it?", media=(CAT,), extra=FORM),))


def _n_rows(store: Store, table: Any) -> int:
    with store._database.reading() as connection:
        return int(connection.scalar(select(func.count()).select_from(table)) or 0)


def _value(store: Store, column: Any) -> Any:
    with store._database.reading() as connection:
        return connection.scalar(select(column))


def test_a_case_comes_back_whole_and_is_stored_small(store: Store) -> None:
    run_id = store.runs.create(CONFIG, [CASE, replace(CASE, id="again")])

    assert store.runs.some_cases(run_id, [0, 1]) == {0: CASE, 1: replace(CASE, id="again")}
    assert _n_rows(store, MEDIA) == 1
    assert store.media.content(CAT.digest) == CAT.content()
    assert len(_value(store, CASE_SNAPSHOT.c.data)) < 1_000 < len(CAT.data)


def test_another_image_is_another_case(store: Store) -> None:
    store.runs.create(CONFIG, [CASE])
    store.runs.create(CONFIG, [replace(CASE, turns=(Turn("What is it?", media=(picture(seed=5),), extra=FORM),))])

    with store._database.reading() as connection:
        digests = connection.scalars(select(RUN_CASE.c.digest)).all()

    assert len(set(digests)) == 2


def test_the_bytes_go_with_the_last_run_that_has_them(store: Store) -> None:
    first, second = (store.runs.create(CONFIG, [CASE]) for _ in range(2))
    for run_id in (first, second):
        store.runs.set_status(run_id, "stopped")

    store.runs.delete(first)
    store.runs.remove_deleted()
    assert store.media.content(CAT.digest) == CAT.content()

    store.runs.delete(second)
    store.runs.remove_deleted()
    assert _n_rows(store, MEDIA) == 0


def test_the_bytes_of_a_removed_run_go_in_steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [picture(seed=seed) for seed in range(7)]
    cases = [Case(f"case-{at}", (Turn("What is it?", media=(item,)),)) for at, item in enumerate(pictures)]
    run_id, other = store.runs.create(CONFIG, cases), store.runs.create(CONFIG, cases[:1])
    store.runs.set_status(run_id, "stopped")
    store.runs.delete(run_id)
    left: list[tuple[int, int]] = []
    n_bytes = len(pictures[0].content())
    delete_some = trash.delete_some

    def cut_short(connection: Connection, *arguments: Any) -> bool:
        is_left = delete_some(connection, *arguments)
        counts = (connection.scalar(select(func.count()).select_from(table)) or 0 for table in (RUN_MEDIA, MEDIA))
        left.append((next(counts), next(counts)))
        return is_left and len(left) != 4

    monkeypatch.setattr(media, "MAX_DROPPED", 2 * n_bytes)
    monkeypatch.setattr(trash, "delete_some", cut_short)
    store.runs.remove_deleted()
    assert run_id not in [run.id for run, _ in store.runs.deleted()]
    store.runs.finish_deleting()

    n_media = [n for n, _ in left]
    assert n_media[0] == 8
    assert n_media[-1] == 1
    assert max(before - after for before, after in pairwise(n_media)) == 2
    assert left[-1] == (1, 1)
    assert store.media.content(pictures[0].digest), "the other run has it"
    assert store.runs.some_cases(other, [0]) == {0: cases[0]}


def test_a_medium_larger_than_a_step_is_removed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = store.runs.create(CONFIG, [CASE])
    store.runs.set_status(run_id, "stopped")
    store.runs.delete(run_id)
    monkeypatch.setattr(media, "MAX_DROPPED", 1)

    store.runs.remove_deleted()

    assert _n_rows(store, MEDIA) == 0


def test_the_media_of_a_recorded_trial_are_kept(store: Store, end: Any) -> None:
    run_id = store.runs.create(CONFIG, [Case("cat", (Turn("What is it?"),))])
    transcript = Transcript((TurnRecord("What is it?", media=(CAT,)),))

    store.runs.record([end(run_id, 0, 0, transcript=transcript)])

    found = store.runs.trial(run_id, 0, 0)
    assert found.transcript.turns[0].media == (CAT.held(),)
    assert store.media.with_bytes(found.transcript.turns[0].media) == (CAT,)
    assert len(_value(store, TRANSCRIPT.c.data)) < 1_000


def test_the_media_of_a_chat_are_there_before_its_turn_is_played(store: Store) -> None:
    session = store.sessions.create("hello")
    turn = OpenTurn(0, "me", "What is it?", "", "person", datetime(2026, 11, 25, tzinfo=UTC), media=(CAT,))

    store.sessions.begin_turn(session.id, turn)

    opened = store.sessions.get(session.id).open_turn
    assert opened is not None
    assert store.media.with_bytes(opened.media) == (CAT,)

    store.sessions.append_turn(session.id, TurnRecord("What is it?", media=(CAT.held(),)), owner="me")
    assert store.sessions.get(session.id).turns[0].media == (CAT.held(),)

    store.sessions.delete(session.id)
    store.sessions.remove_deleted(datetime(2100, 1, 1, tzinfo=UTC))
    assert _n_rows(store, MEDIA) == 0


def test_a_chat_leaves_the_trash_in_steps_and_is_not_restored_once_that_has_begun(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = [picture(seed=seed) for seed in range(5)]
    session, other = store.sessions.create("hello"), store.sessions.create("hello")
    for item in pictures:
        store.sessions.append_turn(session.id, TurnRecord("Look", media=(item,)), prompts=Prompts())
    store.sessions.append_turn(other.id, TurnRecord("Look", media=(pictures[0],)))
    store.sessions.delete(session.id)
    left: list[tuple[int, ...]] = []
    remove_some = sessions._remove_some

    def cut_short(connection: Connection, session_id: str) -> bool:
        is_left = remove_some(connection, session_id)
        tables = (TURN_PROMPTS, SESSION_TURN, SESSION_MEDIA, MEDIA)
        left.append(tuple(connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables))
        return is_left and len(left) != 8

    monkeypatch.setattr(media, "MAX_DROPPED", 2 * len(pictures[0].content()))
    monkeypatch.setattr(sessions, "_ROWS_REMOVED", 2)
    monkeypatch.setattr(sessions, "_remove_some", cut_short)
    store.sessions.remove_deleted(datetime(2100, 1, 1, tzinfo=UTC))
    assert store.sessions.deleted() == []
    with pytest.raises(NotFoundError):
        store.sessions.restore(session.id)
    assert len(left) == 8
    store.sessions.remove_deleted()

    assert left[-1] == (0, 1, 1, 1)
    assert max(sum(before) - sum(after) for before, after in pairwise(left)) == 4, "two media, each used and kept"
    assert [each.id for each in store.sessions.list()] == [other.id]
    assert store.media.content(pictures[0].digest), "the other chat has it"


RESULTS = [
    pytest.param({"content": [{"type": "image", "data": CAT.data, "mimeType": "image/png"}]}, id="MCP"),
    pytest.param({"inline_data": {"mime_type": "image/png", "data": CAT.data.translate(TO_URL)}}, id="google-adk"),
    pytest.param(json.dumps([{"type": "image", "base64": CAT.data, "mime_type": "image/png"}]), id="JSON as text"),
    pytest.param({"image_url": {"url": f"data:image/png;base64,{CAT.data}"}, "n": 1}, id="OpenAI"),
]


@pytest.mark.parametrize("result", RESULTS)
def test_images_in_results_are_kept_once_and_come_back_whole(store: Store, end: Any, result: JsonValue) -> None:
    run_id = store.runs.create(CONFIG, [Case("cat", (Turn("Look"),))])
    literal: JsonValue = {"text": f"sha256:{CAT.digest}", "state": CAT.data}
    turn = TurnRecord(
        "Look", (Event("tool_result", call=ToolCall("look"), result=result),), state_after={"seen": CAT.data}
    )
    other = TurnRecord("Again", (Event("tool_result", call=ToolCall("look"), result=literal),))

    store.runs.record([end(run_id, 0, 0, transcript=Transcript((turn, other)))])
    session = store.sessions.create("hello")
    store.sessions.append_turn(session.id, turn)

    assert store.runs.trials(run_id, [(0, 0)])[0, 0].transcript.turns == (turn, other)
    assert store.runs.trial(run_id, 0, 0, is_whole=True).transcript.turns == (turn, other)
    shown, kept = store.runs.trial(run_id, 0, 0).transcript.turns[0], store.sessions.get(session.id).turns[0]
    assert shown == kept
    assert CAT.data[:100] not in to_json(shown.events).decode()
    assert CAT.digest in to_json(shown.events).decode()
    assert shown.state_after == turn.state_after
    assert store.media.results_whole((kept,)) == (turn,)
    assert store.media.content(CAT.digest) == CAT.content()
    assert _n_rows(store, MEDIA) == 1


FORGED = [
    pytest.param({"type": "image", "data": f"sha256:{CAT.digest}"}, id="digest"),
    pytest.param({"type": "image", "data": f"\ufdd0sha256:{CAT.digest}"}, id="marked digest"),
    pytest.param(
        {"inline_data": {"mime_type": "image/png", "data": f"\ufdd0sha256-url:{CAT.digest}"}}, id="of addresses"
    ),
    pytest.param(json.dumps({"type": "image", "data": f"\ufdd0sha256:{CAT.digest}"}), id="escaped in text"),
    pytest.param(json.dumps({"type": "image", "data": f"\ufdd0sha256:{CAT.digest}"}, ensure_ascii=False), id="in text"),
    pytest.param(json.dumps([json.dumps({"type": "image", "data": f"\ufdd0sha256:{CAT.digest}"})]), id="in text twice"),
    pytest.param({"image_url": f"data:image/png;base64,\ufdd0sha256:{CAT.digest}"}, id="data URL"),
]


@pytest.mark.parametrize("beside", [None, RESULTS[0].values[0], RESULTS[2].values[0]], ids=["alone", "value", "text"])
@pytest.mark.parametrize("forged", FORGED)
def test_a_digest_that_an_agent_writes_stays_text(store: Store, end: Any, forged: JsonValue, beside: JsonValue) -> None:
    run_id = store.runs.create(CONFIG, [Case("cat", (Turn("Look"),))])
    other = picture(seed=5)
    theirs = TurnRecord(
        "Hers", (Event("tool_result", call=ToolCall("look"), result={"type": "image", "data": CAT.data}),)
    )
    result: JsonValue = [forged, json.loads(json.dumps(beside).replace(CAT.data, other.data))]
    turn = TurnRecord("Mine", (Event("tool_result", call=ToolCall("look"), result=result),))

    store.runs.record([end(run_id, 0, 0, transcript=Transcript((theirs, turn)))])

    for is_whole in (False, True):
        stored = store.runs.trial(run_id, 0, 0, is_whole=is_whole).transcript.turns[1].events[0].result
        assert CAT.data not in to_json(stored).decode()
        assert CAT.digest not in [image.digest for image in images_in(stored)]
        assert f"sha256:{CAT.digest}" in to_json(stored).decode().replace("sha256-url", "sha256")
    assert [image.digest for image in images_in(stored)] == ([other.digest] if beside else [])


def test_a_forged_digest_beside_its_own_image_takes_nothing_from_the_result(store: Store, end: Any) -> None:
    run_id = store.runs.create(CONFIG, [Case("cat", (Turn("Look"),))])
    escaped = json.dumps({"type": "image", "data": f"\ufdd0sha256:{picture(seed=5).digest}"})
    whole = f'[{escaped}, {{"type": "image", "data": "{CAT.data}"}}]'
    turn = TurnRecord("Mine", (Event("tool_result", call=ToolCall("look"), result=whole),))

    store.runs.record([end(run_id, 0, 0, transcript=Transcript((turn,)))])

    assert store.runs.trial(run_id, 0, 0).transcript.turns == (turn,)
    assert store.runs.trial(run_id, 0, 0, is_whole=True).transcript.turns == (turn,)


def test_an_image_of_a_message_stays_where_a_tool_repeats_it(store: Store, end: Any) -> None:
    run_id = store.runs.create(CONFIG, [Case("cat", (Turn("Look"),))])
    echoed = Event("tool_result", call=ToolCall("look"), result={"seen": CAT.data})
    turn = TurnRecord("Mine", (echoed,), state_after={"seen": CAT.data}, media=(CAT,))

    store.runs.record([end(run_id, 0, 0, transcript=Transcript((turn,)))])

    assert store.runs.trial(run_id, 0, 0).transcript.turns == (replace(turn, media=(CAT.held(),)),)


def test_a_chat_goes_on_with_the_newest_images_of_its_tools(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [picture(seed=seed) for seed in range(3)]
    monkeypatch.setattr("evaldesk.store.media.MAX_IMAGES", 2 * len(pictures[0].data))
    results = [Event("tool_result", call=ToolCall("look"), result={"type": "image", "data": p.data}) for p in pictures]
    session = store.sessions.create("hello")
    for event in results:
        store.sessions.append_turn(session.id, TurnRecord("Look", (event,)))

    turns = store.media.results_whole(store.sessions.get(session.id).turns)

    assert [turn.events[0] for turn in turns[1:]] == results[1:]
    assert "an image is left out" in str(turns[0].events[0].result)


def test_bytes_that_are_gone_leave_the_digest(store: Store) -> None:
    assert store.media.content(CAT.digest) is None
    assert store.media.with_bytes([CAT.held()]) == (CAT.held(),)


def test_an_image_that_an_agent_answered_with_is_kept(store: Store, end: Any) -> None:
    run_id = store.runs.create(CONFIG, [Case("cat", (Turn("Draw"),))])
    turn = TurnRecord("Draw", (Event("agent_message", text="Here", media=(CAT,)),))

    store.runs.record([end(run_id, 0, 0, transcript=Transcript((turn,)))])
    session = store.sessions.create("hello")
    store.sessions.append_turn(session.id, turn)

    found = store.runs.trial(run_id, 0, 0).transcript.turns[0].events[0].media
    assert found == store.sessions.get(session.id).turns[0].events[0].media == (CAT.held(),)
    assert store.media.content(CAT.digest) == CAT.content()
