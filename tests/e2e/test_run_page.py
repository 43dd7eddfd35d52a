"""The page of a run of one case: two screens, its pictures at the right, and its settings in a drawer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Visitor

pytestmark = pytest.mark.browser

SCREENS = 2 * 900


def _finish(someone: Visitor) -> str:
    """The address of a finished run of one case with failed trials."""
    calls = {"tool_trajectory_avg_score": "1", "response_match_score": "0.8"}
    options = {"n": "20", "model": "demo/dice?mistakes=0.25", "seed": "7", "cases": "selected", "case": "roll_16"}
    run = someone.run("hello_world", someone.evalset("hello_world"), calls, **options)
    someone.goto(run)
    expect(someone.page.get_by_role("button", name="Stop…")).to_have_count(0)
    return run


def test_a_run_of_one_case_fits_two_screens_with_pass_at_k_at_the_right(someone: Visitor) -> None:
    page = someone.page
    page.set_viewport_size({"width": 1440, "height": 900})
    someone.goto(_finish(someone))
    expect(page.locator("#broke [href]").first).to_be_visible()
    page.locator("#spread").scroll_into_view_if_needed()
    expect(page.locator("#spread svg").first).to_be_visible()

    boxes = {name: page.locator(name).bounding_box() for name in ("#metrics", "#passk")}

    assert page.evaluate("document.documentElement.scrollHeight") <= SCREENS
    assert boxes["#metrics"]
    assert boxes["#passk"]
    assert boxes["#metrics"]["x"] < 720 < boxes["#passk"]["x"]
    assert boxes["#passk"]["y"] == boxes["#metrics"]["y"]
    expect(page.locator("#passk table").first).to_be_hidden()


def test_the_settings_open_and_close_by_key_and_their_note_is_shown_on_the_page(anyone: Visitor) -> None:
    page = anyone.page
    run = _finish(anyone)
    settings = page.get_by_role("button", name="Settings")
    drawer = page.get_by_role("dialog", name="Settings")
    expect(drawer).to_have_count(0)

    settings.focus()
    page.keyboard.press("Enter")
    expect(drawer.get_by_text("Trials per case")).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    expect(settings).to_be_focused()
    page.keyboard.press("Enter")
    drawer.get_by_text("Add a note").click()
    drawer.get_by_label("Note").fill("Shorter <b>prompt</b>")
    drawer.get_by_role("button", name="Save note").click()

    expect(page.locator("#toasts")).to_contain_text("Note stored.")
    expect(page.locator("#head")).to_contain_text("Shorter <b>prompt</b>")
    assert page.url.endswith(run)


def test_a_refused_note_is_shown_without_a_drawer(someone: Visitor) -> None:
    page = someone.page
    run = _finish(someone)
    form: dict[str, str | float | bool] = {"seen": "a note that nobody stored", "note": "mine"}
    refused = page.context.request.post(f"{someone.desk.address}{run}", form=form)

    assert refused.status == 409
    assert "data-drawer" not in refused.text()
    assert "mine</textarea>" in refused.text()
