"""Eval sets in a browser: editing every part of a case, the raw file, and taking sets out and in."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from evaldesk import paths
from evaldesk.formats import format_of, read_evalset

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """The eval sets of the samples, and an agent that imports nothing."""

    def furnish(workspace: Path) -> tuple[str, ...]:
        shutil.copytree(paths.shipped("evalsets"), workspace / "evalsets")
        (workspace / "echo").mkdir()
        (workspace / "echo" / "agent.py").write_text("def root_agent(message):\n    return message\n", "utf-8")
        return "echo", "evalsets"

    return furnish


def test_back_from_a_case_leads_to_the_cases_that_were_searched(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"/evalsets/{someone.evalset('hello_world')}")
    page.get_by_label("Search cases").fill("16 sides")
    expect(page.locator("#rows tbody tr")).to_have_count(1)

    page.locator("#rows tbody th a").click()
    expect(page.get_by_role("button", name="Save case")).to_be_visible()
    page.go_back()

    expect(page.get_by_label("Search cases")).to_have_value("16 sides")
    expect(page.locator("#rows tbody tr")).to_have_count(1)


def test_turns_are_added_moved_edited_and_deleted(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"/evalsets/{someone.evalset('hello_world')}")
    page.get_by_role("link", name="roll_16", exact=True).click()

    page.get_by_role("button", name="Turn", exact=True).click()
    page.locator("#turn-1-query").fill("Is 7 prime?")
    page.locator("#turn-1").get_by_label("These calls").check()
    page.get_by_role("button", name="Expected call in turn 2").click()
    page.get_by_label("Turn 2, tool of call 1").fill("check_prime")
    page.get_by_role("button", name="Argument for call 1 of turn 2").click()
    page.get_by_label("check_prime 1 of turn 2, argument 1, name").fill("nums")
    page.locator("#turn-1-call-0-arg-0-value").fill("[7")
    page.get_by_role("button", name="Save case").click()
    expect(page.get_by_role("alert")).to_contain_text("The case was not saved: 1 field to correct")
    page.locator("#turn-1-call-0-arg-0-value").fill("[7]")
    page.get_by_role("button", name="Move turn 2 up").click()
    expect(page.locator("#turn-0-query")).to_have_value("Is 7 prime?")
    page.get_by_role("button", name="Save case").click()

    expect(page.get_by_role("status")).to_contain_text("Saved.")
    _expect_messages(page, "Is 7 prime?", "Can you roll a die with 16 sides?")
    page.get_by_role("button", name="Delete turn 1").click()
    expect(page.locator("#turn-1")).to_have_count(0)
    with page.expect_navigation():
        page.get_by_role("button", name="Save case").click()
    _expect_messages(page, "Can you roll a die with 16 sides?")


def _expect_messages(page: Page, *messages: str) -> None:
    """These turns alone; a page that says "Saved." may still be on its way."""
    fields = page.get_by_label("User message")
    expect(fields).to_have_count(len(messages))
    for field, message in zip(fields.all(), messages, strict=True):
        expect(field).to_have_value(message)


def test_the_raw_json_of_a_case_is_edited_and_its_unknown_keys_stay(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"/evalsets/{someone.evalset('hello_world')}")
    page.get_by_role("link", name="which_are_prime", exact=True).click()
    page.get_by_role("link", name="Raw JSON").click()
    raw = page.get_by_label("Case in the file")
    case = json.loads(raw.input_value())

    raw.fill('{"eval_id": }')
    page.get_by_role("button", name="Save case").click()
    expect(page.get_by_role("heading", name="The case was not saved")).to_be_visible()
    raw.fill(json.dumps(case | {"owner": "Ada"}))
    page.get_by_role("button", name="Save case").click()
    expect(page.get_by_role("status")).to_contain_text("Saved.")
    page.get_by_role("link", name="Turns").click()
    page.get_by_label("Tags").fill("arguments, primes")
    with page.expect_navigation():
        page.get_by_role("button", name="Save case").click()

    page.get_by_role("link", name="Raw JSON").click()
    saved = json.loads(raw.input_value())
    assert (saved["owner"], saved["tags"]) == ("Ada", ["arguments", "primes"])


@pytest.mark.parametrize(("form", "format_name"), [("^ADK eval set$", "adk"), ("before 2025, list", "adk-old")])
def test_a_set_is_taken_out_and_in_again(someone: Visitor, tmp_path: Path, form: str, format_name: str) -> None:
    page = someone.page
    someone.goto(f"/evalsets/{someone.evalset('trip_planner')}")
    page.get_by_role("link", name="Export").click()

    with page.expect_download() as download:
        page.get_by_role("region", name=re.compile(form)).get_by_role("link", name="Download").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    someone.goto("/imports")
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_role("button", name="Preview").click()
    page.get_by_label("Name of the eval set").fill(f"back_from_{format_name}")
    page.get_by_role("button", name="Import 4 cases").click()

    expect(page.get_by_role("heading", level=1, name=f"back_from_{format_name}")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(4)
    assert format_of(path.read_bytes(), path.name) == format_name
    assert len(read_evalset(path.read_bytes(), source=path.name).cases) == 4


def test_sets_are_created_renamed_copied_deleted_and_brought_back(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/evalsets")
    page.get_by_role("link", name="New eval set").click()
    page.get_by_label("Name", exact=True).fill("fresh")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="No cases yet")).to_be_visible()
    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Name", exact=True).fill("ripe")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1, name="ripe")).to_be_visible()

    page.get_by_role("button", name="Duplicate").click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("ripe")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_contain_text("was moved to the trash")
    page.get_by_role("button", name="Undo").click()

    expect(page.get_by_role("heading", level=1, name=re.compile("ripe.+"))).to_be_visible()


def test_selected_cases_are_searched_and_run(someone: Visitor) -> None:
    page: Any = someone.page
    someone.goto(f"/evalsets/{someone.evalset('hello_world')}")
    page.keyboard.press("/")
    page.keyboard.type("poem")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Select refuse_a_poem").check()
    expect(page.get_by_role("group", name="Selected cases")).to_contain_text("1 selected")

    page.keyboard.press("r")

    expect(page.get_by_label("Selected cases only")).to_be_checked()
    expect(page.get_by_role("button", name="Start 5 trials")).to_be_visible()
