"""Names without a space, and many trials of one case: no page gets wider, and no head covers what it is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from tests.e2e.many_kinds import MOODY, RAISES
from tests.e2e.test_every_page import WIDER

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser

LONG = "a_name_that_somebody_wrote_as_one_word_" * 4
AGENT = "an_agent_for_northern_europe_and_the_islands_west_of_it"
CASES = {LONG: RAISES, "roll_20_and_check": "Roll."}
WIDTHS = (1440, 1100, 840)  # below, rows are blocks and the head is one column
HEAD = """[document.querySelector(".pagehead").clientHeight, document.querySelector("h1").clientWidth]"""


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """An agent and an eval set with long names."""

    def furnish(workspace: Path) -> tuple[str, ...]:
        agent, sets = workspace / "agents" / AGENT, workspace / "sets"
        agent.mkdir(parents=True)
        (agent / "agent.py").write_text(MOODY, "utf-8")
        sets.mkdir()
        cases = [
            {"eval_id": name, "conversation": [{"user_content": {"parts": [{"text": text}]}}]}
            for name, text in CASES.items()
        ]
        for name in (LONG, "short"):
            (sets / f"{name}.evalset.json").write_text(json.dumps({"eval_set_id": name, "eval_cases": cases}), "utf-8")
        return "agents", "sets"

    return furnish


@pytest.fixture(scope="module")
def runs(resident: Visitor) -> Mapping[int, str]:
    """Runs by their number of trials."""
    calls = {"tool_trajectory_avg_score": "1"}
    runs = {n: resident.run(AGENT, resident.evalset("short"), calls, n=str(n)) for n in (2, 100)}
    for address in runs.values():
        resident.goto(address)
        expect(resident.page.get_by_role("button", name="Stop…")).to_have_count(0)
    return runs


@pytest.mark.parametrize("page", ["/", "/evalsets", "/runs", "run", "/agents", "/table?runs=1,2", "/gates"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_name_of_one_word_makes_no_page_wider(
    someone: Visitor, runs: Mapping[int, str], page: str, width: int
) -> None:
    someone.page.set_viewport_size({"width": width, "height": 900})

    someone.goto(runs[2] if page == "run" else page)

    assert someone.page.evaluate(WIDER) == []
    assert (
        someone.page.evaluate("[...document.querySelectorAll('.strip')].filter(at => at.clientWidth < 40).length") == 0
    )


@pytest.mark.parametrize("width", [*WIDTHS, 660])
def test_the_name_of_a_trial_stands_beside_its_buttons(someone: Visitor, runs: Mapping[int, str], width: int) -> None:
    someone.page.set_viewport_size({"width": width, "height": 900})

    someone.goto(f"{runs[2]}/cases/1/trials/0")
    height, title = someone.page.evaluate(HEAD)

    assert title >= 300
    assert height < 220


def test_the_head_of_a_hundred_trials_leaves_the_window_with_the_page(
    someone: Visitor, runs: Mapping[int, str]
) -> None:
    someone.page.set_viewport_size({"width": 1100, "height": 700})
    position = "getComputedStyle(document.querySelector('.pagehead')).position"

    someone.goto(f"{runs[2]}/cases/1/trials/0")
    few = someone.page.evaluate(position)
    someone.goto(f"{runs[100]}/cases/1/trials/0")

    assert [few, someone.page.evaluate(position)] == ["sticky", "static"]


def test_two_trials_side_by_side_have_as_much_room_for_their_squares(someone: Visitor, runs: Mapping[int, str]) -> None:
    someone.goto(f"{runs[100]}/cases/1/trials/0/pair")

    left, right = (each.bounding_box() for each in someone.page.locator(".pagehead .strip").all())

    assert left
    assert right
    assert left["y"] == right["y"]
    assert abs(left["width"] - right["width"]) < 60
