"""Reading a long trial in a browser: its parts come as one scrolls, and addresses lead into them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from tests.long_trials import LONG, N_CALLS, store_trial

from evaldesk.model import AgentRef, Case, RunConfig, Score, TrialResult, Turn
from evaldesk.settings import Settings
from evaldesk.store import Store

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser

AGENT = "def answer(message, state):\n    yield message\n\n\nroot_agent = answer\n"
N_CASES = 170
MANY_CASES, CODE = f"/runs/{len(LONG) + 1}", f"/runs/{len(LONG) + 2}"
PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-c\n+d\n"
# Asked again for each frame, and in one step: a link is gone as soon as its part is there.
SCROLL_TO_THE_LAST = """(link) => {
  document.querySelector(link)?.scrollIntoView();
  return !document.querySelector(link);
}"""
ADDRESSES = {name: f"/runs/{number}/cases/0/trials/0" for number, name in enumerate(LONG, 1)}


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """Recorded trials of 300 calls."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "parrot").mkdir(parents=True)
    (workspace / "agents" / "parrot" / "agent.py").write_text(AGENT, "utf-8")
    settings = Settings(workspace=workspace, roots=(workspace / "agents",))
    settings.state_folder.mkdir()
    with Store.open(settings.database) as store:
        assert [store_trial(store.runs, *build()) for build in LONG.values()] == [*ADDRESSES.values()]
        cases = [Case(f"case-{number}", (Turn("Speak."),)) for number in range(N_CASES)]
        run_id = store.runs.create(RunConfig(AgentRef("agent", "agent"), "trips", n=1), cases)
        store.runs.record([TrialResult(run_id, at, 0, "finished", "failed", "answered") for at in range(N_CASES)])
        store.runs.set_status(run_id, "finished")
        assert f"/runs/{run_id}" == MANY_CASES
        tests: dict[str, Any] = {"FAIL_TO_PASS": ["a.py::test_a", "a.py::test_b"], "PASS_TO_PASS": []}
        case = Case("fix", (Turn("Fix it."),), extra={"instance": tests})
        run_id = store.runs.create(RunConfig(AgentRef("agent", "agent"), "code", n=2), [case])
        report: dict[str, Any] = {
            "git_patch": PATCH,
            "test_output": "FAILED a.py::test_a - x\nFAILED a.py::test_b - x\n",
        }
        scores = (Score("resolved", value=0.0, details={"test_result": report}),)
        store.runs.record(
            [
                TrialResult(run_id, 0, 0, "finished", "failed", "answered", scores=scores),
                TrialResult(run_id, 0, 1, "finished", "failed", "answered"),
            ]
        )
        store.runs.set_status(run_id, "finished")
        assert f"/runs/{run_id}" == CODE
    return ("agents",)


def test_keys_walk_hunks_and_broken_tests_and_then_lead_to_the_next_mismatch(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"{CODE}/cases/0/trials/0")

    for key, place in (("]", "hunk-1"), ("]", "hunk-2"), ("]", "hunk-2"), ("[", "hunk-1"), ("[", "hunk-1")):
        page.keyboard.press(key)
        expect(page.locator(":target")).to_have_id(f"source-0-{place}")
        expect(page.locator(":target")).to_be_focused()
    page.keyboard.press("n")
    expect(page.locator("#broke")).to_be_focused()
    page.get_by_text("1 test more did not pass").click()
    page.keyboard.press("n")
    expect(page.locator("#broke-2")).to_be_focused()
    page.keyboard.press("p")
    expect(page.locator("#broke")).to_be_focused()
    page.get_by_text("1 test more did not pass").click()
    page.keyboard.press("n")
    page.wait_for_url(f"**{CODE}/cases/0/trials/1")
    page.keyboard.press("p")
    page.wait_for_url(f"**{CODE}/cases/0/trials/0")


def test_calls_come_as_one_scrolls(someone: Visitor) -> None:
    page = someone.page
    someone.goto(ADDRESSES["one turn"])
    calls = page.locator(".toolcall")
    assert calls.count() < N_CALLS

    page.wait_for_function(SCROLL_TO_THE_LAST, arg="#turn-1-pieces [data-rest]")

    expect(calls).to_have_count(N_CALLS)
    expect(page.locator("#turn-1 .prose strong")).to_have_text("cheapest")


@pytest.mark.parametrize(
    ("name", "place"),
    [("one turn", "turn-1-event-850"), ("expected calls", "turn-1-event-850"), ("many turns", "turn-149-event-4")],
)
def test_an_address_in_a_part_that_is_still_to_come_is_found(someone: Visitor, name: str, place: str) -> None:
    page = someone.page

    someone.goto(f"{ADDRESSES[name]}#{place}")

    expect(page.locator(f"#{place}")).to_be_in_viewport()
    expect(page.locator(":target")).to_have_id(place)


def test_the_address_of_a_turn_that_is_still_to_come_brings_it(someone: Visitor) -> None:
    page = someone.page

    someone.goto(f"{ADDRESSES['many turns']}#turn-120")

    expect(page.locator("#turn-120 .toolcall")).to_have_count(2)
    expect(page.locator("#turn-120")).to_be_in_viewport()
    expect(page.locator("#turn-60 .toolcall")).to_have_count(0)


def test_keys_walk_through_turns_that_come_on_the_way(someone: Visitor) -> None:
    page = someone.page
    someone.goto(ADDRESSES["many turns"])

    for number in range(1, 9):
        page.keyboard.press("j")
        expect(page.locator(f"#turn-{number} .toolcall")).to_have_count(2)
        expect(page.locator(f"#turn-{number}")).to_be_focused()

    expect(page.locator("[data-current]")).to_have_id("turn-8")


def test_b_leads_to_the_fork_before_the_turn_that_keys_walked_to(someone: Visitor) -> None:
    page = someone.page
    someone.goto(ADDRESSES["many turns"])

    for number in (1, 2):
        page.keyboard.press("j")
        expect(page.locator(f"#turn-{number}")).to_be_focused()
    page.keyboard.press("b")

    expect(page).to_have_url(re.compile(r"/fork\?turn=2$"))


def test_a_key_hides_what_is_as_expected_and_the_choice_is_kept(someone: Visitor) -> None:
    page = someone.page
    someone.goto(ADDRESSES["expected calls"])
    same, other = page.locator('.diff tr[data-op="="]').first, page.locator("#turn-1-pieces")
    expect(same).to_be_visible()

    page.keyboard.press("d")
    expect(same).to_be_hidden()
    page.reload()
    expect(page.get_by_role("button", name="Differences only")).to_have_attribute("aria-pressed", "true")
    expect(same).to_be_hidden()
    page.keyboard.press("d")
    expect(same).to_be_visible()
    expect(other).to_be_attached()


def test_back_leads_to_the_row_of_a_long_run_and_keeps_its_filter(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"{MANY_CASES}?show=failed")
    row = page.get_by_role("row", name=f"case-{N_CASES - 20} ")
    page.wait_for_function(SCROLL_TO_THE_LAST, arg="#more")
    row.scroll_into_view_if_needed()

    row.locator("a.square").click()
    expect(page.get_by_role("heading", name=f"case-{N_CASES - 20}, trial 1")).to_be_visible()
    page.go_back()

    expect(row).to_be_in_viewport()
    assert page.url.endswith(f"{MANY_CASES}?show=failed")


def test_back_leads_to_the_call_that_one_came_from(someone: Visitor) -> None:
    page = someone.page
    someone.goto(f"{ADDRESSES['one turn']}#turn-1-event-400")
    call = page.locator("#turn-1-event-400")
    expect(page.locator(":target")).to_have_id("turn-1-event-400")
    expect(call).to_be_in_viewport()

    someone.goto("/agents")
    page.go_back()

    expect(call).to_be_in_viewport()
