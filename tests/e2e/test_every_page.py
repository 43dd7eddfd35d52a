"""Every page of the desk: it fits every screen, and axe finds no fault on it, by day and by night."""

from __future__ import annotations

import importlib.resources
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from playwright.sync_api import FilePayload, Page, expect
from starlette.routing import Match, Route
from tests.conversations import put_conversation
from tests.e2e.many_kinds import ANSWERS, RAISES, RENDERED, coded, furnish

from evaldesk import paths
from evaldesk.model.inbox import DrawStratum
from evaldesk.registry import import_target
from evaldesk.store import Store
from evaldesk.web.server import ROUTES

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser

AXE = (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
NODES = """.violations.flatMap(fault =>
  fault.nodes.map(node => [fault.impact, fault.id, node.target.join(" "), node.failureSummary]))"""
FAULTS = f"async rules => (await axe.run(document, rules)){NODES}"
UNFOLDED = f"""async rules => {{
  const folded = [...document.querySelectorAll("details:not([open])")];
  for (const details of folded) details.open = true;
  return folded.length ? (await axe.run(folded, rules)){NODES} : [];
}}"""
WIDER = """() => document.scrollingElement.scrollWidth <= document.documentElement.clientWidth ? [] : ["the page", ...[
  ...document.querySelectorAll("body *")].filter(box => box.getBoundingClientRect().right > innerWidth)
  .map(box => box.tagName + "." + box.className).slice(0, 5)]"""
TINY = """least => [...document.querySelectorAll("body :not(svg, svg *, script, style)")].filter(box =>
  box.checkVisibility() && 0 < parseFloat(getComputedStyle(box).fontSize)  // 0 hides the words beside an icon
  && parseFloat(getComputedStyle(box).fontSize) < least
  && [...box.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.textContent.trim()))
  .map(box => box.tagName + "." + box.className + " " + box.textContent.trim().slice(0, 40)).slice(0, 5)"""
LEAST_TEXT_PX = 11
AMBIGUOUS = """() => {
  const meanings = new Map();
  const note = (key, words) => meanings.set(key, (meanings.get(key) ?? new Set()).add(words));
  const words = element => {
    const copy = element.cloneNode(true);
    copy.querySelectorAll("kbd").forEach(key => key.remove());
    return (element.getAttribute("aria-label") || copy.textContent).trim().replace(/\\s+/g, " ");
  };
  const shown = selector => [...document.querySelectorAll(selector)].filter(element => element.checkVisibility());
  for (const element of shown("[data-key]")) note(element.dataset.key, words(element.labels?.[0] ?? element));
  for (const element of shown("[data-choice]")) note(element.dataset.choice, "a choice of the row");
  for (const link of shown("[data-grid] [data-baseline]")) {
    const same = shown("[data-key=b]").find(element => element.href === link.href);
    note("b", same ? words(same) : "Make first");
  }
  if (shown("[data-grid] a.trials").length) note("s", "Side by side");
  for (const key of shown("[data-rows] input[type=checkbox]").length ? "jkx" : "jk") note(key, "a row");
  return [...meanings].filter(([, names]) => names.size > 1).map(([key, names]) => [key, ...names]);
}"""
FAST = {"preload": False, "resultTypes": ["violations"]}
# axe plays this rule only where it is enabled: a person who speaks to the page says the words on its buttons.
ALL_RULES = FAST | {"rules": {"label-content-name-mismatch": {"enabled": True}}}
OF_COLOURS = FAST | {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
PICTURE = Path(__file__).parents[2] / "docs" / "run.png"
ROWS = Path(__file__).parents[1] / "formats" / "exchange_samples" / "osmosis-csv.csv"
# Between day and night only colours change; that this is so has a test of its own.
LOOKS = (
    ("desktop", "light", ALL_RULES),
    ("desktop", "dark", OF_COLOURS),
    ("phone", "dark", ALL_RULES),
    ("phone", "light", OF_COLOURS),
)
ANSWERS_TO_AN_ACT = "[role=alert]:not(:empty), [aria-invalid=true], :popover-open, dialog:modal, [name=new-kind]"
Form = dict[str, str | float | bool]
WIDTHS = (320, 768)  # beside those of the looks, 390 and 1440


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """Agents and eval sets of every kind, faulty ones included."""
    return furnish


@pytest.fixture(scope="module")
def places(resident: Visitor) -> Mapping[str, str]:
    """Addresses by name: what the visitors before us left behind."""
    resident.page.add_init_script(AXE)
    names = ("hello_world", "dice", "empty", "torn", "moody", "endless")
    sets = {name: resident.evalset(name) for name in names}
    places = {f"set-{name}": f"/evalsets/{set_id}" for name, set_id in sets.items()}
    places |= {f"set-health-{name}": f"/evalsets/{set_id}/health" for name, set_id in sets.items()}
    places |= {f"id-{name}": set_id for name, set_id in sets.items()}
    calls = {"tool_trajectory_avg_score": "1"}
    places["run-live"] = resident.run("moody", sets["endless"], calls, n="3", timeout_s="86400")
    places["chat-broken"] = resident.chat("broken", "{}", "Hello?")
    places["chat-empty"] = resident.chat("hello_world", "{}")
    places["chat-raises"] = resident.chat("moody", "{}", ANSWERS, RAISES)
    places["chat-markdown"] = resident.chat("moody", "{}", RENDERED)
    said = ("Roll a 20-sided die twice.", "Which of the rolls are prime?", "Roll a 6-sided die.")
    places["chat"] = resident.chat("hello_world", '{"dice_seed": 7, "rolls": []}', *said)
    places["run-errors"] = resident.run("moody", sets["moody"], calls, n="2")
    mixed = {"model": "demo/dice?mistakes=0.25", "note": "First run after the prompt was shortened"}
    places["run"] = resident.run("hello_world", sets["dice"], calls | {"response_match_score": "0.8"}, **mixed)
    for name in ("run-errors", "run"):
        resident.goto(places[name])
        expect(resident.page.get_by_role("button", name="Stop…")).to_have_count(0)
    places["trial"] = _first(resident.page, ".square[data-status=failed]")
    resident.goto(places["run-errors"])
    places["trial-errored"] = _first(resident.page, ".square[data-status=errored]")
    places |= _afterwards(resident, places["run"], places["trial"])
    for name in ("dice", "trip_planner"):
        resident.goto(f"/evalsets/{resident.evalset(name)}")
        places[f"case-{name}"] = _first(resident.page, "tbody th a")
    deleted = resident.chat("hello_world", "{}")
    assert resident.page.context.request.post(f"{resident.desk.address}{deleted}/deletion").ok
    _experiment(resident)
    _proposal(resident)
    places["bench-chat"] = _draft(resident)
    return places | _brought_in(resident, places["chat"])


def _draft(someone: Visitor) -> str:
    """A draft that was talked with, kept and run: the address of the bench beside its chat."""
    page = someone.page
    someone.goto("/bench?agent=hello_world")
    page.locator("#text-1").fill("Roll each die twice for {lucky_name}.")
    page.locator("#bench-name").fill("twice")
    page.locator("#message").fill("Roll a die.")
    page.locator("#message").press("Enter")
    page.wait_for_url("**session=**")
    expect(page.locator("#turn-1")).to_contain_text("hello_world")
    address = page.url.partition("#")[0]
    page.locator("#bench-name").fill("twice")
    page.get_by_role("button", name="Save as file").click()
    page.wait_for_url("**saved=**")
    page.locator("#bench-n").fill("1")
    page.get_by_role("button", name="Run against the original").click()
    page.wait_for_url("**began=**")
    expect(page.locator("#results")).to_contain_text("saved as prompts/twice.md")
    expect(page.locator("#results")).not_to_contain_text("playing")
    return address.removeprefix(someone.desk.address)


def _experiment(someone: Visitor) -> None:
    """An experiment of two models, played from a shell beside the desk."""
    evalset = next(someone.desk.workspace.rglob("dice.evalset.json"))
    models = "model=demo/dice,demo/dice?mistakes=0.25"
    _in_shell(someone, "eval", "samples/hello_world", str(evalset), "--vary", models, "--n", "2")


def _proposal(someone: Visitor) -> None:
    """Another answer to a case, as a coding agent proposes it in a shell beside the desk."""
    (case, *_) = json.loads(next(someone.desk.workspace.rglob("dice.evalset.json")).read_text())["eval_cases"]
    turn, *turns = case["conversation"]
    patch = {"conversation": [turn | {"final_response": {"parts": [{"text": "You rolled a 4."}]}}, *turns]}
    words = ("propose", "edit", "dice", case["eval_id"], "-", "--why", "The answer names the number.")
    _in_shell(someone, *words, text=json.dumps(patch))


def _in_shell(someone: Visitor, *words: str, text: str = "") -> None:
    command = [sys.executable, "-m", "evaldesk", *words, "--workspace", str(someone.desk.workspace)]
    subprocess.run(command, check=True, capture_output=True, timeout=300, input=text.encode())


def _brought_in(someone: Visitor, chat: str) -> dict[str, str]:
    """What came from elsewhere: a file that waits for a person, a session of ADK, a picture."""
    ask, home = someone.page.context.request, someone.desk.address
    rows, picture = (FilePayload(name=at.name, mimeType="image/png", buffer=at.read_bytes()) for at in (ROWS, PICTURE))
    staged = ask.post(f"{home}/imports", multipart={"file": rows}).url.removeprefix(home)
    adk = re.findall(r'href="(/adk-sessions/[^"]+/case)"', ask.get(f"{home}/adk-sessions").text())
    ask.post(f"{home}{chat}/turns", multipart={"message": "Look.", "media": picture})
    media = re.findall(r'src="(/media/[^"]+)"', ask.get(f"{home}{chat}").text())
    unknown = FilePayload(name="rows.json", mimeType="application/json", buffer=b'[{"question": "Why?", "note": "n"}]')
    unmapped = ask.post(f"{home}/imports", multipart={"file": unknown}).url.removeprefix(home)
    return {"staged": staged, "unmapped": unmapped, "adk-session": adk[0], "picture": media[0]}


def _afterwards(someone: Visitor, run: str, trial: str) -> dict[str, str]:
    """What people do with a run: score it again, and label a trial."""
    ask, home = someone.page.context.request, someone.desk.address
    criteria: Form = {"filled": "1", "metric": "response_match_score", "response_match_score.threshold": "0.4"}
    again = ask.post(f"{home}{run}/scorings", form=criteria).url.removeprefix(home)
    label: Form = {"labeller": "Ana", "verdict": "failed", "note": "It checks before it rolls.", "turn": ""}
    assert ask.post(f"{home}{trial}/labels", form=label).ok
    finding: Form = {"labeller": "Ana", "note": "It adds the rolls wrongly.", "new-mode": "wrong sum", "place": "0"}
    assert ask.post(f"{home}{trial}/findings", form=finding).ok
    assert ask.post(f"{home}{trial}/findings", form={"labeller": "Ben", "new-mode": "rolls twice"}).ok
    assert ask.post(f"{home}/failures/proposals", form={"run": run[6:], "op": "propose"}).ok
    kinds = "failed&of=passed&of=errored&of=unscored"
    form = f"run={run[6:]}&n=40&reader=Cy&blind=on&of="
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    queues = [ask.post(f"{home}/queues", data=form + of, headers=kind) for of in (kinds, "passed", "readers")]
    answer: Form = {"reader": "Cy", "at": "1", "turn": "1", "answer": "An <b>other</b> answer."}
    assert ask.post(f"{queues[0].url}/answers", form=answer).ok
    boxes = re.findall(r'name="item" value="([^"]+)"', ask.get(f"{queues[1].url}/trials").text())
    said = "".join(f"&item={box}" for box in boxes)
    done = f"reader=Cy&then=list&verdict=failed{said}"
    assert ask.post(f"{queues[1].url}/labels", data=done, headers=kind).ok
    someone.goto("/imports")
    file = FilePayload(name="coded.jsonl", mimeType="application/jsonl", buffer=coded())
    someone.page.get_by_label("File", exact=True).set_input_files(file)
    someone.page.get_by_role("button", name="Preview").click()
    someone.page.get_by_role("button", name="Import 1").click()
    someone.page.wait_for_url(re.compile(r"/runs/\d+$"))
    coding = someone.page.url.removeprefix(home)
    with Store.open(someone.desk.workspace / ".evaldesk" / "evaldesk.db") as store:
        number = put_conversation(store, "Train to Graz next Friday, please.", source="shop", feedback=-1.0)
        store.inbox_draws.create("", [DrawStratum("rest", 1, 1, (1,))], [(number, "rest")], 7, "me")
    return {"run-again": again, "id-run": run[6:], "id-again": again[6:], "coding": coding, "conversation": str(number)}


def _first(page: Page, selector: str) -> str:
    return str(page.locator(selector).first.evaluate("link => link.pathname"))


PAGES = {
    "home": "/",
    "agents": "/agents",
    "chat": "{chat}",
    "chat-inspector": "{chat}#inspector",
    "chat-events": "{chat}#events",
    "bench": "/bench?agent=hello_world",
    "bench-chat": "{bench-chat}",
    "bench-prompt": "/bench?agent=hello_world&prompt=twice#prompt",
    "bench-tried": "{bench-chat}&experiment=2#tried",
    "bench-nothing": "/bench?agent=broken",
    "chat-timing": "{chat}#timing",
    "chat-sessions": "{chat}#sessions",
    "chat-timeline": "{chat}/timeline",
    "chat-empty": "{chat-empty}",
    "chat-broken": "{chat-broken}",
    "chat-raises": "{chat-raises}",
    "chat-new": "/sessions/new?agent=trip_planner",
    "chat-new-broken": "/sessions/new?agent=broken",
    "add-session": "{chat}/case",
    "add-session-raises": "{chat-raises}/case",
    "add-session-empty": "{chat-empty}/case",
    "chat-edit": "{chat}/turns/0/message",
    "chat-state-value": "{chat}/state/value?key=rolls",
    "chat-call": "{chat}/calls/0",
    "adk-sessions": "/adk-sessions",
    "adk-session": "{adk-session}",
    "sets": "/evalsets",
    "sets-new": "/evalsets/new",
    "import": "/imports",
    "import-preview": "{staged}",
    "import-mapping": "{unmapped}",
    "import-record": "/imports/records/1",
    "set": "{set-dice}",
    "set-cases": "{set-dice}/cases?q=check",
    "set-samples": "{set-hello_world}",
    "set-health": "{set-health-hello_world}",
    "set-empty": "{set-empty}",
    "set-torn": "{set-torn}",
    "set-settings": "{set-dice}/settings",
    "set-versions": "{set-dice}/versions",
    "set-trend": "{set-dice}/trend",
    "set-export": "{set-dice}/exports",
    "case": "{case-dice}",
    "case-two-turns": "{case-trip_planner}",
    "case-new": "{set-dice}/cases/new",
    "case-scenario": "{set-dice}/cases/new?kind=scenario",
    "case-json": "{case-dice}/json",
    "runs": "/runs",
    "runs-none-fit": "/runs?q=nothing-has-this-note",
    "run-new": "/runs/new?agent=hello_world&evalset={id-dice}",
    "run": "{run}",
    "run-failed-only": "{run}?only=failed",
    "run-errors": "{run-errors}",
    "run-live": "{run-live}",
    "trial": "{trial}",
    "trial-pair": "{trial}/pair?show=all",
    "trial-blame": "{trial}/blame",
    "trial-fork": "{trial}/fork",
    "trial-fork-case": "{trial}/fork?turn=1&keep=0",
    "run-blame": "{run}/blame",
    "trial-timeline": "{trial}/timeline",
    "trial-errored": "{trial-errored}",
    "trial-patch": "{coding}/cases/0/trials/0",
    "trial-call": "{trial}/calls/0",
    "trial-event": "{trial}/turns/0/events/0",
    "trial-answer": "{trial}/turns/0/answer",
    "trial-source": "{coding}/cases/0/trials/0/source/0",
    "failures": "/failures?run={id-run}&before={id-again}",
    "failures-newest": "/failures",
    "mode": "/failures/1",
    "mode-where": "/failures/1/where",
    "inbox": "/inbox",
    "inbox-filter": "/inbox?q=turns",
    "inbox-conversation": "/inbox/{conversation}",
    "inbox-draw": "/inbox/draw?q=since:14d",
    "inbox-drawn": "/inbox/draws/1",
    "inbox-cases": "/inbox/cases?conversation={conversation}",
    "queues": "/queues?run={id-run}",
    "queue": "/queues/1",
    "queue-open": "/queues/1?blind=off",
    "queue-event": "/queues/1/trials/1/turns/0/events/0",
    "queue-trials": "/queues/1/trials?stored=1",
    "queue-done": "/queues/2?reader=Cy",
    "queue-empty": "/queues/3",
    "run-again": "{run-again}",
    "run-rescore": "{run}/scorings/new",
    "run-accept": "{run}/acceptance",
    "run-accepted": "{run}/acceptance?saved=roll_16",
    "run-spread": "{run}/spread",
    "run-exports": "{run}/exports",
    "run-divergences": "{run}/divergences",
    "run-agents": "{run}/agents",
    "experiments": "/experiments",
    "experiment": "/experiments/1",
    "experiment-variants": "/experiments/1/variants/new",
    "compare": "/table?runs={id-run},{id-again}",
    "compare-same": "/table?runs={id-run},{id-again}&show=same",
    "compare-choose": "/compare?b={id-run}",
    "compare-refused": "/compare?a={id-run}&b={id-run}",
    "labels": "/labels",
    "gates": "/gates",
    "labels-of-run": "/labels?run={id-run}&only=disagreements",
    "trash": "/trash",
    "proposals": "/proposals",
    "proposal": "/proposals/1",
    "trust": "/trust",
    "search": "/search?q=dice",
    "search-nothing": "/search?q=no-such-thing",
    "not-found": "/runs/999",
    "not-found-page": "/nothing/here",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_every_screen_and_has_no_fault(name: str, places: Mapping[str, str], resident: Visitor) -> None:
    _go(resident, places, PAGES[name])

    check(resident, name)


def _send(page: Page, label: str, text: str) -> None:
    """Fill a field and press the button that sends its form, as long as a hand does: the page may change meanwhile."""
    field = page.get_by_label(label, exact=True)
    field.fill(text)
    page.locator("main form .button[data-kind=primary]").first.click(delay=400)


def _ask_too_much(page: Page) -> None:
    page.locator("[name='response_match_score.threshold']").fill("7")
    page.get_by_role("button", name="Start").click()


def _import_under_a_taken_name(page: Page) -> None:
    page.get_by_label("File", exact=True).set_input_files(ROWS)
    page.get_by_role("button", name="Preview").click()
    page.get_by_label("Name of the eval set").fill("hello_world")
    page.get_by_role("button", name="Import 2 cases").click()


def _search_and_go(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("dice")
    expect(page.locator("#found mark").first).to_be_visible()


def _open_popover(page: Page, name: str) -> None:
    page.locator(f"[popovertarget={name}]").first.click()


def _ask_to_delete_a_run(page: Page) -> None:
    _open_popover(page, "config")
    _open_popover(page, "deletion")


def _search_in_vain(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("no-such-thing")
    expect(page.get_by_role("status").filter(has_text="Nothing fits.")).to_be_visible()


def _ask_too_few(page: Page) -> None:
    page.get_by_label("At most of each kind").fill("0")
    page.get_by_label("Your name").fill("Cy")
    page.get_by_role("button", name="Start reading").click()


def _fork_with_a_torn_state(page: Page) -> None:
    page.get_by_text("State", exact=True).click()
    page.get_by_label("Patch of the session state").fill("{")
    page.get_by_role("button", name="Fork Ctrl Enter").click()


def _name_the_beginning_of_a_kind(page: Page) -> None:
    field = page.locator("#findings #new-mode")
    field.fill("wrong")
    field.press("Enter")


def _edit_into_torn_json(page: Page) -> None:
    page.get_by_text("Edit, then accept").click()
    page.get_by_label("Content as JSON").fill("{")
    for field in page.locator("input[name=labeller]:visible").all():
        field.fill("Ana")
    page.get_by_role("button", name="Accept as edited").click()


ACTS: Mapping[str, tuple[str, Callable[[Page], None]]] = {
    "chat-new-refused": ("/sessions/new?agent=hello_world", lambda page: _send(page, "Initial state", "{")),
    "sets-new-refused": ("/evalsets/new", lambda page: _send(page, "Name", "a/b")),
    "import-refused": ("/imports", lambda page: page.get_by_role("button", name="Preview").click()),
    "import-name-taken": ("/imports", _import_under_a_taken_name),
    "case-refused": ("{case-dice}", lambda page: _send(page, "Id", "")),
    "case-json-refused": ("{case-dice}/json", lambda page: _send(page, "Case in the file", "{")),
    "add-session-taken": ("{chat}/case", lambda page: _send(page, "Case", "roll_4")),
    "run-new-refused": ("/runs/new?agent=hello_world&evalset={id-dice}", _ask_too_much),
    "run-stopping": ("{run-live}", lambda page: page.get_by_role("button", name="Stop…").click()),
    "set-settings-refused": ("{set-dice}/settings", lambda page: _send(page, "Name", "a/b")),
    "queues-refused": ("/queues?run={id-run}", _ask_too_few),
    "fork-refused": ("{trial}/fork?turn=1", _fork_with_a_torn_state),
    "finding-offered": ("{trial}", _name_the_beginning_of_a_kind),
    "proposal-refused": ("/proposals/1", _edit_into_torn_json),
    "run-settings": ("{run}", lambda page: _open_popover(page, "config")),
    "run-deletion": ("{run}", _ask_to_delete_a_run),
    "chat-rename": ("{chat}", lambda page: _open_popover(page, "rename")),
    "trash-emptying": ("/trash", lambda page: _open_popover(page, "empty")),
    "keys-of-trial": ("{trial}", lambda page: page.keyboard.press("?")),
    "keys-of-queue": ("/queues/1", lambda page: page.keyboard.press("?")),
    "palette-nothing": ("/runs", _search_in_vain),
    "keys": ("/", lambda page: page.keyboard.press("?")),
    "palette": ("{set-dice}", _search_and_go),
}


@pytest.mark.parametrize("name", ACTS)
def test_what_answers_an_act_fits_every_screen_and_has_no_fault(
    name: str, places: Mapping[str, str], resident: Visitor
) -> None:
    address, act = ACTS[name]
    _go(resident, places, address)

    act(resident.page)

    expect(resident.page.locator(ANSWERS_TO_AN_ACT).filter(visible=True).first).to_be_visible()
    check(resident, name)


def test_every_address_that_answers_with_a_page_is_among_these(places: Mapping[str, str], resident: Visitor) -> None:
    addresses = [*PAGES.values(), *(address for address, _ in ACTS.values()), "{picture}"]
    shown = [_matched(_at(places, address)) for address in addresses]
    seen = {path for path, _ in shown}
    known = {name: value for _, values in reversed(shown) for name, value in values.items()}

    left = [route.path for route in _routes() if "GET" in (route.methods or ()) and route.path not in seen]
    asked = {path: re.sub(r"\{(\w+)(:\w+)?\}", lambda found: known[found[1]], path) for path in left}

    assert [path for path, address in asked.items() if _is_page(resident, address)] == []
    assert [address for address, (path, _) in zip(addresses, shown, strict=True) if not path] == ["/nothing/here"]


def _routes() -> list[Route]:
    return [route for target in ROUTES for route in cast("list[Route]", import_target(target))]


def _matched(address: str) -> tuple[str, Mapping[str, Any]]:
    """The route of an address, and the values that stand in its path."""
    path = re.split("[?#]", address)[0]
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": []}
    for route in _routes():
        match, found = route.matches(scope)
        if match is Match.FULL:
            return route.path, {name: str(value) for name, value in found["path_params"].items()}
    return "", {}


def _is_page(someone: Visitor, address: str) -> bool:
    """Whether the address is that of a page, not of a part of one, of a file, of a stream, or of another address."""
    cookies = {str(each.get("name")): str(each.get("value")) for each in someone.page.context.cookies()}
    with httpx.stream("GET", someone.desk.address + address, cookies=cookies, timeout=60) as answer:
        assert answer.status_code < 400, address
        is_shown = (
            "content-disposition" not in answer.headers and answer.headers.get("content-type", "")[:9] == "text/html"
        )
        return answer.status_code == 200 and is_shown and b"<main" in answer.read()


def _at(places: Mapping[str, str], address: str) -> str:
    return re.sub(r"\{(.+?)\}", lambda found: places[found[1]], address)


def _go(someone: Visitor, places: Mapping[str, str], address: str) -> None:
    someone.wear("desktop", "light")
    someone.goto(_at(places, address))


def check(someone: Visitor, name: str) -> None:
    """Look at the page with every screen, and at what can be unfolded on it."""
    page = someone.page
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(page.locator("[hx-trigger=load]")).to_have_count(0)  # what a page fetches is there, such as an effect
    faults: list[Any] = []
    wider: list[Any] = []
    for size, scheme, rules in LOOKS:
        someone.wear(size, scheme)
        faults += [[size, scheme, *fault] for fault in page.evaluate(FAULTS, rules)]
        wider += [[size, scheme, box] for box in page.evaluate(WIDER)]
        someone.shoot(f"{name}-{size}-{scheme}")
    faults += [["unfolded", scheme, *fault] for fault in page.evaluate(UNFOLDED, ALL_RULES)]
    wider += [["unfolded", size, box] for box in page.evaluate(WIDER)]
    tiny = page.evaluate(TINY, LEAST_TEXT_PX)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        wider += [[width, box] for box in page.evaluate(WIDER)]
    ambiguous = page.evaluate(AMBIGUOUS)
    assert faults == []
    assert wider == []
    assert tiny == []
    assert ambiguous == []  # a key has one meaning on a page


def test_between_day_and_night_only_colours_change() -> None:
    """So that both need not be looked at for what has nothing to do with colours."""
    style = (paths.shipped("static") / "app.css").read_text("utf-8")

    assert re.search(r"--ink: light-dark\(", style)
    assert "prefers-color-scheme" not in style
    assert all(re.match(r"[^;{}]*\boklch\(", value) for value in re.findall(r"light-dark\(([^;]*);", style))
