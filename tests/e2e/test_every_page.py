"""Every page of the desk: it fits every screen, and axe finds no serious fault on it, by day and by night."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from evaldesk import paths
from evaldesk.samples.hello_world.agent import check_prime, roll_die

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser

AXE = (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
FAULTS = """async (rules) => (await axe.run(document, {resultTypes: ["violations"], ...rules})).violations
  .flatMap(fault => fault.nodes.map(node => [fault.impact, fault.id, node.target.join(" "), node.failureSummary]))"""
WIDER = """() => [...document.querySelectorAll("body *")].filter(box => box.getBoundingClientRect().right > innerWidth)
  .map(box => box.tagName + "." + box.className).slice(0, 5)"""
RULES = {"preload": False}
ROWS = Path(__file__).parents[1] / "formats" / "exchange_samples" / "osmosis-csv.csv"
# Axe looks with the first two: by then it has seen both sizes and both schemes. The pictures show all four.
LOOKS = (("desktop", "light"), ("phone", "dark"), ("desktop", "dark"), ("phone", "light"))
Form = dict[str, str | float | bool]
Written = tuple[str, str, Sequence[tuple[str, Any]]]  # message, reference, expected calls
WIDTHS = (320, 768, 1440)
MOODY = '''"""Does as it is told."""
import threading


def root_agent(message, state):
    """Raises, waits, or answers, as it is told."""
    if "raise" in message:
        raise LookupError("no price list for 2026 in /srv/prices; load it first")
    if "wait" in message:
        threading.Event().wait(300)
    state["answered"] = [*state.get("answered", []), message]
    print("looked at", len(message), "letters")
    return "Answer to: " + message
'''
ANSWERS, RAISES, WAITS = "How far is it from Lisbon to Porto?", "Please raise an error.", "Please wait for me."


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """Agents and eval sets of every kind, faulty ones included."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    agents, evalsets = workspace / "agents", workspace / "evalsets"
    for name in ("hello_world", "trip_planner"):
        shutil.copytree(paths.samples() / name, agents / name)
    for name, source in (("moody", MOODY), ("broken", "import pdf_tables\nroot_agent = pdf_tables.agent()\n")):
        (agents / name).mkdir()
        (agents / name / "agent.py").write_text(source, "utf-8")
    evalsets.mkdir()
    for path in paths.shipped("evalsets").glob("*.json"):
        shutil.copy(path, evalsets)
    (evalsets / "torn.evalset.json").write_text('{"eval_set_id": "torn", "eval_cases": [}', "utf-8")
    _write_set(evalsets / "empty.evalset.json", {})
    _write_set(evalsets / "moody.evalset.json", {"distance": _plain(ANSWERS), "raises": _plain(RAISES)})
    _write_set(evalsets / "endless.evalset.json", {"distance": _plain(ANSWERS), "waits": _plain(WAITS)})
    _write_set(evalsets / "dice.evalset.json", dict(_dice_cases()))
    return "agents", "evalsets"


def _plain(text: str) -> Written:
    return text, f"Answer to: {text}", ()


def _dice_cases() -> Iterator[tuple[str, Written]]:
    for sides in (4, 6, 8, 12, 20, 100):
        state: dict[str, Any] = {}
        rolled = roll_die(sides, state)
        said, call = f"I rolled a {sides} sided die, and got {rolled}.", ("roll_die", {"sides": sides})
        yield f"roll_{sides}", (f"Roll a die with {sides} sides.", said, [call])
        check = ("check_prime", {"nums": [rolled]})
        question = f"Roll a {sides}-sided die and check whether it is prime."
        yield f"roll_{sides}_and_check", (question, f"{said} I checked: {check_prime([rolled])}", [call, check])


def _write_set(path: Path, cases: Mapping[str, Written]) -> None:
    eval_cases = [
        {
            "eval_id": case_id,
            "conversation": [
                {
                    "user_content": {"role": "user", "parts": [{"text": query}]},
                    "final_response": {"role": "model", "parts": [{"text": answer}]},
                    "intermediate_data": {"tool_uses": [{"name": name, "args": args} for name, args in calls]},
                }
            ],
        }
        for case_id, (query, answer, calls) in cases.items()
    ]
    path.write_text(json.dumps({"eval_set_id": path.name.partition(".")[0], "eval_cases": eval_cases}), "utf-8")


@pytest.fixture(scope="module")
def places(resident: Visitor) -> Mapping[str, str]:
    """Addresses by name: what the visitors before us left behind."""
    names = ("hello_world", "dice", "empty", "torn", "moody", "endless")
    sets = {name: resident.evalset(name) for name in names}
    places = {f"set-{name}": f"/evalsets/{set_id}" for name, set_id in sets.items()}
    places |= {f"id-{name}": set_id for name, set_id in sets.items()}
    calls = {"tool_trajectory_avg_score": "1"}
    places["run-live"] = resident.run("moody", sets["endless"], calls, n="3", timeout_s="600")
    places["chat-broken"] = resident.chat("broken", "{}", "Hello?")
    places["chat-empty"] = resident.chat("hello_world", "{}")
    places["chat-raises"] = resident.chat("moody", "{}", ANSWERS, RAISES)
    said = ("Roll a 20-sided die twice.", "Which of the rolls are prime?", "Roll a 6-sided die.")
    places["chat"] = resident.chat("hello_world", '{"dice_seed": 7, "rolls": []}', *said)
    places["run-errors"] = resident.run("moody", sets["moody"], calls, n="2")
    mixed = {"model": "demo/dice?mistakes=0.25", "note": "First run after the prompt was shortened"}
    places["run"] = resident.run("hello_world", sets["dice"], calls | {"response_match_score": "0.8"}, **mixed)
    for name in ("run-errors", "run"):
        resident.goto(places[name])
        expect(resident.page.get_by_role("button", name="Stop…")).to_have_count(0, timeout=40_000)
    places["trial"] = _first(resident.page, ".square[data-status=failed]")
    resident.goto(places["run-errors"])
    places["trial-errored"] = _first(resident.page, ".square[data-status=errored]")
    places |= _afterwards(resident, places["run"], places["trial"])
    for name in ("dice", "trip_planner"):
        resident.goto(f"/evalsets/{resident.evalset(name)}")
        places[f"case-{name}"] = _first(resident.page, "tbody th a")
    return places


def _afterwards(someone: Visitor, run: str, trial: str) -> dict[str, str]:
    """What people do with a run: score it again, and label a trial."""
    ask, home = someone.page.context.request, someone.desk.address
    criteria: Form = {"filled": "1", "metric": "response_match_score", "response_match_score.threshold": "0.4"}
    again = ask.post(f"{home}{run}/scorings", form=criteria).url.removeprefix(home)
    label: Form = {"labeller": "Ana", "verdict": "failed", "note": "It checks before it rolls.", "turn": ""}
    assert ask.post(f"{home}{trial}/labels", form=label).ok
    return {"run-again": again, "id-run": run[6:], "id-again": again[6:]}


def _first(page: Page, selector: str) -> str:
    return str(page.locator(selector).first.evaluate("link => link.pathname"))


PAGES = {
    "home": "/",
    "agents": "/agents",
    "chat": "{chat}",
    "chat-inspector": "{chat}#inspector",
    "chat-events": "{chat}#events",
    "chat-timing": "{chat}#timing",
    "chat-sessions": "{chat}#sessions",
    "chat-empty": "{chat-empty}",
    "chat-broken": "{chat-broken}",
    "chat-raises": "{chat-raises}",
    "chat-new": "/sessions/new?agent=trip_planner",
    "chat-new-broken": "/sessions/new?agent=broken",
    "add-session": "{chat}/case",
    "add-session-raises": "{chat-raises}/case",
    "add-session-empty": "{chat-empty}/case",
    "sets": "/evalsets",
    "sets-new": "/evalsets/new",
    "import": "/imports",
    "set": "{set-dice}",
    "set-samples": "{set-hello_world}",
    "set-empty": "{set-empty}",
    "set-torn": "{set-torn}",
    "set-settings": "{set-dice}/settings",
    "set-export": "{set-dice}/exports",
    "case": "{case-dice}",
    "case-two-turns": "{case-trip_planner}",
    "case-new": "{set-dice}/cases/new",
    "case-json": "{case-dice}/json",
    "runs": "/runs",
    "runs-none-fit": "/runs?q=nothing-has-this-note",
    "run-new": "/runs/new?agent=hello_world&evalset={id-dice}",
    "run": "{run}",
    "run-failed-only": "{run}?only=failed",
    "run-errors": "{run-errors}",
    "run-live": "{run-live}",
    "trial": "{trial}",
    "trial-errored": "{trial-errored}",
    "run-again": "{run-again}",
    "run-rescore": "{run}/scorings/new",
    "run-spread": "{run}/spread",
    "compare": "/compare?a={id-run}&b={id-again}",
    "compare-same": "/compare?a={id-run}&b={id-again}&show=same",
    "compare-choose": "/compare?b={id-run}",
    "labels": "/labels",
    "labels-of-run": "/labels?run={id-run}&only=disagreements",
    "not-found": "/runs/999",
    "not-found-page": "/nothing/here",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_every_screen_and_has_no_serious_fault(
    name: str, places: Mapping[str, str], resident: Visitor
) -> None:
    _go(resident, places, PAGES[name])

    check(resident, name)


def _send(page: Page, label: str, text: str) -> None:
    """Fill a field and press the button that sends its form."""
    field = page.get_by_label(label, exact=True)
    field.fill(text)
    page.locator("main form .button[data-kind=primary]").first.click()


def _ask_too_much(page: Page) -> None:
    page.locator("[name='response_match_score.threshold']").fill("7")
    page.get_by_role("button", name="Start").click()


def _import_under_a_taken_name(page: Page) -> None:
    page.get_by_label("File", exact=True).set_input_files(ROWS)
    page.get_by_role("button", name="Look into it").click()
    page.get_by_label("Name of the eval set").fill("hello_world")
    page.get_by_role("button", name="Import 2 cases").click()


ACTS: Mapping[str, tuple[str, Callable[[Page], None]]] = {
    "chat-new-refused": ("/sessions/new?agent=hello_world", lambda page: _send(page, "State to start from", "{")),
    "sets-new-refused": ("/evalsets/new", lambda page: _send(page, "Name", "a/b")),
    "import-refused": ("/imports", lambda page: page.get_by_role("button", name="Look into it").click()),
    "import-name-taken": ("/imports", _import_under_a_taken_name),
    "case-refused": ("{case-dice}", lambda page: _send(page, "Id", "")),
    "case-json-refused": ("{case-dice}/json", lambda page: _send(page, "The case as it stands in the file", "{")),
    "add-session-taken": ("{chat}/case", lambda page: _send(page, "Case", "roll_4")),
    "run-new-refused": ("/runs/new?agent=hello_world&evalset={id-dice}", _ask_too_much),
    "run-stopping": ("{run-live}", lambda page: page.get_by_role("button", name="Stop…").click()),
    "keys": ("/", lambda page: page.keyboard.press("?")),
}


@pytest.mark.parametrize("name", ACTS)
def test_what_answers_an_act_fits_every_screen_and_has_no_serious_fault(
    name: str, places: Mapping[str, str], resident: Visitor
) -> None:
    address, act = ACTS[name]
    _go(resident, places, address)

    act(resident.page)

    expect(resident.page.locator("[role=alert]:not(:empty), [aria-invalid=true], :popover-open").first).to_be_visible()
    check(resident, name)


def _go(someone: Visitor, places: Mapping[str, str], address: str) -> None:
    someone.wear("desktop", "light")
    someone.goto(re.sub(r"\{(.+?)\}", lambda found: places[found[1]], address))


def check(someone: Visitor, name: str) -> None:
    """Look at the page as it stands with every screen."""
    page = someone.page
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    page.evaluate(AXE)
    faults: list[Any] = []
    for size, scheme in LOOKS if os.environ.get("EVALDESK_SHOTS") else LOOKS[:2]:
        someone.wear(size, scheme)
        if (size, scheme) in LOOKS[:2]:
            faults += [[size, scheme, *fault] for fault in page.evaluate(FAULTS, RULES)]
        someone.shoot(f"{name}-{size}-{scheme}")
    wider = {width: _wider(page, width) for width in WIDTHS}
    assert [fault for fault in faults if fault[2] in ("serious", "critical")] == []
    assert {width: boxes for width, boxes in wider.items() if boxes} == {}


def _wider(page: Page, width: int) -> list[str]:
    page.set_viewport_size({"width": width, "height": 844})
    is_scrolled = page.evaluate("() => document.scrollingElement.scrollWidth > innerWidth")
    return list(page.evaluate(WIDER)) if is_scrolled else []
