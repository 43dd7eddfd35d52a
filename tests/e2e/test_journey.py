"""From a chat to a reviewed run, the way the README tells it, on a wide and a narrow screen, by day and by night."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, Route, expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Visit, Visitor

pytestmark = pytest.mark.browser

MODEL = "demo/dice?mistakes=0"
WATCH = """() => {
  window.seenWhileAnswering = new Set();
  const look = () => document.querySelector("#live .message[aria-busy=true] > p")?.textContent;
  new MutationObserver(() => look() && window.seenWhileAnswering.add(look()))
    .observe(document.getElementById("live"), { childList: true, subtree: true, characterData: true });
}"""


@pytest.fixture(scope="module")
def program() -> tuple[str, ...]:
    """The desk as it is, spare workers included."""
    return ("-m", "evaldesk")


def test_a_chat_becomes_a_case_and_a_run_that_is_read_turn_by_turn(
    anyone: Visitor, request: pytest.FixtureRequest
) -> None:
    page, case_id = anyone.page, re.sub(r"\W+", "_", request.node.callspec.id)

    start_from_home(page)
    talk(page)
    inspect(page)
    anyone.turn_day_and_night()
    add_current_session(anyone, case_id)
    run_five_times(page, case_id)
    read_the_run(page)
    read_a_failed_trial(page)


def test_chat_add_run_and_read_work_without_scripts(visit: Visit) -> None:
    """Every step is a link or a form, and what moves brings itself anew."""
    someone = visit(has_scripts=False)
    page = someone.page

    someone.goto("/sessions/new?agent=hello_world")
    page.get_by_label("First message").fill("Roll a 12-sided die.")
    page.get_by_role("button", name="Start session").click()
    page.get_by_role("link", name="Add current session").click()
    page.get_by_label("Eval set", exact=True).select_option(someone.evalset("hello_world"))
    page.get_by_label("Case", exact=True).fill("without_scripts")
    page.get_by_role("button", name="Add and run 5 times").click()
    expect(page.get_by_text("All 5 trials done.")).to_be_visible()

    expect(page.get_by_role("link", name="Run again…")).to_be_visible()
    expect(page.locator("#answer")).to_contain_text("5 of 5 passed")
    page.locator("#passk summary", has_text="As a table").click()
    expect(page.get_by_role("table", name="pass@k and pass^k by k").get_by_role("row")).to_have_count(6)
    page.get_by_role("link", name="trial 3 passed").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("without_scripts, trial 3")
    expect(page.locator("table.diff")).to_contain_text("roll_die")


def test_the_preview_of_a_case_is_of_the_newest_change(anyone: Visitor) -> None:
    """Of changes that wait for an answer the last one is sent."""
    page = anyone.page
    anyone.goto("/sessions/new?agent=hello_world")
    page.get_by_label("First message").fill("Roll a 12-sided die.")
    page.get_by_role("button", name="Start session").click()
    page.get_by_role("link", name="Add current session").click()
    held: list[Route] = []
    page.route("**/case/preview", lambda route: route.continue_() if held else held.append(route))
    name = page.get_by_label("Case", exact=True)

    with page.expect_request("**/case/preview"):
        name.fill("first")
        name.press("Tab")
    for text in ("second", "third"):
        name.fill(text)
        name.press("Tab")

    with page.expect_request(lambda request: "third" in (request.post_data or "")):
        held[0].continue_()


def start_from_home(page: Page) -> None:
    """The home page leads to a chat with a state of one's own; a state that is no JSON is refused with its place."""
    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    page.get_by_role("region", name="Agents").get_by_role("link", name=re.compile("hello_world")).click()
    state = page.get_by_label("Initial state")
    state.fill('{"dice_seed": 7,\n "rolls": [}')
    page.get_by_role("button", name="Start session").click()
    expect(page.get_by_text("line 2, column 12")).to_be_visible()

    state.fill('{"dice_seed": 7, "rolls": []}')
    page.get_by_role("button", name="Start session").click()

    expect(page.get_by_role("heading", name="Send a message to hello_world")).to_be_visible()
    expect(page.get_by_text("scripted demo model").first).to_be_visible()


def talk(page: Page) -> None:
    """Two turns; the answers come while they are made, tool calls are cards, changes of the state are shown."""
    message = page.get_by_label("Message", exact=True)
    message.fill("Roll a 20-sided die and check whether it is prime.")
    page.evaluate(WATCH)
    message.press("Enter")
    turn = page.locator("#turns > li").first
    expect(turn.locator("article").last).to_contain_text("I rolled a 20 sided die, and got")
    assert page.evaluate("[...seenWhileAnswering]")  # words of an answer that was not whole yet
    expect(turn.locator(".toolcall")).to_have_count(2)
    card = turn.locator(".toolcall", has_text="roll_die(sides=20)")
    card.locator("summary").click()
    expect(card.locator(".json").first).to_contain_text("sides 20")
    expect(card.get_by_text("Result")).to_be_visible()
    expect(turn.locator(".delta")).to_contain_text("State changed: rolls")

    message.fill("Roll it again.")
    page.get_by_role("button", name="Send").click()

    expect(page.locator("#turns > li")).to_have_count(2)
    expect(page.get_by_role("link", name="Add current session")).to_be_visible()


def inspect(page: Page) -> None:
    """The panel beside the chat: state, events, tokens and time."""
    if page.get_by_role("navigation", name="Panes").is_visible():
        page.get_by_role("navigation", name="Panes").get_by_role("link", name="Inspector").click()
    expect(page.get_by_label("State now")).to_have_value(re.compile(r'"rolls": \[\d+, \d+\]'))
    tabs = page.get_by_role("navigation", name="Inspector")
    tabs.get_by_role("link", name=re.compile("Events")).click()
    expect(page.get_by_role("cell", name="tool_result").first).to_be_visible()
    tabs.get_by_role("link", name="Timing").click()
    expect(page.get_by_role("table", name="Milliseconds and tokens by turn")).to_contain_text("All")
    if page.get_by_role("navigation", name="Panes").is_visible():
        page.get_by_role("navigation", name="Panes").get_by_role("link", name="Conversation").click()


def add_current_session(someone: Visitor, case_id: str) -> None:
    """All that is saved is on the page, the state the session started from included; a taken name is a choice."""
    page = someone.page
    page.get_by_role("link", name="Add current session").click()
    expect(page.get_by_label("Initial state")).to_have_value(re.compile(r'"rolls": \[\]'))
    page.get_by_label("Eval set", exact=True).select_option(someone.evalset("hello_world"))
    expect(page.get_by_role("button", name="Add to hello_world")).to_be_visible()
    page.get_by_label("Case", exact=True).fill("roll_16")
    page.locator("#turn-0-reference").fill("I rolled a 20 sided die, and got 12. I checked: No prime numbers found.")
    # The agent will check all the same: what is expected here is a failure that every trial repeats.
    page.get_by_role("group", name="Turn 1, call 2, check_prime").get_by_role("checkbox").uncheck()
    expect(page.locator("#saved")).to_contain_text("2")
    page.get_by_role("button", name="Add to hello_world").click()

    expect(page.get_by_role("heading", name="hello_world has a case named roll_16 already")).to_be_visible()
    expect(page.get_by_role("button", name="Overwrite roll_16")).to_be_visible()
    page.get_by_label("Case", exact=True).fill(case_id)
    page.get_by_role("button", name="Add to hello_world").click()

    expect(page.get_by_role("status")).to_contain_text(f"{case_id} was added to hello_world.")
    expect(page.get_by_role("heading", level=1, name="hello_world")).to_be_visible()


def run_five_times(page: Page, case_id: str) -> None:
    """One case, five times; the page follows the run to its end."""
    page.get_by_role("link", name="Run it 5 times…").click()
    expect(page.get_by_label("Selected cases only")).to_be_checked()
    page.get_by_label("Model", exact=True).select_option(MODEL)
    page.locator("details:has(#note) > summary").click()
    page.get_by_label("Note", exact=True).fill(f"the journey of {case_id}")
    page.get_by_role("button", name="Start 5 trials").click()

    expect(page.get_by_text("All 5 trials done.")).to_be_visible()
    expect(page.locator(".strip .square")).to_have_count(5)


def read_the_run(page: Page) -> None:
    """The answer, the matrix, the scores, the curves with their table, and what was frozen."""
    expect(page.locator("#answer")).to_contain_text("0 of 5 passed")
    expect(page.get_by_role("table", name="1 case by 5 trials")).to_contain_text("of 5")
    scores = page.get_by_role("table", name="Scores by metric")
    expect(scores).to_contain_text("tool_trajectory_avg_score")
    expect(scores).to_contain_text("response_match_score")
    expect(page.locator("#passk-plot svg.chart [data-series] title")).not_to_have_count(0)
    assert page.evaluate("!window.Plotly")
    page.get_by_role("button", name="Interactive chart").click()
    expect(page.locator("#passk-plot .scatterlayer .trace")).to_have_count(2)
    expect(page.locator("#passk-plot svg.chart")).to_have_count(0)
    page.locator("#passk summary", has_text="As a table").click()
    numbers = page.get_by_role("table", name="pass@k and pass^k by k")
    expect(numbers.get_by_role("row")).to_have_count(6)
    expect(page.locator("#config")).to_contain_text(MODEL)
    expect(page.locator("#config")).to_contain_text("the journey of")


def read_a_failed_trial(page: Page) -> None:
    """Expected beside actual; the keys lead from trial to trial and from mismatch to mismatch."""
    page.locator(".square[data-status=failed]").first.click()
    expect(page.locator("#divergence")).to_contain_text("check_prime")
    expect(page.locator("table.diff").first).to_contain_text("roll_die")
    here = page.url
    is_last = here.endswith("/4")
    page.keyboard.press("h" if is_last else "l")
    page.wait_for_url(lambda url: url != here)
    page.keyboard.press("l" if is_last else "h")
    page.wait_for_url(here)
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    keys = page.locator("[data-keys-here] dl > div")
    caps = keys.locator("kbd").all_inner_texts()
    assert len(caps) == len(set(caps))
    expect(keys.filter(has_text="Run again")).to_have_text(["rRun again…"])
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_hidden()
    _follow_mismatches(page)


def _follow_mismatches(page: Page) -> None:
    """n and p go to the next and the previous mismatch and back; a run with a single one has none."""
    start = page.url
    for there, back in (("n", "p"), ("p", "n")):
        if page.locator(f"[data-key={there}]").count():
            page.keyboard.press(there)
            page.wait_for_url(lambda url: url != start)
            page.keyboard.press(back)
            page.wait_for_url(start)
