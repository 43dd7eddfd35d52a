"""Which eval set the forms propose: the agent's own, last used first, and never one that was not asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.web.evalsets.conftest import fields_of
from tests.web.runs.conftest import CASES

from evaldesk.model import Event, TurnRecord


@pytest.fixture
def sets(pages: Any, tmp_path: Path) -> dict[str, str]:
    """The ids of three eval sets by name; the first by name is another agent's."""
    for name, app_name in (("aaa", "another"), ("own", "dice"), ("zzz", "another")):
        cases = [{**CASES[0], "session_input": {"app_name": app_name, "user_id": "u", "state": {}}}]
        path = tmp_path / "evalsets" / f"{name}.evalset.json"
        path.write_text(json.dumps({"eval_set_id": name, "eval_cases": cases}))
    (tmp_path / "evalsets" / "dice_set.evalset.json").unlink()
    return {file.name: file.id for file in pages.desk.evalsets.list()}


@pytest.fixture
def session(pages: Any) -> str:
    made = pages.desk.store.sessions.create("dice", "Greeting")
    pages.desk.store.sessions.append_turn(made.id, TurnRecord("hello", (Event("agent_message", 1, "dice", "Hi"),)))
    return f"/sessions/{made.id}/case"


def chosen(page: str) -> str:
    """The eval set that the form has selected."""
    select = re.search(r'<select id="evalset".*?</select>', page, re.DOTALL)
    assert select
    return str(re.findall(r'value="([^"]*)" selected', select[0])[0])


def test_a_new_run_proposes_the_agents_own_eval_set(pages: Any, sets: dict[str, str]) -> None:
    assert chosen(pages.get("/runs/new").text) == sets["own"]
    assert chosen(pages.get("/runs/new?agent=dice").text) == sets["own"]


def test_a_new_run_proposes_the_eval_set_that_was_run_last(pages: Any, sets: dict[str, str]) -> None:
    pages.finish(evalset=sets["zzz"], n="1")

    assert chosen(pages.get("/runs/new").text) == sets["zzz"]


def test_add_current_session_proposes_the_agents_own_eval_set(pages: Any, sets: dict[str, str], session: str) -> None:
    assert chosen(pages.get(session).text) == sets["own"]


def test_add_current_session_proposes_the_eval_set_used_last(pages: Any, sets: dict[str, str], session: str) -> None:
    pages.finish(evalset=sets["zzz"], n="1")
    assert chosen(pages.get(session).text) == sets["zzz"]

    other = pages.desk.store.sessions.create("dice", "Another")
    pages.desk.store.sessions.note_case(other.id, sets["own"], "greets")

    assert chosen(pages.get(session).text) == sets["own"]


TURNS = [{"query": "hello", "expected_tool_use": [], "reference": "Hi"}]
FORMS = {
    "flat": ("smoke.test.json", TURNS),
    "old": ("smoke.evalset.json", [{"name": "greets", "data": TURNS, "initial_session": {"app_name": "dice"}}]),
}


@pytest.mark.parametrize("is_last", [False, True], ids=["the only one", "added to last"])
@pytest.mark.parametrize("form", FORMS)
def test_the_default_target_of_a_session_can_take_its_case(
    pages: Any, session: str, tmp_path: Path, form: str, *, is_last: bool
) -> None:
    """A flat list is one case, so it never can; the first press is no conflict."""
    name, content = FORMS[form]
    (tmp_path / "evalsets" / "dice_set.evalset.json").unlink()
    (tmp_path / "evalsets" / name).write_text(json.dumps(content))
    (file,) = pages.desk.evalsets.list()
    if is_last:
        pages.desk.store.sessions.note_case(session.split("/")[2], file.id, "greets")
    page = pages.get(session).text

    added = pages.post(session, **fields_of(page), then="add")

    assert chosen(page) == ("new" if form == "flat" else file.id)
    assert added.status_code == 303
    assert added.headers["location"].startswith("/evalsets/")


def test_without_one_of_the_agents_own_a_choice_is_asked_for(
    pages: Any, sets: dict[str, str], session: str, tmp_path: Path
) -> None:
    (tmp_path / "evalsets" / "own.evalset.json").unlink()

    assert chosen(pages.get("/runs/new").text) == ""
    assert chosen(pages.get(session).text) == "new"
    refused = pages.post("/runs", **pages.form(evalset=""))
    assert refused.status_code == 422
    assert "choose an eval set" in refused.text


@pytest.mark.parametrize("name", ["agent", "evalset"])
def test_a_link_to_an_unknown_agent_or_eval_set_is_refused(pages: Any, sets: dict[str, str], name: str) -> None:
    answer = pages.get(f"/runs/new?{name}=gone")

    assert answer.status_code == 404
    assert "Choose another." in answer.text
    if name == "evalset":
        assert chosen(answer.text) == ""


def test_a_session_is_not_added_to_an_unknown_eval_set(pages: Any, sets: dict[str, str], session: str) -> None:
    answer = pages.get(f"{session}?evalset=gone")

    assert answer.status_code == 404
    assert "Choose another." in answer.text

    n_files = len(pages.desk.evalsets.list())
    posted = pages.post(session, evalset="gone", case="greets", **{"new-set": "fresh"})
    assert posted.status_code == 422
    assert "Choose another." in posted.text
    assert len(pages.desk.evalsets.list()) == n_files
