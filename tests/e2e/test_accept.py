"""Actual results become expectations in three engines: nothing is chosen by itself, and a change is taken back.

So does an answer that a reader types in a queue, once somebody accepts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from tests.e2e import engines

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from tests.e2e.conftest import Furniture, RunningDesk, Visit, Visitor

pytestmark = pytest.mark.browser

ENGINES = ("chromium", "firefox", "webkit")
AGENT = "def root_agent(message, state):\n    return f'<b>You</b> said {message}'\n"
N_CHOSEN = "document.querySelectorAll('[data-choice]:checked:not([data-choice=x])').length"
BROKEN_PARTS = """[...document.querySelectorAll('#effect tbody th')].flatMap((cell) => [...cell.childNodes]).filter(
    (each) => each.nodeType === Node.TEXT_NODE).filter((part) => {
    const range = document.createRange();
    range.selectNodeContents(part);
    return new Set([...range.getClientRects()].map((each) => each.top)).size > 1;
  }).map((part) => part.textContent)"""
IS_READY = "document.readyState === 'complete'"


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """An agent that echoes, and a set of two cases that want something else for each test."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "echo").mkdir(parents=True)
    (workspace / "agents" / "echo" / "agent.py").write_text(AGENT, "utf-8")
    for name in ("desktop", "phone", "fast", "back", "twice", *ENGINES):
        cases = [_case(f"{name}_{at}") for at in range(2)]
        text = json.dumps({"eval_set_id": name, "eval_cases": cases})
        (workspace / "agents" / f"{name}.evalset.json").write_text(text, "utf-8")
    return ("agents",)


def _case(case_id: str) -> dict[str, Any]:
    turn = {
        "user_content": {"role": "user", "parts": [{"text": case_id}]},
        "final_response": {"role": "model", "parts": [{"text": f"nothing of the kind, {case_id}"}]},
    }
    return {
        "eval_id": f"roll_two_dice_and_check_primes_{case_id}",
        "conversation": [turn],
        "session_input": {"app_name": "echo", "user_id": "u"},
    }


def references(desk: RunningDesk, name: str) -> list[str]:
    """The expected answers of the cases, as the file has them."""
    value = json.loads((desk.workspace / "agents" / f"{name}.evalset.json").read_text("utf-8"))
    return [case["conversation"][0]["final_response"]["parts"][0]["text"] for case in value["eval_cases"]]


def failed_run(someone: Visitor, name: str) -> str:
    run = someone.run("echo", someone.evalset(name), {"response_match_score": "0.9"}, cases="all", n="2")
    someone.goto(run)
    expect(someone.page.get_by_text("All 4 trials done.")).to_be_visible()
    expect(someone.page.get_by_role("link", name="Accept…")).to_be_visible()
    return run


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_one_answer_is_accepted_and_taken_back(visit: Visit, device: str) -> None:
    someone, name = visit(device), device
    page, before = someone.page, references(someone.desk, name)
    run = failed_run(someone, name)
    someone.goto(f"{run}/acceptance")
    expect(page.get_by_text("No change is chosen.")).to_be_visible()
    assert page.evaluate(N_CHOSEN) == 0
    assert page.locator("[data-saves]").is_disabled()
    page.keyboard.press("Control+s")
    expect(page.get_by_role("heading", name="Accept actual as expected")).to_be_visible()

    first = page.locator("[data-group]").first
    first.locator("input[value^='replace ']").check()
    expect(page.get_by_text("2 of 2 would pass instead of 0")).to_be_visible()
    page.locator("[data-saves]").click()
    expect(page.get_by_role("heading", name="The eval set is saved")).to_be_visible()
    assert references(someone.desk, name) == [f"<b>You</b> said {name}_0", before[1]]

    page.get_by_role("button", name="Undo this change of expectations").click()
    expect(page.get_by_role("heading", name="The eval set is saved")).to_have_count(0)
    assert references(someone.desk, name) == before


def test_nothing_is_chosen_on_a_page_that_a_browser_went_back_to(visit: Visit) -> None:
    """The list is shorter by then: marks by their place would be those of other changes."""
    someone = visit("desktop")
    page, before = someone.page, references(someone.desk, "back")
    run = failed_run(someone, "back")
    someone.goto(f"{run}/acceptance")
    page.locator("[data-group]").first.locator("input[value^='replace ']").check()
    page.locator("[data-group]").last.locator("input[value^='replace ']").check()
    page.get_by_role("link", name="Actual of trial 1").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("trial 1")

    page.go_back()
    expect(page.get_by_text("No change is chosen.")).to_be_visible()
    page.wait_for_timeout(500)
    assert page.evaluate(N_CHOSEN) == 0
    assert page.locator("[data-choice=x]:checked").count() == page.locator("fieldset.ways").count()
    page.keyboard.press("Control+s")
    page.wait_for_timeout(500)

    expect(page.get_by_role("heading", name="Accept actual as expected")).to_be_visible()
    assert references(someone.desk, "back") == before


@pytest.mark.parametrize("gap_ms", [0, 60])
def test_a_second_save_is_dropped(visit: Visit, gap_ms: int) -> None:
    someone = visit("desktop")
    page, before = someone.page, references(someone.desk, "twice")
    run = failed_run(someone, "twice")
    someone.goto(f"{run}/acceptance")
    page.locator("[data-group]").first.locator("input[value^='replace ']").check()
    expect(page.get_by_text("2 of 2 would pass instead of 0")).to_be_visible()

    page.keyboard.press("Control+s")
    page.wait_for_timeout(gap_ms)
    page.keyboard.press("Control+s")

    expect(page.get_by_role("heading", name="The eval set is saved")).to_be_visible()
    page.get_by_role("button", name="Undo this change of expectations").click()
    expect(page.get_by_role("heading", name="The eval set is saved")).to_have_count(0)
    assert references(someone.desk, "twice") == before


def test_a_save_right_after_a_choice_saves_that_choice(visit: Visit) -> None:
    """The keys come before the effect does."""
    someone = visit("desktop")
    page, before = someone.page, references(someone.desk, "fast")
    run = failed_run(someone, "fast")
    page.route("**/acceptance/effect", lambda _: None)  # an effect that never comes
    someone.goto(f"{run}/acceptance")

    for key in ("j", "o", "z", "Control+s", "j", "r", "Control+s"):
        page.keyboard.press(key)

    expect(page.get_by_role("heading", name="The eval set is saved")).to_be_visible()
    after = references(someone.desk, "fast")
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def window(
    engine: str, browser: Browser, desk: RunningDesk, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[engines.Window]:
    with engines.opened(engine, browser, tmp_path_factory.mktemp(engine)) as window:
        window.resize(1440, 900)
        window.goto(f"{desk.address}/?token={desk.token}")
        yield window


@pytest.fixture(scope="module")
def run(engine: str, resident: Visitor) -> str:
    """A run of the set of this engine, whose cases all failed."""
    return failed_run(resident, engine)


def accept_first(window: engines.Window, desk: RunningDesk, run: str) -> None:
    """Accept the first answer of a run."""
    window.goto(f"{desk.address}{run}/acceptance")
    window.says("No change is chosen.")
    assert window.ask(N_CHOSEN) == 0
    window.click("[data-group] input[value^='replace ']")
    window.says("2 of 2 would pass instead of 0")
    assert window.ask("document.querySelectorAll('#effect tbody th wbr').length") > 0
    assert window.ask(BROKEN_PARTS) == []
    window.click("[data-saves]")
    window.says("The eval set is saved", "h1")


def test_one_answer_is_accepted_and_taken_back_in_each_engine(
    window: engines.Window, desk: RunningDesk, engine: str, run: str
) -> None:
    before = references(desk, engine)
    accept_first(window, desk, run)
    assert references(desk, engine) == [f"<b>You</b> said {engine}_0", before[1]]

    window.press("Undo this change of expectations")
    window.wait_for(f"!document.querySelector('h1').innerText.includes('is saved') && {IS_READY}")
    assert references(desk, engine) == before


def test_expectations_before_a_change_are_restored_from_the_trash(
    window: engines.Window, desk: RunningDesk, engine: str, run: str
) -> None:
    before = references(desk, engine)
    accept_first(window, desk, run)
    assert references(desk, engine) != before

    window.goto(f"{desk.address}/trash")
    window.wait_for(f"{IS_READY} && document.querySelector('main tbody tr')")
    newest = str(window.ask("document.querySelector('main tbody tr').innerText"))
    assert engine in newest
    assert "expectations" in newest
    window.click("main tbody tr:first-child form button")
    window.wait_for(f"!document.querySelector('main').innerText.includes(arguments[0]) && {IS_READY}", newest)
    assert references(desk, engine) == before


def test_an_answer_typed_in_a_blind_queue_becomes_a_proposed_expectation(
    window: engines.Window, desk: RunningDesk, engine: str, run: str
) -> None:
    before, right = references(desk, engine), f"{engine}: that would have been right"
    window.goto(f"{desk.address}/queues?run={run.rpartition('/')[2]}&of=failed&n=1")
    window.fill("#reader", f"Jo of {engine}")
    window.press("Start reading")
    window.says("0 of 1 read", "h1")
    window.wait_for(IS_READY)

    window.type("body", "c")
    window.wait_for("document.querySelector('#answer-text')?.checkVisibility()")
    window.fill("#answer-text", right)
    window.press("Propose it")
    window.says("Nothing changes before somebody accepts it.")
    assert references(desk, engine) == before

    window.press("as the expected answer")
    window.wait_for(f"location.pathname.startsWith('/proposals') && {IS_READY}")
    window.says(right)
    window.says(f"Jo of {engine}")
    window.type("body", "a")
    window.says("Accepted by ")
    window.wait_for(IS_READY)
    after = references(desk, engine)
    assert right in after
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1
    window.type("body", "z")
    window.wait_for(f"document.querySelector('[data-key=q]') && {IS_READY}")
    assert references(desk, engine) == before
