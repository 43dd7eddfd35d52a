"""Saving a case and running it with one press; what is to be decided first leads to the form."""

from __future__ import annotations

from typing import Any

import pytest
from tests.web.evalsets.conftest import fields_of

from evaldesk.model import Event, TurnRecord
from evaldesk.model.evalset import case_key


@pytest.fixture
def session(pages: Any) -> str:
    """The address at which a session of one turn is added."""
    stored = pages.desk.store.sessions.create("dice", "Hello", {})
    said = (Event("agent_message", text="hello there", author="dice"),)
    pages.desk.store.sessions.append_turn(stored.id, TurnRecord("hello there", said))
    return f"/sessions/{stored.id}/case"


def test_add_and_run_starts_five_trials_at_once(pages: Any, session: str) -> None:
    fields = fields_of(pages.get(session).text)

    answer = pages.post(session, **fields | {"case": "said", "then": "run"})

    assert answer.headers["location"] == "/runs/1"
    config = pages.desk.store.runs.summary(1).config
    assert (config.agent.id, config.evalset_id, config.n) == ("dice", pages.evalset, 5)
    assert [*pages.desk.store.runs.case_ids(1).values()] == ["said"]


def test_add_and_run_holds_also_where_the_name_was_taken(pages: Any, session: str) -> None:
    typed = fields_of(pages.get(session).text) | {"case": "said"}
    pages.post(session, **typed)

    asked = pages.post(session, **typed | {"then": "run"})
    assert 'value="free run"' in asked.text
    answer = pages.post(session, **typed | {"choice": "free run"})

    assert answer.headers["location"] == "/runs/1"
    assert [*pages.desk.store.runs.case_ids(1).values()] == ["said_2"]
    assert 'value="free"' in pages.post(session, **typed).text


def test_save_and_run_is_by_the_agent_that_the_case_names(pages: Any) -> None:
    address = f"/evalsets/{pages.evalset}/cases/{case_key('greets')}"
    fields = fields_of(pages.get(address).text)

    answer = pages.post(address, **fields | {"then": "run"})

    assert answer.headers["location"] == "/runs/1"
    assert pages.desk.store.runs.summary(1).config.agent.id == "dice"


def test_a_case_that_cannot_be_judged_is_run_from_the_form(pages: Any) -> None:
    address = f"/evalsets/{pages.evalset}/cases/{case_key('open')}"
    fields = fields_of(pages.get(address).text)

    answer = pages.post(address, **fields | {"then": "run"})

    assert answer.headers["location"] == f"/runs/new?evalset={pages.evalset}&case=open&n=5&agent=dice"
    assert "will be unscored" in pages.get(answer.headers["location"]).text
    assert pages.desk.store.runs.list() == []
