"""Two trials side by side in a browser: they are walked, swapped and shared by keys, on a phone as well."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Verdict,
)
from evaldesk.settings import Settings
from evaldesk.store import Store

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visit, Visitor

pytestmark = pytest.mark.browser

AGENT = "def answer(message, state):\n    yield message\n\n\nroot_agent = answer\n"
N_TURNS = 12
PAIR = "/runs/1/cases/0/trials/0/pair"


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """A case whose second trial parts from the first in turns 3, 7 and 11, and a third one that is like the first."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "parrot").mkdir(parents=True)
    (workspace / "agents" / "parrot" / "agent.py").write_text(AGENT, "utf-8")
    settings = Settings(workspace=workspace, roots=(workspace / "agents",))
    settings.state_folder.mkdir()
    verdicts: tuple[Verdict, ...] = ("passed", "failed", "passed")
    with Store.open(settings.database) as store:
        case = Case("trip", tuple(Turn(f"Question {number}") for number in range(N_TURNS)))
        run_id = store.runs.create(RunConfig(AgentRef("parrot", "parrot"), "trips", n=len(verdicts)), [case])
        results = [
            TrialResult(run_id, 0, at, "finished", verdict, "answered", _told(is_other=verdict == "failed"))
            for at, verdict in enumerate(verdicts)
        ]
        store.runs.record(results)
        store.runs.set_status(run_id, "finished")
    return ("agents",)


def _told(*, is_other: bool) -> Transcript:
    return Transcript(tuple(_turn(number, parts=is_other and number % 4 == 2) for number in range(N_TURNS)))


def _turn(number: int, *, parts: bool) -> TurnRecord:
    call = ToolCall("book", {"seat": number + 100 * parts})
    said = Event("agent_message", text=f"Booked seat {number + 100 * parts} on the way to Seattle.")
    return TurnRecord(f"Question {number}", (Event("tool_call", call=call), Event("tool_result", call=call), said))


def test_a_trial_leads_to_its_pair_and_back_by_one_key(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/runs/1/cases/0/trials/0")

    page.keyboard.press("s")
    page.wait_for_url("**/pair?with=1.0.1")
    expect(page.locator(".lede")).to_contain_text("First difference in turn 3")
    page.keyboard.press("s")
    page.wait_for_url("**/runs/1/cases/0/trials/0")


def test_differences_are_walked_and_equal_turns_are_passed(someone: Visitor) -> None:
    page = someone.page
    someone.goto(PAIR)
    current = page.locator("[data-current]")

    for turn in (3, 7, 11):
        page.keyboard.press("n")
        expect(current).to_have_id(f"turn-{turn}")
        expect(current).to_be_in_viewport()
    page.keyboard.press("p")
    expect(current).to_have_id("turn-7")
    expect(current.locator("mark, del, ins").first).to_be_visible()


def test_everything_is_shown_and_the_address_says_so(someone: Visitor) -> None:
    page = someone.page
    someone.goto(PAIR)
    tables = page.locator("table.diff")
    expect(tables).to_have_count(3)

    page.keyboard.press("d")
    page.wait_for_url("**show=all*")
    expect(tables).to_have_count(N_TURNS)
    page.keyboard.press("d")
    expect(tables).to_have_count(3)


def test_sides_are_swapped_and_each_has_keys_for_its_trials(someone: Visitor) -> None:
    page = someone.page
    someone.goto(PAIR)

    page.keyboard.press("w")
    page.wait_for_url("**/trials/1/pair?with=1.0.0")
    page.keyboard.press("L")
    page.wait_for_url("**/trials/1/pair?with=1.0.2")
    page.keyboard.press("h")
    page.wait_for_url("**/trials/0/pair?with=1.0.2")
    expect(page.locator(".lede")).to_contain_text(re.compile("same", re.IGNORECASE))


def test_a_turn_of_the_pair_has_an_address_to_share(visit: Visit) -> None:
    page = visit().page
    someone = visit()
    someone.goto(f"{PAIR}?with=1.0.1")
    address = someone.page.get_by_label("Address of this turn").nth(6).evaluate("link => link.href")

    page.goto(address)

    expect(page.locator("#turn-7")).to_be_in_viewport()


def test_without_scripts_the_same_is_done_by_links(visit: Visit) -> None:
    someone = visit(has_scripts=False)
    page = someone.page
    someone.goto(PAIR)

    page.get_by_role("link", name=re.compile("^Show everything")).click()
    expect(page.locator("table.diff")).to_have_count(N_TURNS)
    page.get_by_role("link", name=re.compile("^Swap")).click()
    page.wait_for_url("**/trials/1/pair*")


def test_on_a_phone_a_stands_over_b_and_nothing_is_cut(visit: Visit) -> None:
    someone = visit("phone")
    page = someone.page
    someone.goto(PAIR)
    cells = page.locator("#turn-3 tbody tr").first.locator("td")

    a, b = cells.first.bounding_box(), cells.last.bounding_box()

    assert a
    assert b
    assert a["y"] + a["height"] <= b["y"] + 1
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
