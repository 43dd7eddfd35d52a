"""What was stored and what was not is said in the corner of the page, in one way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import FloatRect, Locator, Route, expect

from evaldesk.web.guard import MAX_BODY

if TYPE_CHECKING:
    from tests.e2e.conftest import Visit, Visitor

pytestmark = pytest.mark.browser


def settings_of(someone: Visitor) -> str:
    return f"/evalsets/{someone.evalset('hello_world')}/settings"


def test_what_was_stored_is_said_until_it_is_dismissed(someone: Visitor) -> None:
    page = someone.page
    someone.goto(settings_of(someone))
    page.get_by_label("Description").fill("Dice, and primes.")
    page.get_by_role("button", name="Save").click()

    said = page.locator("#toasts[role=status]")
    expect(said).to_contain_text("Saved.")
    said.get_by_role("button", name="Dismiss").click()
    expect(said).to_be_empty()

    page.reload()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(said).to_be_empty()


def test_what_was_refused_is_said_not_to_be_stored(someone: Visitor) -> None:
    page = someone.page
    someone.goto(settings_of(someone))
    page.get_by_label("Name", exact=True).fill("a/b")
    page.get_by_role("button", name="Save").click()

    expect(page.locator("#toasts")).to_contain_text("Not stored.")
    expect(page.locator("#toasts")).not_to_contain_text("Saved")


def test_a_case_that_somebody_else_changed_is_shown_beside_the_typed_text(someone: Visitor) -> None:
    page, evalset = someone.page, f"/evalsets/{someone.evalset('hello_world')}"
    someone.goto(evalset)
    case = page.locator(f"a[href^='{evalset}/cases/']:not([href$='/new'])").first.get_attribute("href") or ""
    someone.goto(case)
    other = page.context.new_page()
    other.goto(someone.desk.address + case)
    for each, text in ((other, "Anna asks this"), (page, "Ben asks that")):
        each.get_by_label("User message").first.fill(text)
        each.get_by_role("button", name="Save case").click()
        expect(each.locator("#toasts")).to_contain_text("Not stored. The page says why." if each is page else "Saved")

    expect(page.get_by_role("alert")).to_contain_text("Anna asks this")
    expect(page.get_by_label("User message").first).to_have_value("Ben asks that")
    other.close()


def test_a_form_is_kept_as_it_is_while_the_desk_does_not_answer(visit: Visit) -> None:
    someone = visit()
    page = someone.page
    someone.goto(settings_of(someone))
    page.get_by_label("Description").fill("Half an hour of work")
    someone.desk.kill()
    try:
        for _ in range(2):
            page.get_by_role("button", name="Save").click()
            expect(page.locator("#toasts .note")).to_have_text([re.compile("Not stored: the desk does not answer.")])
        expect(page.get_by_label("Description")).to_have_value("Half an hour of work")
    finally:
        someone.desk.start()
    page.get_by_role("button", name="Save").click()

    expect(page.locator("#toasts")).to_contain_text("Saved.")
    refused = [each for each in someone.complaints if "ERR_CONNECTION_REFUSED" in each]
    assert refused
    for each in refused:  # the browser's own words, which may come late
        someone.complaints.remove(each)


def box_of(part: Locator) -> FloatRect:
    box = part.bounding_box()
    assert box
    return box


def test_a_note_stands_above_a_composer_with_many_lines(anyone: Visitor) -> None:
    page = anyone.page
    anyone.goto("/sessions/new?agent=hello_world")
    page.get_by_label("First message").fill("Roll a 12-sided die.")
    page.get_by_role("button", name="Start session").click()
    message = page.locator(".composer textarea").first
    expect(message).to_be_visible()
    page.evaluate("toast('Not stored.', 'failed')")
    note = page.locator("#toasts .note[data-kind=failed]")

    message.fill("\n".join(map(str, range(12))))

    assert box_of(page.locator(".composer"))["height"] > 200
    expect(note).to_be_visible()
    assert box_of(note)["y"] + box_of(note)["height"] <= box_of(page.locator(".composer"))["y"] + 1


def test_the_last_row_of_a_table_is_seen_above_a_note(anyone: Visitor) -> None:
    page = anyone.page
    anyone.goto(f"/evalsets/{anyone.evalset('hello_world')}")
    page.evaluate("toast('Not stored.', 'failed')")
    note = page.locator("#toasts .note[data-kind=failed]")
    expect(note).to_be_visible()

    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")

    last = box_of(page.locator("main tbody tr").last)
    assert last["y"] + last["height"] <= box_of(note)["y"] + 1


def test_a_form_is_kept_as_it_is_while_the_browser_has_no_token(someone: Visitor) -> None:
    page = someone.page
    someone.goto(settings_of(someone))
    page.get_by_label("Description").fill("Half an hour of work")
    page.context.clear_cookies()
    page.get_by_role("button", name="Save").click()

    expect(page.locator("#toasts")).to_contain_text("Not stored: the desk needs its token again.")
    expect(page.get_by_label("Description")).to_have_value("Half an hour of work")
    page.context.request.get(f"{someone.desk.address}/?token={someone.desk.token}")
    page.get_by_role("button", name="Save").click()

    expect(page.locator("#toasts")).to_contain_text("Saved.")


@pytest.mark.parametrize("ending", ["killed", "locked"])
def test_cases_that_are_sought_in_vain_stay_and_it_is_said_why(visit: Visit, ending: str) -> None:
    someone = visit()
    page = someone.page
    someone.goto(settings_of(someone).rpartition("/")[0])
    rows = page.locator("#rows").inner_html()
    if ending == "killed":
        someone.desk.kill()
    else:
        page.context.clear_cookies()
    try:
        page.locator("#q").press_sequentially("z")

        said = {"killed": "the desk does not answer", "locked": "the desk needs its token again"}[ending]
        expect(page.locator("#toasts .note")).to_have_text([re.compile(f"Not loaded: {said}")])
        assert page.locator("#rows").inner_html() == rows
    finally:
        if ending == "killed":
            someone.desk.start()
    someone.complaints[:] = [
        each for each in someone.complaints if not re.search("ERR_CONNECTION_REFUSED|htmx:error", each)
    ]


def test_a_second_click_sends_no_form_again_until_the_first_is_answered_or_stopped(visit: Visit) -> None:
    someone = visit()
    page, posted, asked = someone.page, list[Route](), list[str]()
    page.clock.install()
    someone.goto(settings_of(someone))
    page.on("request", lambda request: asked.append(request.method))
    page.route(
        "**/settings", lambda route: posted.append(route) if route.request.method == "POST" else route.continue_()
    )
    button = page.get_by_role("button", name="Save")
    button.scroll_into_view_if_needed()
    box = button.bounding_box() or {"x": 0, "y": 0}

    for n in (1, 2):  # a locator would wait for the page that comes
        with page.expect_request(lambda request: request.method == "POST"):
            page.mouse.click(box["x"] + 5, box["y"] + 5)
        page.mouse.click(box["x"] + 5, box["y"] + 5)
        while len(posted) < n:
            page.wait_for_timeout(20)
        if n == 1:
            posted[0].abort("aborted")  # as the stop button does
            page.clock.fast_forward(10_000)
    posted[-1].continue_()

    expect(page.locator("#toasts")).to_contain_text("Saved")
    assert asked.count("POST") == asked.count("HEAD") == 2  # the small request before each


def test_a_form_that_is_too_large_is_kept_as_it_is(someone: Visitor) -> None:
    page = someone.page
    someone.goto(settings_of(someone))
    kept, field = page.url, page.get_by_label("Description")
    # Not by typing, and not shown: the browser would lay out every letter.
    field.evaluate(f"field => {{ field.style.display = 'none'; field.value = 'x'.repeat({MAX_BODY}); }}")

    page.get_by_role("button", name="Save").click()

    expect(page.locator("#toasts")).to_contain_text("Not stored: a form holds at most 10 MiB.")
    assert page.url == kept
    assert page.locator("[name=description]").evaluate("field => field.value.length") == MAX_BODY
    page.locator("[name=description]").evaluate("field => { field.value = 'A few words.'; }")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts")).to_contain_text("Saved.")


def test_without_scripts_it_stands_on_the_page(visit: Visit) -> None:
    someone = visit(has_scripts=False)
    page = someone.page
    set_id = someone.evalset("hello_world")
    someone.goto(f"/evalsets/{set_id}")
    page.locator("tbody th a").first.click()
    page.get_by_role("button", name="Save", exact=False).first.click()

    expect(page.get_by_role("status").filter(has_text="Saved.")).to_be_visible()
