"""A run that takes its time: stopped and resumed, left alone, and killed with its server in the middle."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, Route, expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, RunningDesk, Visit, Visitor

pytestmark = pytest.mark.browser

N = 150
SLOW = '''"""Takes a little time for the first twenty, and for the others until the file `held` is gone."""
import itertools
import pathlib
import time

HELD = pathlib.Path(__file__).parents[1] / "held"
number = itertools.count()


def root_agent(message):
    is_late = next(number) >= 20
    time.sleep(0.02)
    while is_late and HELD.exists():
        time.sleep(0.02)
    return "It is " + message
'''

STEPWISE = '''"""Says one word more whenever the test has seen the one before."""
import asyncio
import pathlib

from evaldesk.model import Event

SEEN = pathlib.Path(__file__).parents[1] / "seen"
WORDS = ("One ", "two ", "three ")


async def root_agent(message, state):
    for number, word in enumerate(WORDS):
        while len(list(SEEN.iterdir())) < number:
            await asyncio.sleep(0.01)
        yield Event("agent_message", text=word, is_partial=True)
    while len(list(SEEN.iterdir())) < len(WORDS):
        await asyncio.sleep(0.01)
    state["said"] = len(WORDS)
    yield Event("agent_message", text="".join(WORDS))
'''


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """A slow agent with one case, and one that speaks word by word."""

    def furnish(workspace: Path) -> tuple[str, ...]:
        (workspace / "slow").mkdir()
        (workspace / "slow" / "agent.py").write_text(SLOW, "utf-8")
        (workspace / "stepwise").mkdir()
        (workspace / "stepwise" / "agent.py").write_text(STEPWISE, "utf-8")
        (workspace / "seen").mkdir()
        turn = {"query": "late", "expected_tool_use": [], "reference": "It is late"}
        case = {"name": "hour", "data": [turn], "initial_session": {"state": {}}}
        (workspace / "hours.evalset.json").write_text(json.dumps([case]), "utf-8")
        return (".",)

    return furnish


@pytest.fixture
def held(desk: RunningDesk) -> Path:
    """While this file is there, no run can end, however slow the browser is."""
    path = desk.workspace / "held"
    path.touch()
    return path


def test_every_part_of_an_answer_is_shown_before_the_next_is_said(someone: Visitor, desk: RunningDesk) -> None:
    page = someone.page
    someone.goto("/sessions/new?agent=stepwise")
    page.get_by_role("button", name="Start session").click()
    page.get_by_label("Message", exact=True).fill("Count.")
    page.get_by_role("button", name="Send").click()

    for number, text in enumerate(("One", "One two", "One two three"), start=1):
        expect(page.locator("#live .message[aria-busy=true] > p")).to_have_text(text)
        (desk.workspace / "seen" / str(number)).touch()

    expect(page.locator("#turns > li article").last).to_contain_text("One two three")
    expect(page.locator("#live .message[aria-busy=true]")).to_have_count(0)


def test_what_is_typed_behind_a_message_is_the_next_message(someone: Visitor) -> None:
    page = someone.page
    someone.goto(someone.chat("slow", "{}"))
    waiting: list[Route] = []
    page.route("**/turns", lambda route: waiting.append(route))  # noqa: PLW0108 - Playwright sets a mark on it
    field = page.get_by_label("Message", exact=True)

    field.fill("One")
    field.press("Enter")
    page.keyboard.type(" and two")
    while not waiting:
        page.wait_for_timeout(20)
    waiting[0].continue_()

    expect(page.locator(".message[data-author=user] > p")).to_have_text("One")
    expect(field).to_have_value(" and two")


@pytest.mark.parametrize("is_sent", [False, True], ids=["typed", "refused"])
def test_a_state_that_is_not_applied_outlives_the_end_of_a_turn(
    someone: Visitor, desk: RunningDesk, *, is_sent: bool
) -> None:
    page = someone.page
    for each in (desk.workspace / "seen").iterdir():
        each.unlink()
    someone.goto(someone.chat("stepwise", "{}"))
    page.get_by_label("Message", exact=True).fill("Count.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.get_by_label("State now").fill('{"is_vip": true}')
    if is_sent:
        page.get_by_role("button", name="Apply before").click()
        expect(page.locator("#toasts")).to_contain_text("Not stored. The page says why.")
    page.get_by_label("Message", exact=True).fill("And now?")

    for number in range(1, 4):
        (desk.workspace / "seen" / str(number)).touch()
    page.get_by_role("button", name="Apply before turn 2").click()

    expect(page.locator("#toasts")).to_contain_text("State stored.")
    expect(page.get_by_label("State now")).to_have_value(re.compile('"is_vip": true'))


def test_the_theme_is_switched_and_kept(someone: Visitor) -> None:
    page = someone.page
    someone.wear("desktop", "light")
    someone.goto("/")
    switch = page.locator(".tools [data-theme-switch]")
    colour = "getComputedStyle(document.body).color"
    light = page.evaluate(colour)

    expect(switch).to_have_text("Theme: system")
    switch.click()
    expect(switch).to_have_text("Theme: light")
    assert page.evaluate(colour) == light
    switch.click()
    expect(switch).to_have_text("Theme: dark")
    dark = page.evaluate(colour)
    someone.goto("/runs")
    assert page.evaluate(colour) == dark != light
    expect(switch).to_have_text("Theme: dark")
    someone.wear("phone", "light")
    someone.goto("/")
    expect(switch).to_be_hidden()
    page.locator("main [data-theme-switch]").click()
    assert page.evaluate(colour) == light
    assert page.evaluate("localStorage.theme") == "system"


def test_a_run_is_stopped_and_resumed(someone: Visitor, held: Path) -> None:
    page = someone.page
    someone.goto(_start(someone))
    _wait_until_under_way(page)

    page.get_by_role("button", name="Stop…").click()
    expect(page.get_by_role("heading", name=re.compile(r"Stop run \d+\?"))).to_be_visible()
    page.get_by_role("button", name="Cancel them now").click()
    resume = page.get_by_role("button", name=re.compile(r"Resume \d+ trials"))
    expect(resume).to_be_visible()
    n_left = int(re.sub(r"\D", "", resume.inner_text()))
    held.unlink()
    resume.click()

    expect(page.get_by_text(f"All {N} trials done.")).to_be_visible()
    assert 0 < n_left < N
    expect(page.locator("#answer")).to_contain_text(f"{N} of {N} passed")


MESSAGES = """() => {
  window.messages = [];
  document.addEventListener("htmx:sse:before:message", (event) => window.messages.push(event.detail.message.data));
}"""


def test_a_live_page_takes_what_changed_and_shows_what_a_new_page_shows(someone: Visitor, held: Path) -> None:
    page = someone.page
    page.add_init_script(f"({MESSAGES})()")
    someone.goto(_start(someone))
    _wait_until_under_way(page)
    page.wait_for_function("messages.some((text) => text.startsWith('<hx-partial'))")
    beside = page.context.new_page()

    _wait_until_alike(page, beside)
    held.unlink()
    expect(page.get_by_text(f"All {N} trials done.")).to_be_visible()
    _wait_until_alike(page, beside)

    beside.close()


def test_home_is_read_anew_when_the_run_that_it_shows_ends(someone: Visitor, held: Path) -> None:
    page = someone.page
    someone.goto(_start(someone))
    _wait_until_under_way(page)
    someone.goto("/")
    expect(page.locator("#live")).to_contain_text(f"of {N}")
    page.evaluate("document.body.dataset.loaded = 'once'")

    held.unlink()

    expect(page.get_by_role("heading", name="Running")).to_have_count(0, timeout=60_000)
    expect(page.locator("#live")).to_have_count(0)
    assert page.evaluate("document.body.dataset.loaded") == "once"


def test_a_note_that_is_being_typed_outlives_the_end_of_its_run(someone: Visitor, held: Path) -> None:
    page = someone.page
    someone.goto(_start(someone))
    _wait_until_under_way(page)
    page.get_by_role("button", name="Settings").click()
    page.get_by_text("Add a note").click()
    page.get_by_label("Note").click()
    page.keyboard.type("The new prompt ")
    expect(page.get_by_role("button", name="Delete this run…")).to_be_hidden()

    held.unlink()
    expect(page.get_by_text(f"All {N} trials done.")).to_be_visible()
    expect(page.get_by_role("button", name="Delete this run…")).to_be_visible()
    expect(page.locator("#rest")).not_to_contain_text("brought up to date when the run ends")
    page.keyboard.type("reads well")

    expect(page.get_by_label("Note")).to_have_value("The new prompt reads well")

    page.on("dialog", lambda question: question.dismiss())
    page.get_by_role("link", name="Runs", exact=True).first.click()
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Save note").click()

    expect(page.locator("#toasts")).to_contain_text("Note stored.")


def _wait_until_alike(live: Page, beside: Page) -> None:
    """A trial may end between a look at one page and a look at the other."""
    places = [live.locator(place) for place in ("#cases", "#summary", "#metrics")]
    outline = r"""element => element.outerHTML.replace(/ hx-nonce="[^"]*"/g, "").replace(/\s+/g, " ")"""
    for last in (False,) * 50 + (True,):
        beside.goto(live.url)
        wanted = [beside.locator(place).evaluate(outline) for place in ("#cases", "#summary", "#metrics")]
        found = [place.evaluate(outline) for place in places]
        if found == wanted or last:
            break
        live.wait_for_timeout(200)
    assert found == wanted


NOTIFIED = """() => {
  window.notified = [];
  window.Notification = class { constructor(text) { window.notified.push(text); } };
  window.Notification.permission = "default";
  window.Notification.requestPermission = async () => (window.Notification.permission = "granted");
}"""


def test_the_tab_says_how_far_a_run_is_and_how_it_ended(someone: Visitor, held: Path) -> None:
    page = someone.page
    page.add_init_script(f"({NOTIFIED})()")
    someone.goto(_start(someone))
    _wait_until_under_way(page)
    run = page.get_by_role("heading", level=1).inner_text().split(" ", 2)[1].strip(",")
    expect(page).to_have_title(re.compile(rf"^\d+ % of Run {run}, hours"))
    running = page.locator("link[rel=icon]").get_attribute("href")
    button = page.get_by_role("button", name="Notify me when it ends")
    expect(button).to_be_visible()
    button.evaluate("element => element.hidden = true")  # as a morph does whose percent is as before
    button.click()
    expect(page.get_by_role("button", name="Notify me when it ends")).to_be_hidden()
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")

    held.unlink()

    said = f"Run {run}, hours: {N} of {N} passed"
    expect(page).to_have_title(f"{said} · Evaldesk")
    page.wait_for_function("notified.length > 0")
    assert page.evaluate("notified") == [said]
    assert page.locator("link[rel=icon]").get_attribute("href") != running


def test_a_run_goes_on_without_a_browser_and_after_its_server_was_killed(
    visit: Visit, desk: RunningDesk, held: Path
) -> None:
    someone = visit()
    address = _start(someone)
    someone.goto(address)
    _wait_until_under_way(someone.page)
    n_seen = _n_done(someone.page)
    someone.leave()

    someone = visit()
    someone.goto(address)
    expect(someone.page.get_by_role("button", name="Stop…")).to_be_visible()
    assert _n_done(someone.page) >= n_seen
    someone.leave()
    desk.kill()
    held.unlink()
    desk.start()
    someone = visit()
    someone.goto(address)

    expect(someone.page.get_by_text(f"All {N} trials done.")).to_be_visible()
    expect(someone.page.locator("#answer")).to_contain_text(f"{N} of {N} passed")


def _start(someone: Visitor) -> str:
    return someone.run("slow", someone.evalset("hours"), {"response_match_score": "0.8"}, n=str(N))


def _wait_until_under_way(page: Page) -> None:
    expect(page.locator("#head .lede b")).to_have_text(re.compile(r"^[1-9]\d* of"))


def _n_done(page: Page) -> int:
    found = re.match(r"\d+", page.locator("#head .lede b").inner_text())
    assert found
    return int(found[0])
