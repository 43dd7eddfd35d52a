"""Proposals of a coding agent, read and answered in a browser: on their page by key, and at their object."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Visit, Visitor

pytestmark = pytest.mark.browser


def propose(someone: Visitor, name: str) -> None:
    words = ("propose", "kind", name, "--definition", "The sum is another one.", "--by", "Claude Code")
    command = [sys.executable, "-P", "-m", "evaldesk", *words, "--workspace", str(someone.desk.workspace)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize(("key", "field"), [("i", "#reply"), ("e", "#edited")])
def test_letters_after_the_key_that_opens_a_form_are_typed_into_it(visit: Visit, key: str, field: str) -> None:
    someone = visit("desktop")
    page = someone.page
    propose(someone, f"typed after {key}")
    someone.goto("/proposals")
    page.get_by_role("link", name=f"typed after {key}").first.click()
    address = page.url

    page.locator("main").focus()
    page.keyboard.press(key)
    expect(page.locator(field)).to_be_focused()
    page.keyboard.type("agreed")

    assert page.url == address
    expect(page.get_by_role("button", name="Accept", exact=False).first).to_be_visible()
    assert "agreed" in page.locator(field).input_value()
    page.get_by_role("button", name="Refuse").first.click()  # the desk is that of other tests too
    expect(page.get_by_text("Refused by").first).to_be_visible()


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_a_proposal_is_accepted_at_its_object_and_taken_back_by_key(
    visit: Visit, resident: Visitor, device: str
) -> None:
    someone = visit(device)
    page = someone.page
    run = resident.run("hello_world", resident.evalset("hello_world"), {"tool_trajectory_avg_score": "1"}, n="1")
    propose(someone, f"wrong sum on a {device}")
    someone.goto(f"/failures?run={run.rpartition('/')[2]}")

    page.locator("#proposals .waiting a").first.click()
    answer = page.locator("[data-proposal] form")
    answer.get_by_role("button", name="Accept").click()
    expect(page.locator("#proposals")).to_have_count(0)
    assert page.evaluate("location.pathname") == "/failures"

    someone.goto(answered_address(someone))
    expect(page.get_by_text("Accepted by ")).to_be_visible()
    page.keyboard.press("z")
    expect(page.locator("[data-key=q]")).to_be_visible()
    page.keyboard.press("q")
    expect(page.get_by_text("Refused by ")).to_be_visible()


def answered_address(someone: Visitor) -> str:
    """The page of the newest proposal."""
    command = [sys.executable, "-P", "-m", "evaldesk", "proposals", "list", "--status", "all", "--json"]
    command += ["--workspace", str(someone.desk.workspace)]
    result = subprocess.run(command, check=True, capture_output=True, timeout=300)
    return str(json.loads(result.stdout)["items"][0]["page"])
