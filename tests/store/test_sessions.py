"""Chat sessions: kept turn by turn, listed, renamed, put away and brought back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evaldesk.errors import NotFoundError
from evaldesk.model import ErrorRecord, Event, TurnRecord
from evaldesk.store import Store


def _turn(query: str, *, error: ErrorRecord | None = None, **state: Any) -> TurnRecord:
    events = (Event("user_message", text=query), Event("agent_message", 2.5, "hello", "Done ✓"))
    return TurnRecord(query, (*events, *([Event("error", error=error)] if error else [])), {}, state)


def test_a_session_is_reopened_as_it_was_left(store: Store) -> None:
    session = store.sessions.create("hello", "Dice", {"rolls": []})
    turns = (_turn("Roll.", rolls=[6]), _turn("Again.", rolls=[6, 1]))

    indexes = [store.sessions.append_turn(session.id, turn) for turn in turns]

    reopened = store.sessions.get(session.id)
    assert indexes == [0, 1]
    assert (reopened.turns, reopened.state, reopened.initial_state) == (turns, {"rolls": [6, 1]}, {"rolls": []})
    assert (reopened.title, reopened.agent_id) == ("Dice", "hello")


def test_a_state_set_before_the_first_turn_is_where_the_session_starts(store: Store) -> None:
    session = store.sessions.create("hello")

    store.sessions.set_state(session.id, {"origin": "Köln"})
    store.sessions.append_turn(session.id, _turn("Go."))
    store.sessions.set_state(session.id, {"origin": "Bonn"})

    found = store.sessions.get(session.id)
    assert (found.initial_state, found.state) == ({"origin": "Köln"}, {"origin": "Bonn"})


def test_the_list_begins_with_the_session_used_last(store: Store, clock: Any) -> None:
    ids = []
    for agent in ("hello", "trip", "hello"):
        clock.move(seconds=1)
        ids.append(store.sessions.create(agent, agent.title()).id)
    clock.move(seconds=1)
    store.sessions.append_turn(ids[0], _turn("x", error=ErrorRecord("crash", "gave up")))

    every = store.sessions.list()

    assert [session.id for session in every] == [ids[0], ids[2], ids[1]]
    assert [(session.n_turns, session.ended_in_error) for session in every] == [(1, True), (0, False), (0, False)]


def test_sessions_of_the_same_moment_are_paged_without_gap(store: Store) -> None:
    ids = {store.sessions.create("hello").id for _ in range(5)}

    first = store.sessions.list(limit=3)
    second = store.sessions.list(limit=3, before=first[-1].id)

    assert len(first) == 3
    assert {session.id for session in (*first, *second)} == ids


def test_a_turn_that_ends_well_clears_the_error(store: Store) -> None:
    session = store.sessions.create("hello")

    store.sessions.append_turn(session.id, _turn("x", error=ErrorRecord("crash", "gave up")))
    store.sessions.append_turn(session.id, _turn("y"))

    assert not store.sessions.list()[0].ended_in_error


def test_a_renamed_session_keeps_its_place(store: Store, clock: Any) -> None:
    older = store.sessions.create("hello")
    clock.move(seconds=1)
    store.sessions.create("hello")
    clock.move(seconds=1)

    store.sessions.rename(older.id, "Second")

    assert [session.title for session in store.sessions.list()] == ["", "Second"]


def test_a_deleted_session_comes_back_whole(store: Store) -> None:
    session = store.sessions.create("hello", "Dice")
    store.sessions.append_turn(session.id, _turn("Roll."))
    whole = store.sessions.get(session.id)

    store.sessions.delete(session.id)
    listed = store.sessions.list()
    store.sessions.restore(session.id)

    assert listed == []
    assert store.sessions.get(session.id) == whole


def test_cases_made_from_a_session_are_remembered_once(store: Store, clock: Any) -> None:
    session = store.sessions.create("hello")
    had_case = store.sessions.has_case(session.id)
    for case_id in ("a", "b", "a"):
        clock.move(seconds=1)
        store.sessions.note_case(session.id, "calc", case_id)

    added = store.sessions.get(session.id).added_to

    assert [(case.evalset_id, case.case_id) for case in added] == [("calc", "b"), ("calc", "a")]
    assert (had_case, store.sessions.has_case(session.id)) == (False, True)


@pytest.mark.parametrize(
    "act",
    [
        lambda sessions, name: sessions.get(name),
        lambda sessions, name: sessions.rename(name, "x"),
        lambda sessions, name: sessions.delete(name),
        lambda sessions, name: sessions.append_turn(name, _turn("x")),
        lambda sessions, name: sessions.set_state(name, {}),
        lambda sessions, name: sessions.note_case(name, "calc", "a"),
    ],
    ids=lambda act: act.__code__.co_names[0],
)
@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "unknown"])
def test_a_session_that_is_not_there_is_not_found(
    store: Store, act: Callable[[Any, str], Any], is_deleted: bool
) -> None:
    name = "nobody"
    if is_deleted:
        name = store.sessions.create("hello").id
        store.sessions.delete(name)

    with pytest.raises(NotFoundError, match=f"no session '{name}'"):
        act(store.sessions, name)


def test_a_session_that_never_was_cannot_be_restored(store: Store) -> None:
    with pytest.raises(NotFoundError):
        store.sessions.restore("nobody")
