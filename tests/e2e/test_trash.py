"""Runs are ticked and deleted, come back by Undo and from the trash, and are removed for good, in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visit, Visitor

pytestmark = pytest.mark.browser

AGENT = "def root_agent(message, state):\n    return 'Hello'\n"


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """An agent of one line, and a set of one case."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "polite").mkdir(parents=True)
    (workspace / "agents" / "polite" / "agent.py").write_text(AGENT, "utf-8")
    turn = {"user_content": {"parts": [{"text": "Hi"}]}, "final_response": {"parts": [{"text": "Hello"}]}}
    (workspace / "evalsets").mkdir()
    cases = [{"eval_id": "greets", "conversation": [turn]}]
    path = workspace / "evalsets" / "greetings.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "greetings", "eval_cases": cases}), "utf-8")
    return "agents", "evalsets"


def _finish(someone: Visitor) -> str:
    """The number of a run that has ended."""
    run = someone.run("polite", someone.evalset("greetings"), {"response_match_score": "0.5"}, n="1")
    someone.goto(run)
    expect(someone.page.get_by_role("button", name="Stop…")).to_have_count(0)
    return run.rpartition("/")[2]


def _tick(someone: Visitor, *run_ids: str) -> None:
    for run_id in run_ids:
        someone.page.get_by_label(f"Select run {run_id}", exact=True).check()


def _shows(someone: Visitor, *run_ids: str, n: int) -> None:
    for run_id in run_ids:
        expect(someone.page.get_by_label(f"Select run {run_id}", exact=True)).to_have_count(n)


def test_runs_are_deleted_undone_restored_and_removed_for_good(someone: Visitor) -> None:
    page = someone.page
    first, second, third = (_finish(someone) for _ in range(3))

    someone.goto("/runs")
    _tick(someone, first, third)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text(f"Deleted 2 runs: {first}, {third}.")).to_be_visible()
    _shows(someone, first, third, n=0)
    _shows(someone, second, n=1)
    page.get_by_role("button", name="Undo").click()
    _shows(someone, first, second, third, n=1)

    _tick(someone, first, second)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text(f"Deleted 2 runs: {first}, {second}.")).to_be_visible()
    page.get_by_role("link", name="Show the trash").click()
    page.get_by_role("row", name=f"{second}: polite").get_by_role("button", name="Restore").click()
    expect(page).to_have_url(f"{someone.desk.address}/runs/{second}")

    someone.goto("/trash")
    page.get_by_role("button", name="Empty the trash…").click()
    page.get_by_role("button", name="Remove 1 item for good").click()
    expect(page.get_by_text("1 item removed for good.")).to_be_visible()
    expect(page.get_by_role("heading", name="The trash is empty")).to_be_visible()

    someone.goto("/runs")
    _shows(someone, first, n=0)
    _shows(someone, second, third, n=1)


def test_runs_are_deleted_without_a_script(resident: Visitor, visit: Visit) -> None:
    number = _finish(resident)
    someone = visit(has_scripts=False)

    someone.goto("/runs")
    _tick(someone, number)
    someone.page.get_by_role("button", name="Delete").click()

    expect(someone.page.get_by_text(f"Deleted run {number}.")).to_be_visible()
    someone.page.get_by_role("button", name="Undo").click()
    expect(someone.page).to_have_url(f"{someone.desk.address}/runs/{number}")


def test_a_note_on_a_run_that_another_tab_deleted_is_kept(resident: Visitor) -> None:
    someone, page = resident, resident.page
    run = f"/runs/{_finish(someone)}"
    someone.goto(run)
    page.get_by_role("button", name="Settings").click()
    page.get_by_text("Add a note").click()
    page.get_by_label("Note").fill("The new prompt reads well")
    page.context.request.post(f"{someone.desk.address}{run}/deletion")
    page.get_by_role("button", name="Save note").click()

    expect(page.locator("#toasts")).to_contain_text("Not stored: what this page shows was deleted. Restore it from")
    expect(page.get_by_label("Note")).to_have_value("The new prompt reads well")
    page.context.request.post(f"{someone.desk.address}{run}/restoration")
    page.get_by_role("button", name="Save note").click()

    expect(page.locator("#toasts")).to_contain_text("Note stored.")


@pytest.mark.parametrize("ending", ["deleted", "locked"])
def test_a_case_that_cannot_be_added_any_more_is_kept_as_it_is(visit: Visit, ending: str) -> None:
    someone = visit()
    page, session = someone.page, someone.chat("polite", "{}", "Hello")
    someone.goto(f"{session}/case")
    page.get_by_label("User message").fill("Half an hour of work")
    title = page.title()
    if ending == "deleted":
        page.context.request.post(f"{someone.desk.address}{session}/deletion")
    else:
        page.context.clear_cookies()
    page.get_by_role("button", name=re.compile("^Add to")).click()

    said = {"deleted": "what this page shows was deleted", "locked": "the desk needs its token again"}
    expect(page.locator("#toasts")).to_contain_text(f"Not stored: {said[ending]}")
    expect(page.get_by_label("User message")).to_have_value("Half an hour of work")
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert page.title() == title
