"""Runs are ticked and deleted, come back by Undo and from the trash, and are removed for good, in a browser."""

from __future__ import annotations

import json
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


def _tick(someone: Visitor, *run_ids: str) -> None:
    for run_id in run_ids:
        someone.page.get_by_label(f"Select run {run_id}", exact=True).check()


def test_runs_are_deleted_undone_restored_and_removed_for_good(someone: Visitor) -> None:
    page = someone.page
    for _ in range(3):
        run = someone.run("polite", someone.evalset("greetings"), {"response_match_score": "0.5"}, n="1")
        someone.goto(run)
        expect(page.get_by_role("button", name="Stop…")).to_have_count(0)

    someone.goto("/runs")
    rows = page.locator("tbody tr")
    _tick(someone, "1", "3")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Deleted 2 runs: 1, 3.")).to_be_visible()
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(rows).to_have_count(3)

    _tick(someone, "1", "2")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Deleted 2 runs: 1, 2.")).to_be_visible()
    page.get_by_role("link", name="Show the trash").click()
    page.get_by_role("row", name="2: polite").get_by_role("button", name="Restore").click()
    expect(page).to_have_url(f"{someone.desk.address}/runs/2")

    someone.goto("/trash")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Empty the trash…").click()
    page.get_by_role("button", name="Remove 1 item for good").click()
    expect(page.get_by_text("1 item removed for good.")).to_be_visible()
    expect(page.get_by_role("heading", name="The trash is empty")).to_be_visible()

    someone.goto("/runs")
    expect(rows).to_have_count(2)
    expect(page.get_by_label("Select run 1", exact=True)).to_have_count(0)


def test_runs_are_deleted_without_a_script(resident: Visitor, visit: Visit) -> None:
    run = resident.run("polite", resident.evalset("greetings"), {"response_match_score": "0.5"}, n="1")
    resident.goto(run)
    expect(resident.page.get_by_role("button", name="Stop…")).to_have_count(0)
    someone = visit(has_scripts=False)
    number = run.rpartition("/")[2]

    someone.goto("/runs")
    _tick(someone, number)
    someone.page.get_by_role("button", name="Delete").click()

    expect(someone.page.get_by_text(f"Deleted run {number}.")).to_be_visible()
    someone.page.get_by_role("button", name="Undo").click()
    expect(someone.page).to_have_url(f"{someone.desk.address}/runs/{number}")
