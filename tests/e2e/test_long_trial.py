"""A trial and a chat of hundreds of turns in a browser: pieces come as one scrolls, however fast, each turn once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect
from tests.long_trials import store_trial

from evaldesk.model import Case, Event, Expected, ToolCall, Transcript, Turn, TurnRecord
from evaldesk.settings import Settings
from evaldesk.store import Store

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visit, Visitor

pytestmark = pytest.mark.browser

AGENT = "def answer(message, state):\n    yield message\n\n\nroot_agent = answer\n"
N, BROKEN = 420, 300
TRIAL = "/runs/1/cases/0/trials/0"
NUMBERS = "() => [...document.querySelectorAll('[id^=turn-]')].map((each) => each.id)"
# Asked for each frame: it goes to each gap, to the end or back to the start, and waits for no answer.
SCROLL_FAST = """(selector) => {
  const box = document.querySelector(selector);
  for (const gap of document.querySelectorAll("[data-gap]")) gap.scrollIntoView();
  window.isDown = !window.isDown;
  if (Math.random() < 0.5) box.scrollTo(0, window.isDown ? box.scrollHeight : 0);
  return !document.querySelector("[data-gap]");
}"""
# All turns before that one are there, and have been drawn.
FILLED = """(turn) => !document.querySelector('.htmx-request') && document.getElementById(`turn-${turn - 1}`)
  && new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"""
STILL = "(n) => document.querySelectorAll('#turns > li').length === n && !document.querySelector('.htmx-request')"


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """A trial and a chat of many turns."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "parrot").mkdir(parents=True)
    (workspace / "agents" / "parrot" / "agent.py").write_text(AGENT, "utf-8")
    settings = Settings(workspace=workspace, roots=(workspace / "agents",))
    settings.state_folder.mkdir()
    with Store.open(settings.database) as store:
        assert store_trial(store.runs, *_trial()) == TRIAL
        session = store.sessions.create("parrot", "A long chat", {})
        for number in range(1, N + 1):
            message = Event("agent_message", text=f"The flight {number} leaves at noon.")
            store.sessions.append_turn(session.id, TurnRecord(f"When does {number} leave?", (message,)))
    return (str(workspace / "agents"),)


def _trial() -> tuple[Case, Transcript]:
    calls = [ToolCall("search", {"flight": number}, str(number)) for number in range(1, N + 1)]
    turns = tuple(Turn(f"Find flight {call.id}.", Expected((call,), reference=f"Flight {call.id}")) for call in calls)
    calls[BROKEN - 1] = ToolCall("cancel", {"flight": BROKEN}, "x")
    said = [(Event("tool_call", call=call), Event("agent_message", text=f"Flight {call.id}")) for call in calls]
    records = (TurnRecord(turn.query, events) for turn, events in zip(turns, said, strict=True))
    return Case("long", turns), Transcript(tuple(records))


def _numbers(page: Page) -> list[int]:
    names = (name.removeprefix("turn-") for name in page.evaluate(NUMBERS))
    return [int(name) for name in names if name.isdecimal()]


def test_every_turn_comes_once_however_fast_one_scrolls(anyone: Visitor) -> None:
    page = anyone.page
    anyone.goto(TRIAL)
    assert _numbers(page) == [*range(1, 51), BROKEN]

    page.wait_for_function(SCROLL_FAST, arg="html", timeout=60_000)

    assert _numbers(page) == [*range(1, N + 1)]


def test_an_address_in_a_gap_leads_to_its_turn_and_keys_go_on_from_there(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"{TRIAL}#turn-200")

    expect(page.locator("#turn-200")).to_be_in_viewport()
    assert page.url.endswith("?turn=200#turn-200")
    page.get_by_role("link", name=f"Go to turn {BROKEN}").click()
    page.wait_for_function(FILLED, arg=BROKEN)
    expect(page.locator(f"#turn-{BROKEN}")).to_be_in_viewport()


def test_a_key_leads_to_a_turn_that_stays_while_those_above_it_come(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"{TRIAL}?turn=200")
    page.evaluate(f"[...document.querySelectorAll('article:has(~ #turn-{BROKEN})')].at(-1).dataset.current = ''")

    page.keyboard.press("j")

    page.wait_for_function(FILLED, arg=BROKEN)
    expect(page.locator(f"#turn-{BROKEN}")).to_be_in_viewport()


def test_one_who_scrolls_up_to_a_gap_goes_on_reading_while_it_is_filled(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"{TRIAL}?turn=410")
    first = page.locator("[data-gap] + article").last
    number = int((first.get_attribute("id") or "").removeprefix("turn-"))
    first.evaluate("(turn) => turn.scrollIntoView()")

    page.mouse.move(600, 600)
    page.mouse.wheel(0, -8)

    page.wait_for_function(FILLED, arg=number)
    expect(page.locator(f"#turn-{number}")).to_be_in_viewport()


def test_a_turn_that_came_later_can_be_labelled(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"{TRIAL}?turn=400")
    page.wait_for_function(SCROLL_FAST, arg="html", timeout=60_000)

    assert page.locator("#labels select[name=turn] option").count() == N + 1
    assert page.locator("select[data-place] option[value='149']").count() == 1


def test_a_chat_begins_at_its_end_and_the_rest_comes_once(anyone: Visitor) -> None:
    page = anyone.page
    anyone.goto("/sessions")
    expect(page.locator(f"#turn-{N}")).to_be_in_viewport()
    assert _numbers(page) == [*range(N - 49, N + 1)]

    page.wait_for_function(SCROLL_FAST, arg="[data-follow]", timeout=60_000)

    assert _numbers(page) == [*range(1, N + 1)]


def test_earlier_turns_of_a_chat_come_a_piece_at_a_time_above_the_one_that_is_read(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/sessions")
    expect(page.locator(f"#turn-{N}")).to_be_in_viewport()

    page.evaluate("document.querySelector('[data-follow]').scrollTo(0, 0)")

    expect(page.locator(f"#turn-{N - 99}")).to_be_attached()
    page.wait_for_function(STILL, arg=101)
    expect(page.locator(f"#turn-{N - 49}")).to_be_in_viewport()


def test_the_turn_of_the_divergence_does_not_bring_all_before_it(someone: Visitor) -> None:
    page = someone.page
    someone.goto(TRIAL)

    page.locator(f"#turn-{BROKEN}").scroll_into_view_if_needed()

    expect(page.locator(f"#turn-{BROKEN - 25}")).to_be_attached()
    expect(page.locator("[data-gap]").first).to_have_attribute("data-gap", "76 274")


def test_without_a_script_links_lead_through_all_pieces(visit: Visit) -> None:
    reader = visit(has_scripts=False)
    reader.goto(TRIAL)
    page = reader.page

    page.get_by_role("main").get_by_role("link", name="Turns 51 to 299").click()

    expect(page.locator("#turn-51-title")).to_be_visible()
    assert 100 in _numbers(page)
