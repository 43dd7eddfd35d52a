"""What one screen of 1440 x 900 answers without scrolling: a run, and home."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Visit, Visitor

pytestmark = pytest.mark.browser

BOTTOMS = """selectors => Object.fromEntries(selectors.map(selector => {
  const box = document.querySelector(selector)?.getBoundingClientRect();
  return [selector, box && box.height ? Math.round(box.bottom) : null];
}))"""
ANSWERS = {
    "what passed": "#answer",
    "how sure": "#answer span",
    "what it cost": ".figures dd",
    "what broke first": "#broke li, #broke tbody tr",
}


@pytest.fixture(scope="module")
def run(resident: Visitor) -> str:
    """A run of 20 trials of each case, some of which failed."""
    calls = {"tool_trajectory_avg_score": "1", "response_match_score": "0.8"}
    address = resident.run(
        "hello_world", resident.evalset("hello_world"), calls, n="20", model="demo/dice?mistakes=0.25"
    )
    resident.goto(address)
    expect(resident.page.get_by_role("button", name="Stop…")).to_have_count(0)
    return address


def test_a_run_says_on_one_screen_what_passed_how_sure_what_broke_and_what_it_cost(someone: Visitor, run: str) -> None:
    someone.goto(run)
    page = someone.page
    expect(page.locator("#broke[data-fetched]")).to_be_visible()
    expect(page.locator(ANSWERS["what broke first"]).first).to_be_visible()
    someone.shoot("first-screen-run")

    bottoms = page.evaluate(BOTTOMS, [*ANSWERS.values()])

    assert page.evaluate("[innerWidth, innerHeight, scrollY]") == [1440, 900, 0]
    assert {
        name: bottoms[selector] for name, selector in ANSWERS.items() if not 0 < (bottoms[selector] or 0) <= 900
    } == {}
    assert "cost" in page.locator(".figures").first.inner_text().casefold()
    assert "%" in page.locator("#answer span").inner_text()


def test_twenty_trials_of_a_case_fit_in_one_row(someone: Visitor, run: str) -> None:
    someone.goto(run)

    tops = someone.page.evaluate(
        "[...document.querySelectorAll('#cases .strip')].map(strip => "
        "[...strip.querySelectorAll('.square')].map(square => Math.round(square.getBoundingClientRect().top)))"
    )

    assert [len(row) for row in tops] == [20] * len(tops)
    assert [len(set(row)) for row in tops] == [1] * len(tops)


@pytest.mark.parametrize("status", ["passed", "failed"])
def test_a_phone_shows_the_first_turn_of_a_trial_among_twenty_on_its_first_screen(
    visit: Visit, run: str, status: str
) -> None:
    someone = visit("phone")
    someone.goto(run)
    trials = someone.page.locator(f"#cases .square[data-status={status}]")
    someone.goto(str(trials.last.evaluate("square => square.pathname")))

    turn = someone.page.locator("article.turn").first.bounding_box()
    here = someone.page.locator("[data-numbered] [aria-current]").bounding_box()

    assert turn
    assert turn["y"] < 700
    assert here
    assert 0 <= here["x"] <= 390 - here["width"]


SHIFTS = """() => { window.shifts = []; new PerformanceObserver(list => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts.push(entry.value);
}).observe({ type: "layout-shift", buffered: true }); }"""
"""Collects the layout shifts of a page, as the browser scores them; 0.1 in sum is a good page to Web Vitals."""


def test_nothing_moves_on_a_phone_once_it_is_shown(visit: Visit, run: str) -> None:
    someone = visit("phone")
    page = someone.page
    chat = someone.chat("hello_world", "{}", "Roll a d6")
    queue = page.context.request.post(
        f"{someone.desk.address}/queues",
        form={"run": run.rpartition("/")[2], "of": "failed", "n": "5", "reader": "Ana"},
    ).url.removeprefix(someone.desk.address)
    evalset = f"/evalsets/{someone.evalset('hello_world')}"
    page.add_init_script(f"({SHIFTS})()")

    moved = {}
    for address in ("/", run, f"{run}/cases/0/trials/0", queue, evalset, chat, "/proposals", "/runs", "/failures"):
        someone.goto(address)
        page.wait_for_load_state("networkidle" if address not in (run, chat) else "load")
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        moved[address] = page.evaluate("window.shifts.reduce((sum, each) => sum + each, 0)")

    assert {address: shift for address, shift in moved.items() if shift > 0.05} == {}


def test_the_table_of_twenty_trials_does_not_scroll_on_a_small_laptop(someone: Visitor, run: str) -> None:
    someone.page.set_viewport_size({"width": 1220, "height": 800})
    someone.goto(run)

    boxes = "[...document.querySelectorAll('.scroll')].map(box => box.scrollWidth - box.clientWidth)"

    assert set(someone.page.evaluate(boxes)) == {0}


@pytest.mark.parametrize(("width", "least"), [(390, 340), (1024, 450), (1280, 600), (1440, 400)])
def test_the_field_of_a_chat_is_wide_beside_the_long_name_of_a_model(someone: Visitor, width: int, least: int) -> None:
    address = someone.chat("hello_world", "{}", "Roll a d6")
    someone.page.set_viewport_size({"width": width, "height": 800})
    someone.goto(address)
    field, send = someone.page.get_by_label("Message", exact=True), someone.page.get_by_role("button", name="Send")

    found, button = field.bounding_box(), send.bounding_box()

    assert found
    assert button
    assert found["width"] >= least
    assert button["x"] + button["width"] >= found["x"] + found["width"] - 1


def test_the_bar_of_a_small_phone_has_a_shade_where_more_of_it_is_to_the_right(someone: Visitor) -> None:
    someone.page.set_viewport_size({"width": 320, "height": 568})
    someone.goto("/gates")
    nav = someone.page.get_by_role("navigation", name="Main")
    shade = "nav => [nav.scrollWidth > nav.clientWidth, getComputedStyle(nav).backgroundAttachment]"

    assert nav.evaluate(shade) == [True, "local, scroll"]


def test_home_says_on_one_screen_how_the_newest_runs_went(someone: Visitor, run: str) -> None:
    someone.goto("/")
    page = someone.page
    someone.shoot("first-screen-home")
    number = run.rpartition("/")[2]
    link = page.locator(f"main a[href='/runs/{number}']").first
    expect(link).to_be_visible()

    box = link.bounding_box()

    assert box is not None
    assert box["y"] + box["height"] <= 900
