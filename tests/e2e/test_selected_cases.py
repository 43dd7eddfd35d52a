"""A selection of cases outlives the pages and searches of its set, and one step moves all of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser

N = 450


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """A set of three pages, and an empty one."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    folder = workspace / "evalsets"
    folder.mkdir()
    cases = [
        {"eval_id": f"c{number:03}", "conversation": [{"user_content": {"parts": [{"text": f"Say {number}"}]}}]}
        for number in range(N)
    ]
    for name, own_cases in (("many", cases), ("few", [])):
        (folder / f"{name}.evalset.json").write_text(json.dumps({"eval_set_id": name, "eval_cases": own_cases}))
    return ("evalsets",)


def test_a_selection_outlives_pages_and_searches(someone: Visitor) -> None:
    page = someone.page
    address = f"/evalsets/{someone.evalset('many')}"
    someone.goto(address)
    bar = page.get_by_role("group", name="Selected cases")
    page.get_by_label("Select c001", exact=True).check()
    page.get_by_role("link", name="Next").click()
    page.get_by_label("Select c201", exact=True).check()
    expect(bar).to_contain_text("2 selected")

    page.get_by_label("Search cases", exact=True).fill("Say 44")
    expect(page.get_by_label("Select c440", exact=True)).to_be_visible()
    page.get_by_label("Select c440", exact=True).check()
    expect(bar).to_contain_text("3 selected")
    page.get_by_label("Search cases", exact=True).fill("Say 1")
    expect(page.get_by_label("Select c001", exact=True)).to_be_checked()
    bar.get_by_role("button", name="Copy, move, reword").click()
    expect(page.get_by_role("heading", name="3 selected cases")).to_be_visible()
    page.get_by_label("To the eval set").select_option(label="few")
    page.get_by_role("button", name="Move", exact=True).click()

    expect(page.get_by_text("3 cases moved to few")).to_be_visible()
    expect(bar).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("The step was undone.")).to_be_visible()
    expect(page.get_by_role("link", name=re.compile(r"^Run all 450"))).to_be_visible()


def test_all_that_match_are_selected_and_cleared(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"/evalsets/{someone.evalset('many')}")
    bar = page.get_by_role("group", name="Selected cases")

    page.get_by_label("Select all 450 cases that match").check()

    expect(bar).to_contain_text("450 selected")
    bar.get_by_role("button", name="Clear").click()
    expect(bar).to_be_hidden()
    expect(page.get_by_label("Select all 450 cases that match")).not_to_be_checked()


def test_ticked_cases_get_criteria_by_the_keyboard_and_lose_them(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"/evalsets/{someone.evalset('many')}")
    page.get_by_label("Select c003", exact=True).check()
    page.get_by_label("Select c004", exact=True).check()
    page.get_by_role("button", name="Copy, move, reword, criteria").press("Enter")
    field = page.get_by_label("Metrics that judge them")
    field.fill("no_such_metric")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("no_such_metric")
    expect(field).to_have_value("no_such_metric")

    field.fill("response_exact")
    field.press("Enter")

    expect(page.get_by_text("Criteria of 2 cases changed.")).to_be_visible()
    page.get_by_role("button", name="Undo").press("Enter")
    expect(page.get_by_text("The step was undone.")).to_be_visible()
