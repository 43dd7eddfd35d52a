"""Search and go: by keyboard alone, from any page, with a wide and a narrow screen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Route
    from tests.e2e.conftest import Visit, Visitor

pytestmark = pytest.mark.browser


def test_a_place_is_reached_by_typing_a_part_of_its_name(anyone: Visitor) -> None:
    page = anyone.page

    page.keyboard.press("Control+k")
    page.keyboard.type("hello_wor")
    expect(page.get_by_role("option", name=re.compile("hello_world.*cases"))).to_be_visible()
    for _ in range(20):
        if "/evalsets/" in (page.locator("[aria-selected=true]").get_attribute("href") or ""):
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    page.wait_for_url("**/evalsets/**")
    assert anyone.page.evaluate("scrollX") == 0


def test_an_option_is_said_to_a_screen_reader_while_the_focus_stays_in_the_field(someone: Visitor) -> None:
    page = someone.page
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search and go")
    expect(page.locator("#found [role=option]").first).to_be_visible()

    page.keyboard.press("ArrowUp")

    expect(field).to_be_focused()
    last = page.locator("#palette [role=option]").last
    expect(last).to_have_attribute("aria-selected", "true")
    expect(field).to_have_attribute("aria-activedescendant", last.get_attribute("id") or "")


def test_what_the_page_can_do_stands_first_and_is_done_by_enter(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/runs")
    page.keyboard.press("Control+k")
    group = page.get_by_role("group", name="On this page")
    expect(group.get_by_role("option").first).to_have_attribute("aria-selected", "true")

    page.keyboard.type("run")
    expect(group.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")

    page.wait_for_url("**/runs/new")


def test_a_button_without_a_key_is_found_and_pressed_as_well(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/runs")
    group = page.get_by_role("group", name="On this page")

    page.keyboard.press("Control+k")
    page.keyboard.type("theme")
    expect(group.get_by_role("option")).to_have_text(["Theme: system"])
    page.keyboard.press("Enter")
    expect(page.locator(".tools [data-theme-switch]")).to_have_text("Theme: light")
    page.keyboard.press("Control+k")
    page.keyboard.type("import")
    expect(group.get_by_role("option")).to_have_text(["Import"])
    page.keyboard.press("Enter")

    page.wait_for_url("**/imports")


def test_enter_right_after_the_last_letter_waits_for_the_answer(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/agents")

    page.keyboard.press("Control+k")
    page.keyboard.type("tras")
    page.keyboard.press("Enter")

    page.wait_for_url("**/trash")


def test_an_arrow_pressed_before_the_answer_still_counts_after_it(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/agents")
    held: list[Route] = []
    page.route("**/search?q=run", lambda route: held.insert(0, route))
    page.keyboard.press("Control+k")
    expect(page.locator("[data-answers='']")).to_be_attached()
    page.keyboard.type("run")
    while not held:
        page.wait_for_timeout(20)

    page.keyboard.press("ArrowDown")
    held[0].continue_()

    expect(page.locator("[data-answers=run]")).to_be_attached()
    expect(page.locator("#palette [role=option]").nth(1)).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize("way", ["keyboard", "mouse"])
def test_the_last_entry_shows_all_results(anyone: Visitor, way: str) -> None:
    page = anyone.page
    page.keyboard.press("Control+k")
    page.keyboard.type("hello")
    last = page.locator("#palette [role=option]").last
    expect(last).to_have_text("All results for “hello”")

    if way == "keyboard":
        page.keyboard.press("ArrowUp")
        expect(last).to_have_attribute("aria-selected", "true")
        page.keyboard.press("Enter")
    else:
        last.click()

    page.wait_for_url("**/search?q=hello")
    expect(page.get_by_role("heading", name="Search", level=1)).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("hello_world")).first).to_be_visible()


def test_what_fits_nothing_is_said_and_escape_leaves(someone: Visitor) -> None:
    page = someone.page
    page.keyboard.press("Control+k")

    page.keyboard.type("no such thing at all")
    expect(page.get_by_role("status").filter(has_text="Nothing fits.")).to_be_visible()
    page.keyboard.press("Escape")

    expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_places_of_this_tab_are_offered_again(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/labels")
    someone.goto("/agents")

    page.keyboard.press("Control+k")

    group = page.get_by_role("group", name="Where you were")
    expect(group.get_by_role("option").first).to_have_attribute("href", "/labels")


@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_the_button_opens_it_and_without_scripts_leads_to_a_page(visit: Visit, width: str) -> None:
    someone, other = visit(), visit(has_scripts=False)
    someone.wear(width, "light")
    other.wear(width, "light")

    someone.page.get_by_role("link", name="Search").click()
    other.page.get_by_role("link", name="Search").click()

    expect(someone.page.get_by_role("dialog", name="Search and go")).to_be_visible()
    expect(other.page.get_by_role("heading", name="Search", level=1)).to_be_visible()
