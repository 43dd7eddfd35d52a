"""A review queue in the browser: read by keyboard alone, as fast as keys come, and resumed after a kill."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, RunningDesk, Visit, Visitor

pytestmark = pytest.mark.browser

AGENT = "def root_agent(message, state):\n    return f'<b>You</b> said {message}'\n"
CASE = """{{"eval_id": "case_{at}", "conversation": [
{{"user_content": {{"role": "user", "parts": [{{"text": "{at}"}}]}},
"final_response": {{"role": "model", "parts": [{{"text": "nothing of the kind, {at}"}}]}}}}],
"session_input": {{"app_name": "echo", "user_id": "u", "state": {{}}}}}}"""
N = 10
LINE = re.compile(r'<a href="[^"]*">(case_\d, trial \d)</a> <span class="sub">run \d+</span></th>\n<td[^>]*>(.*?)</td>')
MARKED = re.compile(r'<a href="[^"]*">(case_\d, trial \d)[^<]*</a> <span class="muted">run ')


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """An agent that echoes, and ten cases that want something else."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "echo").mkdir(parents=True)
    (workspace / "agents" / "echo" / "agent.py").write_text(AGENT, "utf-8")
    cases = ",".join(CASE.format(at=at) for at in range(N))
    text = f'{{"eval_set_id": "wants", "eval_cases": [{cases}]}}'
    (workspace / "agents" / "wants.evalset.json").write_text(text, "utf-8")
    return ("agents",)


def _queue(someone: Visitor) -> str:
    """A queue of the failed trials of a new run."""
    run = someone.run("echo", someone.evalset("wants"), {"response_match_score": "0.9"}, cases="all", n="5")
    someone.goto(run)
    expect(someone.page.get_by_text("All 50 trials done.")).to_be_visible()
    expect(someone.page.get_by_role("link", name="Review… g")).to_be_visible()  # a moment later, when the run has ended
    someone.page.keyboard.press("g")
    someone.page.get_by_label("Your name").fill("jo")
    someone.page.get_by_label("At most of each kind").fill("50")
    someone.page.get_by_role("button", name="Start reading").click()
    expect(someone.page.get_by_role("heading", level=1)).to_contain_text("0 of 50 read")
    return re.sub(r"\?.*", "", someone.page.url).removeprefix(someone.desk.address)


def _n_read(someone: Visitor, queue: str) -> str:
    return str(someone.page.context.request.get(f"{someone.desk.address}{queue}/trials").text())


def _labels(someone: Visitor, queue: str) -> list[tuple[str, str]]:
    """Each trial of the queue in its order, and the verdict that its row shows."""
    rows = LINE.findall(_n_read(someone, queue))
    return [(trial, re.sub(r"<[^>]*>", "", cell).strip()) for trial, cell in rows]


def test_a_corrected_answer_is_typed_behind_its_key_and_labels_nothing(someone: Visitor) -> None:
    queue, page = _queue(someone), someone.page
    address = page.url

    page.keyboard.press("c")
    expect(page.locator("#answer-text")).to_be_focused()
    page.keyboard.type("2 of them are prime")

    expect(page.locator("#answer-text")).to_have_value("2 of them are prime")
    assert page.url == address
    assert {verdict for _, verdict in _labels(someone, queue)} == {"unread"}


def test_a_queue_of_50_is_read_by_keyboard_alone_at_10_ms_between_keys(someone: Visitor) -> None:
    queue, page = _queue(someone), someone.page
    before = _labels(someone, queue)

    for at in range(50):
        page.keyboard.press("123"[at % 3])
        page.wait_for_timeout(10)

    expect(page.get_by_role("heading", level=2, name="All 50 read: 17 fail, 17 pass, 16 unsure")).to_be_visible()
    text = _n_read(someone, queue)
    assert "50 of 50 read" in text
    assert text.count('>failed</span></td>\n<td data-label="metrics">') == 17
    given = [(trial, ("passed", "failed", "unsure")[at % 3]) for at, (trial, _) in enumerate(before)]
    assert len({trial for trial, _ in given}) == 50
    assert _labels(someone, queue) == given


KEYS_WHILE_IT_LOADS = """
const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const type = (keys) => [...keys].forEach(press);
document.addEventListener("readystatechange", () => type("12"), { once: true });
document.addEventListener("DOMContentLoaded", () => type("31"));
"""


def test_keys_while_the_page_loads_label_one_trial_each(someone: Visitor) -> None:
    queue, page = _queue(someone), someone.page
    before = _labels(someone, queue)

    page.add_init_script(KEYS_WHILE_IT_LOADS)
    someone.goto(queue)

    expect(page.get_by_role("heading", level=1)).to_contain_text("4 of 50 read")
    given = ("passed", "failed", "unsure", "passed")
    assert _labels(someone, queue)[:4] == [(trial, verdict) for (trial, _), verdict in zip(before, given, strict=False)]


def test_a_verdict_is_said_and_taken_back_by_key(someone: Visitor) -> None:
    _, page = _queue(someone), someone.page
    first = page.locator("#trial-title").inner_text()

    page.keyboard.press("2")

    expect(page.locator("#stored")).to_contain_text(f"Stored {first}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("1 of 50 read")
    page.keyboard.press("z")
    expect(page.get_by_role("heading", level=1)).to_contain_text("0 of 50 read")
    expect(page.locator("#trial-title")).to_have_text(first)
    expect(page.locator("#stored")).to_have_text("Undone verdict")


def test_notes_and_kinds_are_written_without_the_mouse(someone: Visitor) -> None:
    queue, page = _queue(someone), someone.page

    page.keyboard.press("m")
    page.keyboard.type("echoes 123")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="echoes 123 1")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("i")
    page.keyboard.type("says 2 much")
    page.keyboard.press("Escape")
    page.keyboard.press("2")

    expect(page.get_by_role("heading", level=1)).to_contain_text("1 of 50 read")
    assert "says 2 much" in _n_read(someone, queue)
    page.keyboard.press("h")
    expect(page.get_by_label("Note")).to_have_value("says 2 much")
    page.keyboard.press("l")
    page.keyboard.press("b")
    expect(page.get_by_text("Blind: off")).to_be_visible()


def test_keys_in_a_field_that_was_made_larger_break_no_policy_of_the_page(someone: Visitor) -> None:
    _, page = _queue(someone), someone.page
    page.evaluate("addEventListener('securitypolicyviolation', event => console.error(event.violatedDirective))")

    for key, n_read in (("1", 1), ("2", 2), ("z", 1), ("3", 2)):
        page.locator("#note").evaluate("note => (note.style.height = '99px')")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"{n_read} of 50 read")
    for key in "mihlb":
        page.locator("#note").evaluate("note => (note.style.height = '99px')")
        page.keyboard.press(key)
        page.keyboard.press("Escape")

    expect(page.get_by_text("Blind: off")).to_be_visible()
    assert someone.complaints == []


def test_a_killed_desk_loses_no_label_and_the_page_says_what_was_not_stored(
    someone: Visitor, desk: RunningDesk
) -> None:
    queue, page = _queue(someone), someone.page
    page.keyboard.press("2")
    expect(page.get_by_role("heading", level=1)).to_contain_text("1 of 50 read")

    desk.kill()
    page.keyboard.press("1")
    expect(page.get_by_text("The label was not stored")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("1 of 50 read")
    desk.start()
    page.goto(f"{desk.address}/?token={desk.token}")
    someone.goto(queue)

    expect(page.get_by_role("heading", level=1)).to_contain_text("1 of 50 read")
    page.keyboard.press("1")
    expect(page.get_by_role("heading", level=1)).to_contain_text("2 of 50 read")
    assert all("ERR_CONNECTION_RE" in each or "htmx:error" in each for each in someone.complaints)
    someone.complaints.clear()  # of a desk that did not answer; the browser may tell them late


def test_a_queue_is_read_on_a_phone_and_without_a_script(someone: Visitor, visit: Visit) -> None:
    queue = _queue(someone)
    plain = visit(has_scripts=False)
    plain.goto(f"{queue}?reader=sam")

    plain.page.get_by_role("button", name="Fail").click()

    expect(plain.page.get_by_role("heading", level=1)).to_contain_text("1 of 50 read")
    expect(plain.page.locator("#stored")).to_contain_text("Stored")
    someone.wear("phone", "light")
    someone.goto(queue)
    box = someone.page.get_by_role("group", name="Verdict", exact=True).bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 844


def test_the_whole_walk_by_keyboard_alone_at_10_ms_between_keys(someone: Visitor, desk: RunningDesk) -> None:
    """Fifty failed trials: verdicts, kinds, accepting, judging again. The last test, for it changes the eval set."""
    queue, page = _queue(someone), someone.page
    trials = [trial for trial, _ in _labels(someone, queue)]
    keyboard = page.keyboard

    for at in range(50):
        if at % 5 == 0:
            keyboard.press("m")
            keyboard.type(f"Walk {at % 2}, echoes 1 word", delay=10)
            keyboard.press("Enter")
            page.wait_for_timeout(10)
        keyboard.press("1" if at % 2 else "2")
        page.wait_for_timeout(10)

    expect(page.get_by_role("heading", level=2, name="All 50 read: 25 fail, 25 pass")).to_be_visible()
    expect(page.get_by_role("row", name="Walk 0, echoes 1 word 5")).to_be_visible()
    expect(page.get_by_role("row", name="Walk 1, echoes 1 word 5")).to_be_visible()
    assert _labels(someone, queue) == [(trial, ("failed", "passed")[at % 2]) for at, trial in enumerate(trials)]
    for which in (0, 1):
        kind = page.get_by_role("link", name=f"Walk {which}, echoes 1 word").get_attribute("href")
        shown = str(page.context.request.get(f"{someone.desk.address}{kind}").text())
        assert sorted(MARKED.findall(shown)) == sorted(trials[at] for at in range(0, 50, 5) if at % 2 == which)
    run = re.search(r"run=(\d+)", page.get_by_role("link", name="Next queue").get_attribute("href") or "")
    assert run
    assert _n_read(someone, queue).count('<span class="sub">run') == 50
    keyboard.press("a")
    expect(page.get_by_role("heading", name="Accept actual as expected")).to_be_visible()
    expect(page.get_by_text("No change is chosen.")).to_be_visible()
    expect(page.get_by_text("Eval set saved.")).to_have_count(0)
    n_cases = page.locator("[data-group]").count()
    for _ in range(n_cases):
        keyboard.press("j")
        page.wait_for_timeout(10)
        keyboard.press("o")
        page.wait_for_timeout(10)
    expect(page.locator("input[value^='as_well ']:checked")).to_have_count(n_cases)
    keyboard.press("z")
    expect(page.locator("input[value^='as_well ']:checked")).to_have_count(n_cases - 1)
    keyboard.press("6")
    expect(page.locator("input[value^='as_well ']:checked")).to_have_count(n_cases)
    expect(page.get_by_text("would pass instead of 0")).to_be_visible()
    keyboard.press("Control+s")

    expect(page.get_by_role("heading", name="The eval set is saved")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(n_cases)
    squares = page.locator("tbody .square")
    expect(squares).to_have_count(10 * n_cases)
    assert [squares.nth(at).get_attribute("data-status") for at in (0, 5)] == ["failed", "passed"]
    text = (desk.workspace / "agents" / "wants.evalset.json").read_text("utf-8")
    assert text.count("also_accepted") == n_cases
    assert text.count("nothing of the kind") == N
