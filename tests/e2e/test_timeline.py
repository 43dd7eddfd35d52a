"""The time line of a played trial in a browser: opened, walked and left by keys, and read without scripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Visit, Visitor

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def trial(resident: Visitor) -> str:
    """A trial of the sample, in which a model calls a tool and answers."""
    run = resident.run("hello_world", resident.evalset("hello_world"), {"tool_trajectory_avg_score": "1"}, n="1")
    resident.goto(run)
    expect(resident.page.get_by_role("button", name="Stop…")).to_have_count(0)
    return f"{run}/cases/1/trials/0"


def test_a_trial_leads_to_its_prompts_and_back_by_keys_alone(trial: str, someone: Visitor) -> None:
    page = someone.page
    someone.goto(trial)

    page.keyboard.press("t")
    page.wait_for_url("**/timeline")
    prompt = page.get_by_label("Prompt that was sent")
    expect(prompt).to_contain_text("a die with 16 sides")
    expect(page.get_by_label("Answer", exact=True)).to_contain_text("roll_die")
    tool = page.locator("tr", has=page.locator("code"))
    while page.locator("[data-current] code").count() == 0:
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/timeline?span=*")
    expect(page.locator("#span h2")).to_have_text("roll_die")
    expect(tool.locator("[aria-current]")).to_be_visible()
    page.keyboard.press("t")
    page.wait_for_url(re.compile(r"/trials/0#turn-1-event-\d+$"))


def test_without_scripts_every_span_and_every_part_of_a_call_is_a_link(trial: str, visit: Visit) -> None:
    someone = visit(has_scripts=False)
    page = someone.page
    someone.goto(f"{trial}/timeline")
    calls = page.locator("tr[data-depth='1'] a").filter(has_text="demo/")

    calls.last.click()
    expect(page.locator("#span")).to_contain_text("of an earlier call folded")
    page.get_by_role("link", name=re.compile("^Tools")).click()
    expect(page.get_by_label("Tools", exact=True)).to_contain_text("roll_die")
    page.get_by_role("link", name="Raw", exact=True).click()
    expect(page.get_by_label("Part of the value")).to_contain_text('"messages"')


def test_on_a_phone_tokens_stand_under_the_name_and_nothing_is_cut(trial: str, visit: Visit) -> None:
    someone = visit("phone")
    page = someone.page
    someone.goto(f"{trial}/timeline")

    expect(page.locator("[data-brief]").first).to_be_visible()
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
