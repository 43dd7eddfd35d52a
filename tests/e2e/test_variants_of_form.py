"""Variants in the form of a run in a browser: by keys and fields, and without a script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, Route, expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Visit, Visitor

pytestmark = pytest.mark.browser


def form_address(someone: Visitor) -> str:
    return f"/runs/new?agent=hello_world&evalset={someone.evalset('hello_world')}"


def values(page: Page) -> list[str]:
    """The typed temperatures, the empty field last."""
    fields = page.locator('input[name="vary.temperature"]')
    return [fields.nth(at).input_value() for at in range(fields.count())]


def test_values_are_typed_one_after_the_other_and_start_as_an_experiment(anyone: Visitor) -> None:
    page = anyone.page
    anyone.goto(form_address(anyone))
    page.keyboard.press("v")
    page.locator("#vary-more").select_option("temperature")
    for at, text in enumerate(("0", "0.7")):
        page.locator(f'[id="vary.temperature-{at}"]').fill(text)
        page.keyboard.press("Tab")
        expect(page.locator(f'[id="vary.temperature-{at + 1}"]')).to_have_value("")

    assert values(page) == ["0", "0.7", ""]
    expect(page.locator("#variants")).to_contain_text("2 variants")
    expect(page.locator("#estimate")).to_contain_text("2 variants x 6 cases x 5 = 60 trials")
    page.get_by_role("button", name=re.compile("Start 60 trials")).click()

    expect(page).to_have_url(re.compile(r"/experiments/\d+$"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("order", [1, -1], ids=["in-order", "last-first"])
def test_an_answer_undoes_no_newer_edit_of_any_part_of_the_form(anyone: Visitor, order: int) -> None:
    page = anyone.page
    anyone.goto(form_address(anyone))
    held: list[Route] = []
    is_held = True

    def hold(route: Route) -> None:
        if is_held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/runs/new", hold)

    with page.expect_request("**/runs/new"):
        page.locator("#n").fill("2")
        page.locator("#n").press("Tab")
    page.locator("#n").fill("3")
    page.get_by_label("Selected cases only").check()
    page.get_by_label("All 6").check()
    page.locator("#n").fill("7")
    page.locator("#n").press("Tab")
    page.locator("#note").evaluate(
        "note => { note.value = 'typed meanwhile'; note.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    is_held = False
    for route in held[::order]:
        route.continue_()

    expect(page.get_by_role("button", name=re.compile("Start 42 trials"))).to_be_visible()
    expect(page.locator("#n")).to_have_value("7")
    expect(page.get_by_label("All 6")).to_be_checked()
    expect(page.locator("#note")).to_have_value("typed meanwhile")


def test_variants_are_added_and_started_without_a_script(visit: Visit) -> None:
    someone = visit(has_scripts=False)
    page = someone.page
    someone.goto(form_address(someone))
    page.get_by_role("button", name=re.compile("Add variant")).click()
    page.locator("#vary-more").select_option("temperature")
    page.get_by_role("button", name="Show", exact=True).click()
    for at, text in enumerate(("0", "0.7")):
        page.locator(f'[id="vary.temperature-{at}"]').fill(text)
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.locator(f'[id="vary.temperature-{at + 1}"]')).to_have_value("")

    assert values(page) == ["0", "0.7", ""]
    page.get_by_role("button", name=re.compile("Start 60 trials")).click()

    expect(page).to_have_url(re.compile(r"/experiments/\d+$"))
