"""The prompt bench in a browser: a draft is typed, compared, talked with, run against the original, and kept."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Route, expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser

AGENT = """def root_agent(message, instruction="Say no."):
    return "yes" if "yes" in instruction else "no"
"""
DRAFT = "Say yes.\nAlways."
N_CASES, OWN_TRIALS = 11, 3


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """An agent that answers as its instruction says, and cases that want a yes; one has trials of its own."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    folder = workspace / "agents" / "sayer"
    folder.mkdir(parents=True)
    (folder / "agent.py").write_text(AGENT, "utf-8")
    cases = [
        {
            "eval_id": f"case_{at:02}",
            "conversation": [
                {"user_content": {"parts": [{"text": "Well?"}]}, "final_response": {"parts": [{"text": "yes"}]}}
            ],
        }
        for at in range(N_CASES)
    ]
    cases[0]["trials"] = OWN_TRIALS  # type: ignore[assignment]
    (folder / "answers.evalset.json").write_text(json.dumps({"eval_set_id": "answers", "eval_cases": cases}), "utf-8")
    return ("agents",)


def digests(folder: Path) -> dict[str, str]:
    """The digests of the files below a folder, without those that Python compiled."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_an_edit_that_a_newer_one_replaces_is_no_failure(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/bench?agent=sayer")
    editor = page.get_by_label(re.compile("Instruction of .*, draft"))
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/bench", hold)
    with page.expect_request("**/bench"):
        editor.fill("Say yes.")

    editor.fill("Say yes, always.")

    expect(page.locator("#draft tr[data-op='+']")).to_contain_text("Say yes, always.")
    expect(page.locator("#toasts")).to_be_empty()
    for each in held:
        each.abort()


def test_a_draft_is_typed_talked_with_run_against_the_original_and_kept(anyone: Visitor) -> None:
    page, workspace = anyone.page, anyone.desk.workspace
    name = f"sure_{page.viewport_size['width']}" if page.viewport_size else "sure"
    before = digests(workspace / "agents")
    anyone.goto("/bench?agent=sayer")
    editor = page.get_by_label(re.compile("Instruction of .*, draft"))
    expect(editor).to_have_value("Say no.")
    expect(page.locator("#draft")).to_contain_text("The draft is the original.")

    editor.click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(DRAFT)
    expect(page.locator("#draft")).to_contain_text("+2 −1")
    expect(page.locator("#draft tr[data-op='+']")).to_have_count(2)
    expect(page.locator("#bench-plan")).to_contain_text(re.compile(r"11 cases × \d+ show"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    if page.locator("nav.tabs").is_visible():
        page.locator("nav.tabs").get_by_role("link", name="Chat").click()
    page.locator("#message").fill("Well?")
    page.get_by_role("button", name="Send").click()
    expect(page).to_have_url(re.compile("/bench\\?session="))
    expect(page.locator("#conversation")).to_contain_text("yes")
    expect(page.locator("#conversation")).to_contain_text("draft")

    if page.locator("nav.tabs").is_visible():
        page.locator("nav.tabs").get_by_role("link", name="Prompt").click()
    expect(editor).to_have_value(DRAFT)
    page.locator("#bench-name").fill(name)
    page.locator("#bench-n").fill("2")
    page.locator("#bench-n").press("Tab")
    expect(page.locator("#bench-plan")).to_contain_text("11 cases × 2 show")
    page.get_by_role("button", name=re.compile("Run against the original")).click()
    expect(page.locator("[data-toast]").first).to_contain_text("played against the original")
    if page.locator("nav.tabs").is_visible():
        page.locator("nav.tabs").get_by_role("link", name="Tried").click()
    row = page.locator("#tried [data-row]").first
    expect(row).to_contain_text(name)
    expect(row).to_contain_text("better")
    experiment = row.get_by_role("link", name=re.compile("experiment")).get_attribute("href")
    shown = page.request.get(f"{anyone.desk.address}{experiment}").text()
    assert shown.count(f"{2 * (N_CASES - 1) + OWN_TRIALS}") >= 2  # of both variants

    if page.locator("nav.tabs").is_visible():
        page.locator("nav.tabs").get_by_role("link", name="Prompt").click()
    page.get_by_role("button", name=re.compile("Save as file")).click()
    kept = workspace / "prompts" / f"{name}.md"
    expect(page.locator("[data-toast]").first).to_contain_text(f"prompts/{name}.md")
    assert kept.read_text("utf-8") == DRAFT
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[data-toast]").first).to_contain_text("is undone")
    assert not kept.exists()
    assert digests(workspace / "agents") == before
