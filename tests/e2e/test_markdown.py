"""Markdown in a browser: it requests nothing, and a key shows the text as it was written, from then on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect
from tests.e2e.many_kinds import RENDERED, furnish

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """The agents of every kind, and a case that expects nothing."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    folders = furnish(workspace)
    turn = {"user_content": {"role": "user", "parts": [{"text": RENDERED}]}}
    cases = [{"eval_id": "flights", "conversation": [turn]}]
    path = workspace / "evalsets" / "flights.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "flights", "eval_cases": cases}), "utf-8")
    return folders


def test_marked_text_is_marked_in_the_rendered_and_the_raw_text_and_leads_to_its_finding(someone: Visitor) -> None:
    page = someone.page
    run = someone.run("moody", someone.evalset("flights"), {"response_match_score": "0"}, n="1")
    someone.goto(run)
    expect(page.get_by_role("button", name="Stop…")).to_have_count(0)
    trial = f"{run}/cases/0/trials/0"
    said = urlencode({"labeller": "Ana", "new-mode": "dear", "place": "0", "quote": "The second is cheaper"})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    page.context.request.post(f"{someone.desk.address}{trial}/findings", data=said, headers=form)
    someone.goto(trial)

    shown, written = page.locator("article.message .prose mark"), page.locator("article.message .raw mark")
    expect(shown.first).to_have_accessible_name("Finding: The **second** is *cheaper")
    assert "".join(shown.all_inner_texts()) == "The second is cheaper"
    shown.first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#findings a.marked")).to_be_focused()
    page.keyboard.press("v")
    page.locator("#findings a.marked").click()
    expect(written.first).to_be_focused()
    expect(written.first).to_have_text("The **second** is *cheaper")


def test_the_raw_text_is_one_key_away_in_chat_and_trial_and_the_choice_is_kept(someone: Visitor) -> None:
    page = someone.page
    run = someone.run("moody", someone.evalset("flights"), {"response_match_score": "0"}, n="1")
    someone.goto(run)
    expect(page.get_by_role("button", name="Stop…")).to_have_count(0)
    someone.goto(f"{run}/cases/0/trials/0")
    answer, written = page.locator("article.message .prose"), page.locator("article.message .raw")

    expect(answer.get_by_role("cell", name="FR 2052")).to_be_visible()
    expect(answer.get_by_role("link", name="the fares")).to_have_attribute("rel", "noopener noreferrer")
    expect(answer.locator("img")).to_have_count(0)
    expect(written).to_be_hidden()
    page.keyboard.press("v")
    expect(answer).to_be_hidden()
    expect(written).to_contain_text("The **second** is *cheaper*")
    page.reload()
    expect(written).to_be_visible()

    someone.goto(someone.chat("moody", "{}", RENDERED))
    expect(page.get_by_role("button", name="Raw text")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("article.message .raw").last).to_contain_text("1. TP 1944 with `code share`")
    page.get_by_role("button", name="Raw text").click()
    expect(page.locator("article.message .prose").last.get_by_role("listitem").first).to_contain_text("code share")
