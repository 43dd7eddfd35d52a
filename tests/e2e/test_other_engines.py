"""The journey of the README in Firefox and in WebKit, and what these do in their own way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e import engines
from tests.e2e.conftest import SHOTS, RunningDesk

pytestmark = pytest.mark.browser

N_TURNS = "document.querySelectorAll('#turns > li').length"
COMMIT = """document.querySelector("[data-enter]").dispatchEvent(
  new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, bubbles: true, cancelable: true }))"""
"""Enter as the engines of Safari tell it where it ends a composition, as of Japanese."""
N_PANES = "[...document.querySelectorAll('.pane')].filter((pane) => pane.getClientRects().length).length"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, program: tuple[str, ...]) -> Iterator[RunningDesk]:
    desk = RunningDesk(tmp_path_factory.mktemp("workspace"), (), program)
    desk.start()
    yield desk
    desk.stop()


@pytest.fixture(scope="module", params=["firefox", "webkit"])
def browser_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def window(browser_name: str, desk: RunningDesk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[engines.Window]:
    opened: Any = getattr(engines, browser_name)
    with opened(tmp_path_factory.mktemp(browser_name)) as window:
        window.goto(f"{desk.address}/?token={desk.token}")
        yield window
        errors = re.findall(rf"JavaScript error: {desk.address}.*", window.log())
        assert errors == []


def chat(window: engines.Window, desk: RunningDesk) -> None:
    window.goto(f"{desk.address}/sessions/new?agent=hello_world")
    window.press("Start session")
    window.find("#turns")


def say(window: engines.Window, message: str) -> None:
    n_turns = window.ask(N_TURNS)
    window.type("[data-enter]", message)
    window.type("[data-enter]", "Enter")
    window.wait_for(f"{N_TURNS} === {n_turns + 1}")


def shoot(window: engines.Window, name: str) -> None:
    if os.environ.get("EVALDESK_SHOTS"):
        SHOTS.mkdir(exist_ok=True)
        window.shoot(SHOTS / f"{name}.png")


def test_a_chat_becomes_a_case_and_a_run_that_is_read(
    window: engines.Window, desk: RunningDesk, browser_name: str
) -> None:
    chat(window, desk)
    say(window, "Roll a 20-sided die and check whether it is prime.")
    window.says("I rolled a 20 sided die", "#turns")
    shoot(window, f"{browser_name}-chat")

    window.press("Add current session")
    window.says("check_prime")
    window.fill("#case", browser_name)
    window.press("Add and run 5 times")
    window.says("All 5 trials done.")
    shoot(window, f"{browser_name}-run")

    window.says("5 of 5 passed", "#answer")
    window.click(".strip .square")
    window.says("roll_die", "table.diff")
    trial = window.address
    for _ in ("at first", "once more, after Back"):
        window.type("body", "l")
        window.wait_for("location.href !== arguments[0]", trial)
        window.back()
        window.wait_for("location.href === arguments[0]", trial)
    shoot(window, f"{browser_name}-trial")


def test_an_enter_that_ends_a_composition_sends_nothing(window: engines.Window, desk: RunningDesk) -> None:
    chat(window, desk)
    window.type("[data-enter]", "Roll a die")

    is_left_alone = window.ask(COMMIT)

    assert is_left_alone
    say(window, ".")
    assert window.ask(N_TURNS) == 1
    window.says("Roll a die.", "#turns")


def test_a_chat_goes_on_after_back(window: engines.Window, desk: RunningDesk) -> None:
    chat(window, desk)
    say(window, "Roll a die.")
    here = window.address
    window.press("Eval sets")
    window.wait_for("location.href !== arguments[0]", here)
    window.says("hello_world")

    window.back()
    window.wait_for("location.href === arguments[0]", here)
    say(window, "Roll it again.")

    window.press("Add current session")
    window.wait_for("location.href !== arguments[0]", here)


def test_a_field_grows_with_its_text(window: engines.Window, desk: RunningDesk) -> None:
    chat(window, desk)
    height = "document.querySelector('[data-enter]').getBoundingClientRect().height"
    before = window.ask(height)

    window.ask(
        "Object.assign(document.querySelector('[data-enter]'), { value: 'a\\n'.repeat(6) })"
        ".dispatchEvent(new Event('input', { bubbles: true }))"
    )

    assert window.ask(height) > 2 * before


def test_the_layout_follows_the_window(window: engines.Window, desk: RunningDesk) -> None:
    chat(window, desk)
    window.resize(1440, 900)
    window.wait_for(f"{N_PANES} === 3")

    window.resize(600, 900)

    window.wait_for(f"{N_PANES} === 1")
    window.resize(1440, 900)
    window.wait_for(f"{N_PANES} === 3")


def test_the_palette_leads_to_what_was_typed(window: engines.Window, desk: RunningDesk) -> None:
    window.goto(f"{desk.address}/runs")
    window.click("[data-opens=palette]")
    window.type("#palette input", "agents")
    window.wait_for("document.querySelector('#palette [data-answers=agents]')")
    window.wait_for("document.querySelector('#palette [aria-selected=true]')")
    window.press_until("#palette input", "Enter", "location.pathname === '/agents'")


@pytest.fixture(scope="module")
def run(window: engines.Window, desk: RunningDesk) -> str:
    """The address of a run of a sample."""
    window.resize(1440, 900)
    window.goto(f"{desk.address}/runs/new?agent=trip_planner")
    window.click("main form button[data-kind=primary]")
    window.says("All 20 trials done.")
    return window.address


PAGES = (
    *("/", "/sessions", "/evalsets", "/runs", "/runs/new", "/gates", "/labels", "/queues", "/failures"),
    *("/agents", "/trash", "/imports", "/search"),
)
OF_A_RUN = ("", "/spread", "/acceptance", "/cases/0/trials/0")
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("width", [1440, 420])
def test_no_page_goes_beyond_the_window(window: engines.Window, desk: RunningDesk, run: str, width: int) -> None:
    window.resize(width, 900)

    found = {}
    for address in (*(f"{desk.address}{path}" for path in PAGES), *(f"{run}{path}" for path in OF_A_RUN)):
        window.goto(address)
        window.wait_for("document.querySelector('h1') && document.readyState === 'complete'")
        found[address] = window.ask(SIDEWAYS)

    window.resize(1440, 900)
    assert {address: beyond for address, beyond in found.items() if beyond > 0} == {}


def test_a_queue_is_read_by_key(window: engines.Window, desk: RunningDesk, run: str) -> None:
    window.goto(f"{desk.address}/queues?run={run.rpartition('/')[2]}&of=passed&of=failed&n=5")
    window.fill("#reader", "jo")
    window.press("Start reading")
    window.says("0 of 5 read", "h1")  # the page before has "10 of each verdict", and a key pressed there is for nobody
    window.wait_for("document.readyState === 'complete'")

    for n, key in enumerate("12", start=1):
        window.type("body", key)
        window.says(f"{n} of 5 read", "h1")
    window.type("body", "z")

    window.says("1 of 5 read", "h1")


def test_a_label_is_set_by_key(window: engines.Window, run: str) -> None:
    window.goto(f"{run}/cases/0/trials/0")
    window.find("#labels")
    window.wait_for("document.readyState === 'complete'")
    window.type("body", "1")

    window.wait_for("document.querySelector('#labels .labels li') !== null")


def test_a_proposal_is_accepted_taken_back_and_refused_by_key(
    window: engines.Window, desk: RunningDesk, browser_name: str
) -> None:
    words = ("propose", "kind", f"wrong sum in {browser_name}", "--definition", "The sum is another one.")
    command = [sys.executable, "-P", "-m", "evaldesk", *words, "--workspace", str(desk.workspace)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    window.goto(f"{desk.address}/proposals")
    window.wait_for("document.readyState === 'complete'")
    window.type("body", "a")

    window.says("Accepted by ")
    window.wait_for("document.readyState === 'complete'")
    window.type("body", "z")
    window.wait_for("document.querySelector('[data-key=q]') && document.readyState === 'complete'")
    window.type("body", "q")

    window.says("Refused by ")
