"""The report of a run, or of two, in a browser: from a disk, without a network, with scripts and without."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect
from tests.bound_processes import bound_python
from tests.e2e.test_every_page import ALL_RULES, AXE, FAULTS, WIDER, WIDTHS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

HOSTILE = "</script></style><script>alert(1)</script><img src=x onerror=alert(1)>"
AGENT = f"""
def root_agent(message, state):
    return {HOSTILE!r} + message
"""


LONG = "a_case_named_without_any_place_to_break_it_" * 3


def said(text: str) -> dict[str, list[dict[str, str]]]:
    """A message of one part."""
    return {"parts": [{"text": text}]}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run of two cases, beside that of two runs; one case failed, and the agent spoke HTML.

    The ids of the cases are long words.
    """
    folder = tmp_path_factory.mktemp("reported")
    (folder / "agent.py").write_text(AGENT)
    turns = {"one": f"{HOSTILE}one", "two": "otherwise"}
    cases = [
        {"eval_id": f"{name}_{LONG}", "conversation": [{"user_content": said(name), "final_response": said(wanted)}]}
        for name, wanted in turns.items()
    ]
    (folder / "a.evalset.json").write_text(json.dumps({"eval_set_id": "a", "eval_cases": cases}))
    play = ["eval", "agent:root_agent", "a.evalset.json"]
    for words in (play, play, ["report", "1", "-o", "report.html"], ["report", "1..2", "-o", "comparison.html"]):
        done = subprocess.run(
            [*bound_python("-m", "evaldesk"), *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 1, 3), done.stderr
    return folder / "report.html"


@pytest.mark.parametrize("has_scripts", [True, False], ids=["with scripts", "without scripts"])
@pytest.mark.parametrize("name", ["report", "comparison"])
def test_it_opens_from_a_disk_without_a_network(report: Path, browser: Browser, name: str, has_scripts: bool) -> None:
    context = browser.new_context(java_script_enabled=has_scripts, offline=True)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))

    page.goto(report.with_stem(name).as_uri())
    page.locator("#cases tbody td a").first.click()

    if has_scripts:
        head = page.locator("#cases thead").get_by_role("button", name="Case")
        head.click()
        first = page.locator("#cases tbody th").all_inner_texts()
        head.click()
        assert page.locator("#cases tbody th").all_inner_texts() == first[::-1]
        assert first == sorted(first)
    else:
        page.locator("details[data-trial]:not([open]) summary").first.click()
    expect(page.locator("details[data-trial][open]").first).to_contain_text(HOSTILE)
    assert said == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "comparison"])
def test_it_fits_every_screen_and_has_no_fault(
    report: Path, browser: Browser, name: str, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(color_scheme=scheme, offline=True, bypass_csp=True)
    page = context.new_page()
    page.goto(report.with_stem(name).as_uri())
    page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
    page.evaluate(AXE)
    wider = []

    for width in (*WIDTHS, 390, 1440):
        page.set_viewport_size({"width": width, "height": 844})
        wider += [[width, box] for box in page.evaluate(WIDER)]
    faults = page.evaluate(FAULTS, ALL_RULES)
    page.set_viewport_size({"width": 390, "height": 844})

    assert faults + page.evaluate(FAULTS, ALL_RULES) == []
    assert wider == []
    context.close()
