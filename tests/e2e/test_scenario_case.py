"""The form of a scenario case by the keyboard alone, in daylight and in the dark on a phone, and the command for CI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """A set without a case, which each test gives its own."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "evalsets").mkdir()
    (workspace / "evalsets/plans.evalset.json").write_text(json.dumps({"eval_set_id": "plans", "eval_cases": []}))
    return ("evalsets",)


def type_in(someone: Visitor, label: str, text: str) -> None:
    """Walk to a field by Tab and type."""
    field = someone.page.get_by_label(label, exact=True)
    for _ in range(80):
        if field.evaluate("element => element === document.activeElement"):
            break
        someone.page.keyboard.press("Tab")
    else:
        raise AssertionError(f"Tab never reaches {label!r}")
    someone.page.keyboard.type(text)


def test_a_scenario_is_written_by_the_keyboard_alone(anyone: Visitor) -> None:
    page = anyone.page
    name = f"refund_{page.viewport_size['width'] if page.viewport_size else 0}"
    anyone.goto(f"/evalsets/{anyone.evalset('plans')}/cases/new?kind=scenario")

    type_in(anyone, "First message", "Hello")
    type_in(anyone, "Persona", "NOVICE")
    type_in(anyone, "Goal", "A refund.")
    type_in(anyone, "Plan", "Ask twice.")
    type_in(anyone, "Most messages of the user", "many")
    type_in(anyone, "User model", "demo/dice?mistakes=0")
    type_in(anyone, "Id", name)
    page.keyboard.press("Enter")
    limit = page.get_by_label("Most messages of the user")
    expect(page.get_by_role("alert").filter(has_text="to correct")).to_contain_text("Enter a whole number")
    expect(page.get_by_label("Plan", exact=True)).to_have_value("Ask twice.")
    page.get_by_role("link", name="Most messages").press("Enter")
    limit.press("Control+a")
    page.keyboard.type("4")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    stored = json.loads((anyone.desk.workspace / "evalsets/plans.evalset.json").read_text())
    case = next(each for each in stored["eval_cases"] if each["eval_id"] == name)
    assert case["conversation_scenario"] == {
        "starting_prompt": "Hello",
        "conversation_plan": "Goal: A refund.\n\nAsk twice.",
        "user_persona": "NOVICE",
        "user_model": "demo/dice?mistakes=0",
        "max_turns": 4,
    }
    anyone.shoot(f"scenario-{name}")


def test_the_command_for_ci_is_copied(someone: Visitor) -> None:
    page = someone.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    someone.goto(f"/evalsets/{someone.evalset('plans')}/health")

    page.get_by_role("button", name="Copy for CI").press("Enter")

    expect(page.locator("#toasts")).to_contain_text("Copied.")
    command = page.get_by_label("Command for CI", exact=True).text_content()
    assert command
    assert page.evaluate("navigator.clipboard.readText()") == command
