"""Saving a case and running it with one press; what is to be decided first leads to the form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.web.evalsets.conftest import fields_of

from evaldesk.desk.criteria.criteria import given_criteria
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


def test_the_criteria_are_those_of_the_file_beside_the_eval_set(pages: Any, session: str, tmp_path: Path) -> None:
    beside = tmp_path / "evalsets" / "test_config.json"
    lenient = {"response_match_score": 0.5, "tool_trajectory_avg_score": {"threshold": 1, "match_type": "IN_ORDER"}}
    beside.write_text(json.dumps({"criteria": lenient}))
    fields = fields_of(pages.get(session).text)

    pages.post(session, **fields | {"case": "said", "then": "run"})
    form = pages.get("/runs/new").text

    assert pages.desk.store.runs.summary(1).config.criteria == given_criteria(beside)
    assert "As in <code>test_config.json</code> beside the eval set" in form
    assert re.search(r'name="response_match_score.threshold"[^>]*value="0.5"', form)
    typed = pages.post("/runs/new", filled="1", evalset=pages.evalset, metric="response_match_score").text
    assert re.search(r'name="response_match_score.threshold"[^>]*value="0.8"', typed)
    assert "Fill in from <code>test_config.json</code>" in typed


def test_live_settings_of_the_file_beside_the_eval_set_fill_the_form(pages: Any, tmp_path: Path) -> None:
    beside = tmp_path / "evalsets" / "test_config.json"
    live = {"live_model_config": {"timeout_seconds": 9}}
    beside.write_text(json.dumps({"criteria": {"response_match_score": 0.5}} | live))

    form = pages.get("/runs/new").text

    assert re.search(r'name="live" value="1" checked', form)
    assert re.search(r'name="live_timeout_s"[^>]*value="9"', form)
    typed = pages.post("/runs/new", filled="1", evalset=pages.evalset, metric="response_match_score").text
    assert not re.search(r'name="live" value="1" checked', typed)


def test_an_odd_file_of_criteria_is_said_in_the_form_until_some_are_chosen(
    pages: Any, session: str, tmp_path: Path
) -> None:
    (tmp_path / "evalsets" / "test_config.json").symlink_to("gone.json")
    fields = fields_of(pages.get(session).text)

    answer = pages.post(session, **fields | {"case": "said", "then": "run"})
    form = pages.get(answer.headers["location"]).text
    typed = pages.post("/runs/new", filled="1", evalset=pages.evalset, metric="response_match_score").text

    assert pages.desk.store.runs.list() == []
    assert "test_config.json is a link that leads nowhere; repair or remove it" in form
    assert "These are the default criteria" in form
    assert "leads nowhere" not in typed


JUDGED_ELSEWHERE = {
    "final_response_match_v2": {"threshold": 1, "judge_model_options": {"base_url": "http://judge.example/v1"}}
}


@pytest.mark.parametrize(
    ("criteria", "says"),
    [
        ({"response_mach_score": 0.5}, "did you mean"),
        ({"mine": {"threshold": 1, "function": "os:getcwd"}}, "names a function or an address"),
        (JUDGED_ELSEWHERE, "names a function or an address"),
    ],
)
def test_a_file_that_the_form_cannot_take_is_said_and_starts_nothing(
    pages: Any, session: str, tmp_path: Path, criteria: dict[str, Any], says: str
) -> None:
    (tmp_path / "evalsets" / "test_config.json").write_text(json.dumps({"criteria": criteria}))
    fields = fields_of(pages.get(session).text)

    answer = pages.post(session, **fields | {"case": "said", "then": "run"})
    form = pages.get(answer.headers["location"]).text

    assert pages.desk.store.runs.list() == []
    assert says in form
    assert "These are the default criteria" in form
    assert "As in <code>" not in form
