"""Actual results become expectations in three engines: nothing is chosen by itself, and a change is taken back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from tests.e2e import engines

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, RunningDesk, Visit, Visitor

pytestmark = pytest.mark.browser

AGENT = "def root_agent(message, state):\n    return f'<b>You</b> said {message}'\n"
N_CHOSEN = "document.querySelectorAll('[data-choice]:checked:not([data-choice=x])').length"
IS_READY = "document.readyState === 'complete'"


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """An agent that echoes, and a set of two cases that want something else for each test."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "echo").mkdir(parents=True)
    (workspace / "agents" / "echo" / "agent.py").write_text(AGENT, "utf-8")
    for name in ("chromium", "phone", "fast", "firefox", "webkit"):
        cases = [_case(f"{name}_{at}") for at in range(2)]
        text = json.dumps({"eval_set_id": name, "eval_cases": cases})
        (workspace / "agents" / f"{name}.evalset.json").write_text(text, "utf-8")
    return ("agents",)


def _case(case_id: str) -> dict[str, Any]:
    turn = {
        "user_content": {"role": "user", "parts": [{"text": case_id}]},
        "final_response": {"role": "model", "parts": [{"text": f"nothing of the kind, {case_id}"}]},
    }
    return {"eval_id": case_id, "conversation": [turn], "session_input": {"app_name": "echo", "user_id": "u"}}


def references(desk: RunningDesk, name: str) -> list[str]:
    """The expected answers of the cases, as the file has them."""
    value = json.loads((desk.workspace / "agents" / f"{name}.evalset.json").read_text("utf-8"))
    return [case["conversation"][0]["final_response"]["parts"][0]["text"] for case in value["eval_cases"]]


def failed_run(someone: Visitor, name: str) -> str:
    run = someone.run("echo", someone.evalset(name), {"response_match_score": "0.9"}, cases="all", n="2")
    someone.goto(run)
    expect(someone.page.get_by_text("All 4 trials done.")).to_be_visible()
    expect(someone.page.get_by_role("link", name="Accept…")).to_be_visible()
    return run


@pytest.mark.parametrize(("device", "name"), [("desktop", "chromium"), ("phone", "phone")])
def test_one_answer_is_accepted_and_taken_back(visit: Visit, device: str, name: str) -> None:
    someone = visit(device)
    page, before = someone.page, references(someone.desk, name)
    run = failed_run(someone, name)
    someone.goto(f"{run}/acceptance")
    expect(page.get_by_text("No change is chosen.")).to_be_visible()
    assert page.evaluate(N_CHOSEN) == 0
    assert page.locator("[data-saves]").is_disabled()
    page.keyboard.press("Control+s")
    expect(page.get_by_role("heading", name="Accept actual as expected")).to_be_visible()

    first = page.locator("[data-group]").first
    first.locator("input[value^='replace ']").check()
    expect(page.get_by_text("2 of 2 would pass instead of 0")).to_be_visible()
    page.locator("[data-saves]").click()
    expect(page.get_by_role("heading", name="The eval set is saved")).to_be_visible()
    assert references(someone.desk, name) == [f"<b>You</b> said {name}_0", before[1]]

    page.get_by_role("button", name="Undo this change of expectations").click()
    expect(page.get_by_role("heading", name="The eval set is saved")).to_have_count(0)
    assert references(someone.desk, name) == before


def test_a_save_right_after_a_choice_saves_that_choice(visit: Visit) -> None:
    """The keys come before the effect does."""
    someone = visit("desktop")
    page, before = someone.page, references(someone.desk, "fast")
    run = failed_run(someone, "fast")
    page.route("**/acceptance/effect", lambda _: None)  # an effect that never comes
    someone.goto(f"{run}/acceptance")

    for key in ("j", "o", "z", "Control+s", "j", "r", "Control+s"):
        page.keyboard.press(key)

    expect(page.get_by_role("heading", name="The eval set is saved")).to_be_visible()
    after = references(someone.desk, "fast")
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


@pytest.fixture(scope="module", params=["firefox", "webkit"])
def other_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def window(other_name: str, desk: RunningDesk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[engines.Window]:
    opened: Any = getattr(engines, other_name)
    with opened(tmp_path_factory.mktemp(other_name)) as window:
        window.goto(f"{desk.address}/?token={desk.token}")
        yield window


def test_one_answer_is_accepted_and_taken_back_in_other_engines(
    window: engines.Window, desk: RunningDesk, other_name: str, resident: Visitor
) -> None:
    before = references(desk, other_name)
    run = failed_run(resident, other_name)
    window.resize(1440, 900)
    window.goto(f"{desk.address}{run}/acceptance")
    window.says("No change is chosen.")
    assert window.ask(N_CHOSEN) == 0

    window.click("[data-group] input[value^='replace ']")
    window.says("2 of 2 would pass instead of 0")
    window.click("[data-saves]")
    window.says("The eval set is saved", "h1")
    assert references(desk, other_name) == [f"<b>You</b> said {other_name}_0", before[1]]

    window.press("Undo this change of expectations")
    window.wait_for(f"!document.querySelector('h1').innerText.includes('is saved') && {IS_READY}")
    assert references(desk, other_name) == before
