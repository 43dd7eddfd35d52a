"""The table of runs in a browser: it is walked, sorted, filtered and compared by keys, and its heads stay in sight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect
from tests.e2e import engines

from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.model.run import ExperimentPart
from evaldesk.settings import Settings
from evaldesk.store import Store

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, RunningDesk, Visitor

pytestmark = pytest.mark.browser

AGENT = "def answer(message, state):\n    yield message\n\n\nroot_agent = answer\n"
N, N_CASES = 3, 40
FOCUS = """() => {
  const cell = document.activeElement.closest("td, th");
  return cell && `${cell.parentElement.cells[0].textContent} ${cell.cellIndex}`;
}"""


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """Three runs of forty cases: the first passes all, the second fails the first case, the third every other one."""
    return _furnish


def _furnish(workspace: Path) -> tuple[str, ...]:
    (workspace / "agents" / "parrot").mkdir(parents=True)
    (workspace / "agents" / "parrot" / "agent.py").write_text(AGENT, "utf-8")
    settings = Settings(workspace=workspace, roots=(workspace / "agents",))
    settings.state_folder.mkdir()
    cases = [Case(f"case_{at:02}", (Turn("hi"),)) for at in range(N_CASES)]
    with Store.open(settings.database) as store:
        for fails in (lambda case: False, lambda case: case == 0, lambda case: case % 2):
            run_id = store.runs.create(RunConfig(AgentRef("parrot", "parrot"), "trips", n=N), cases)
            store.runs.record(
                [
                    TrialResult(run_id, case, at, "finished", "failed" if fails(case) else "passed")
                    for case in range(N_CASES)
                    for at in range(N)
                ]
            )
            store.runs.set_status(run_id, "finished")
        variants = tuple(Variant(name, {"temperature": at}) for at, name in enumerate(("cold", "warm", "hot")))
        number = store.experiments.begin(ExperimentPlan("weather", variants, seed=7, concurrency=1), [])
        for at, variant in enumerate(variants):
            part = ExperimentPart(number, at, variant.name)
            run_id = store.runs.create(RunConfig(AgentRef("parrot", "parrot"), "trips", n=N, experiment=part), cases)
            store.runs.record(
                [
                    TrialResult(run_id, case, n, "finished", "passed", duration_ms=1_000.0 * (case + 1))
                    for case in range(N_CASES)
                    for n in range(N)
                ]
            )
            store.runs.set_status(run_id, "finished")
    return ("agents",)


def focus(page: Page) -> str:
    """The case and the column of the focused cell."""
    return str(page.evaluate(FOCUS))


def wait_for_focus(page: Page, cell: str) -> None:
    """Until a cell has the focus, also on the page to which keys led."""
    page.wait_for_function(f"cell => ({FOCUS})() === cell", arg=cell)


def test_the_table_is_walked_sorted_and_compared_by_keys(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/table?runs=1,2,3&sort=file")
    page.keyboard.press("j")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    wait_for_focus(page, "case_01 3")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    wait_for_focus(page, "case_00 2")

    page.keyboard.press("<")
    page.wait_for_url("**sort=-worst*")
    page.wait_for_function("() => document.activeElement.closest('td')")
    page.keyboard.press(">")
    page.wait_for_url("**sort=worst%402")
    page.wait_for_function("() => document.activeElement.closest('td')")
    assert focus(page) == "case_00 2"
    page.keyboard.press("s")
    page.wait_for_url("**/runs/1/cases/0/trials/0/pair?with=2.0.0")

    someone.goto("/table?runs=1,2,3&sort=file")
    page.keyboard.press("j")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("b")
    page.wait_for_url("**runs=2%2C1%2C3*")
    page.keyboard.press("d")
    page.wait_for_url("**disagree=1*")
    expect(page.locator("[data-grid] tbody tr")).to_have_count(21)

    page.keyboard.press("j")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url("**/cases/*/trials/*")


WALKS = {
    "cells": (
        ("j", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp"),
        "case_00 2",
        "",
    ),
    "a worst case first": (("j", "ArrowRight", "ArrowRight", "ArrowRight", ">"), "case_00 2", "sort=worst%402"),
    "a best case first": (("j", "ArrowRight", "ArrowRight", "<"), "", "sort=-worst%401"),
    "another first run": (("j", "ArrowRight", "ArrowRight", "ArrowRight", "b"), "", "runs=2%2C1%2C3"),
    "cases on which the runs disagree": (("d",), "", "disagree=1"),
    "a pair of trials": (
        ("j", "ArrowRight", "ArrowRight", "ArrowRight", "s"),
        "",
        "/runs/1/cases/0/trials/0/pair?with=2.0.0",
    ),
    "a trial": (("j", "ArrowRight", "ArrowRight", "Enter"), "", "/runs/1/cases/0/trials/0"),
}
"""Keys, the cell that has the focus after them, and a part of the address to which they lead."""


@pytest.fixture(scope="module", params=["firefox", "webkit"])
def window(
    request: pytest.FixtureRequest, desk: RunningDesk, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[engines.Window]:
    """A window of another engine on the same desk."""
    opened = {"firefox": engines.firefox, "webkit": engines.webkit}[request.param]
    with opened(tmp_path_factory.mktemp(request.param)) as window:
        window.goto(f"{desk.address}/?token={desk.token}")
        yield window


@pytest.mark.parametrize(("keys", "cell", "address"), WALKS.values(), ids=WALKS)
def test_the_table_is_walked_by_keys_in_other_engines(
    window: engines.Window, desk: RunningDesk, keys: tuple[str, ...], cell: str, address: str
) -> None:
    is_there = f"location.href.includes(arguments[0]) && (!arguments[1] || ({FOCUS})() === arguments[1])"
    for _ in range(3):  # a driver on a busy machine loses a key now and then
        window.goto(f"{desk.address}/table?runs=1,2,3&sort=file")
        for key in keys:
            window.type(":focus" if window.ask("document.activeElement !== document.body") else "body", key)
        if window.becomes(is_there, address, cell, seconds=engines.TIMEOUT_S / 4):
            return

    pytest.fail(f"{keys} lead to {window.address} and {window.ask(f'({FOCUS})()')}")


@pytest.mark.parametrize(("keys", "cell", "address"), WALKS.values(), ids=WALKS)
def test_the_table_is_walked_by_keys(someone: Visitor, keys: tuple[str, ...], cell: str, address: str) -> None:
    someone.goto("/table?runs=1,2,3&sort=file")

    for key in keys:
        someone.page.keyboard.press(key)

    someone.page.wait_for_function("part => location.href.includes(part)", arg=address)
    if cell:
        wait_for_focus(someone.page, cell)


def test_the_list_of_keys_of_a_table_has_those_of_its_cells_and_no_key_of_other_pages(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/table?runs=1,2,3&sort=file")
    page.keyboard.press("?")

    here = page.locator("[data-keys-here]")
    expect(here).to_contain_text("sort by the column")
    for words in ("make the column of the cell the baseline", "with the first cell of the row"):
        expect(here).to_contain_text(words)
    expect(here).not_to_contain_text("hunk of the patch")
    page.get_by_text("On other pages").click()
    expect(page.locator("#keys details")).to_contain_text("hunk of the patch")
    assert "sort by the column" not in page.locator("#keys details").inner_text()

    page.keyboard.press("Escape")
    someone.goto("/agents")
    page.keyboard.press("?")
    expect(here).not_to_contain_text("sort by the column")


HELD_TIMERS = """
const real = window.setTimeout, timers = [];
window.setTimeout = (call, ms, ...values) => (ms ? real(call, ms, ...values) : timers.push([call, values]));
window.letTimersRun = () => {
  window.setTimeout = real;
  for (const [call, values] of timers) call(...values);
};
"""


@pytest.mark.parametrize(
    ("keys", "address"),
    [
        (("j", "ArrowRight", "ArrowRight", "ArrowRight", "b"), "**runs=2%2C1%2C3*"),
        (("j", "ArrowRight", "ArrowRight", ">"), "**sort=worst%401*"),
        (("j", "ArrowRight", "ArrowRight", "ArrowDown", "Enter"), "**/runs/1/cases/1/trials/0"),
    ],
    ids=["the first run", "an order", "a trial"],
)
def test_keys_that_come_before_a_page_is_ready_keep_their_order(
    someone: Visitor, keys: tuple[str, ...], address: str
) -> None:
    page = someone.page
    page.add_init_script(HELD_TIMERS)
    someone.goto("/table?runs=1,2,3&sort=file")

    for key in keys:
        page.keyboard.press(key)
    page.evaluate("letTimersRun()")

    page.wait_for_url(address)


def test_what_is_typed_filters_the_table_and_stands_in_the_address(someone: Visitor) -> None:
    page = someone.page
    someone.goto("/table?runs=1,2,3")

    page.keyboard.press("/")
    page.keyboard.type("case_07")

    expect(page.locator("[data-grid] tbody tr")).to_have_count(1)
    page.wait_for_url("**q=case_07*")
    page.reload()
    expect(page.locator("[data-grid] tbody tr")).to_have_count(1)


def test_cells_follow_runs_that_play_and_the_focus_stays(someone: Visitor) -> None:
    page, runs = someone.page, []
    with Store.open(Settings(workspace=someone.desk.workspace, roots=()).database) as store:
        for _ in range(2):
            config = RunConfig(AgentRef("parrot", "parrot"), "trips", n=N)
            runs.append(store.runs.create(config, [Case(f"case_{at:02}", (Turn("hi"),)) for at in range(N_CASES)]))
            store.runs.set_status(runs[-1], "running")
        someone.goto(f"/table?runs={runs[0]},{runs[1]}&sort=file")
        for key in ("j", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        wait_for_focus(page, "case_01 2")  # the first key waits until the page is ready, and the others for it
        box = page.locator("#row-1").bounding_box()

        store.runs.record([TrialResult(runs[1], case, 0, "finished", "passed") for case in (1, 3)])

        expect(page.locator("#row-1 td:nth-child(3) .square[data-status=passed]")).to_have_count(1)
        expect(page.locator("#row-3 td:nth-child(3) .square[data-status=passed]")).to_have_count(1)
        assert focus(page) == "case_01 2"
        assert page.locator("#row-1").bounding_box() == box
        for run_id in runs:
            store.runs.set_status(run_id, "stopped")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert focus(page) == "case_01 2"


@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_columns_and_density_of_an_experiment_are_chosen_and_stay_in_the_address(someone: Visitor, width: int) -> None:
    page = someone.page
    page.set_viewport_size({"width": width, "height": 800})
    someone.goto("/experiments/1?sort=file")
    table, menu = page.locator("[data-grid]"), page.locator("summary", has_text="Columns")
    heads = table.locator("thead tr:last-child th")
    expect(heads).to_have_count(5)  # the case, its trials in three variants, and their spread
    height = page.locator("#row-1").bounding_box()["height"]  # type: ignore[index]

    menu.focus()
    page.keyboard.press("Enter")
    page.get_by_role("checkbox", name="Tight rows").click()
    page.wait_for_url("**density=tight*")
    expect(table).to_have_attribute("data-density", "tight")
    assert page.locator("#row-1").bounding_box()["height"] < height  # type: ignore[index]

    menu.click()
    page.get_by_role("checkbox", name="Time").click()
    page.wait_for_url("**columns=*time*")
    expect(heads).to_have_count(8)
    expect(table).to_have_attribute("data-density", "tight")
    page.reload()
    expect(heads).to_have_count(8)

    heads.filter(has_text="Time").nth(1).get_by_role("link").click()
    page.wait_for_url("**sort=slow*")
    expect(page.locator("[data-rows] tr").first).to_contain_text(f"case_{N_CASES - 1:02}")
    expect(heads).to_have_count(8)
    menu.click()
    expect(page.get_by_role("checkbox", name="Time")).to_have_attribute("aria-checked", "true")
    page.get_by_role("checkbox", name="Time").click()
    expect(heads).to_have_count(5)
    assert "density=tight" in page.url
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_heads_and_the_left_column_stay_in_sight(someone: Visitor) -> None:
    page = someone.page
    page.set_viewport_size({"width": 700, "height": 600})
    someone.goto("/table?runs=1,2,3&sort=file&columns=trials,rate,time")
    box = page.locator("[data-frozen]")

    box.evaluate("(element) => element.scrollTo(300, 400)")

    region = box.bounding_box()
    head, name = page.locator("[data-grid] thead").bounding_box(), page.locator("#row-20 th").bounding_box()
    assert region
    assert head
    assert name
    assert abs(head["y"] - region["y"]) < 2
    assert abs(name["x"] - region["x"]) < 2
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 700
