"""The first steps on the home page, as a newcomer takes them: each leads on, and the last one is ticked by reading."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, RunningDesk, Visitor

pytestmark = pytest.mark.browser

AGENT = """
import time

from evaldesk import Event, ToolCall


def root_agent(message, state):
    call = ToolCall(f"clock_{time.time_ns()}", {})
    yield Event("tool_call", call=call)
    yield Event("tool_result", call=call, result="now")
    yield "It is now."
"""


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """An agent that never calls the same tool again: the form leaves its calls asserted."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "clock").mkdir(parents=True)
    (workspace / "agents" / "clock" / "agent.py").write_text(AGENT, "utf-8")
    return ("agents",)


def test_the_first_steps_lead_to_a_failure_and_are_gone_when_it_was_read(
    someone: Visitor, desk: RunningDesk, tmp_path: Path
) -> None:
    page = someone.page
    steps = page.get_by_role("region", name="First steps")

    someone.goto("/")
    steps.get_by_role("link", name="Chat with an agent").click()
    page.get_by_role("button", name="Start session").click()
    page.get_by_label("Message", exact=True).fill("What time is it?")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("link", name="Add current session")).to_be_visible()
    someone.goto("/")
    steps.get_by_role("link", name="Save it as a case").click()
    page.get_by_role("button", name="Add and run 5 times").click()
    expect(page.get_by_text("All 5 trials done.")).to_be_visible()
    someone.goto("/")
    expect(steps.locator("li[data-done]")).to_have_count(3)
    steps.get_by_role("link", name="Open a red square").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("trial")
    someone.goto("/")

    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    expect(steps).to_be_hidden()
    other = replace(desk, workspace=tmp_path, folders=_furnish(tmp_path), process=None)
    desk.kill()
    other.start()
    someone.goto("/")
    expect(steps.get_by_role("listitem")).to_have_count(4)
    expect(steps.locator("li[data-done]")).to_have_count(0)
    other.kill()
    desk.start()


def test_the_first_steps_can_be_hidden_for_good(someone: Visitor) -> None:
    page = someone.page
    steps = page.get_by_role("region", name="First steps")

    someone.goto("/")
    steps.get_by_role("button", name="Hide").click()
    expect(steps).to_be_hidden()
    someone.goto("/runs")
    someone.goto("/")

    expect(page.get_by_role("heading", name=re.compile("Latest runs"))).to_be_visible()
    expect(steps).to_be_hidden()
