"""What a person waits for in Chromium on the main pages: largest paint, and the longest task that holds the page."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure_pages import TOKEN, large_set, served
from bench.row import Row, rounded
from bench.seed import seed

if TYPE_CHECKING:
    from playwright.sync_api import Page

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
OBSERVED = """
window.tasks = [0];
window.paint = 0;
new PerformanceObserver((list) => list.getEntries().forEach((each) => tasks.push(each.duration)))
  .observe({type: "longtask", buffered: true});
new PerformanceObserver((list) => list.getEntries().forEach((each) => (paint = each.startTime)))
  .observe({type: "largest-contentful-paint", buffered: true});
"""
IDLE_MS = 1500
N_LOOKS = 3


def measure(folder: Path) -> Iterator[Row]:
    """The middle of three looks at each page, warm as for a person who works with the desk."""
    program = os.environ.get("EVALDESK_CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        print("  there is no Chromium here", file=sys.stderr)
        return
    from playwright.sync_api import sync_playwright

    workspace = folder / "looked-at"
    (workspace / ".evaldesk").mkdir(parents=True)
    first, second = (seed(workspace / ".evaldesk" / "evaldesk.db", 1000, 5, 0, luck=luck) for luck in (1, 2))
    (workspace / "large.evalset.json").write_text(json.dumps(large_set(200)))
    with served(workspace) as desk, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.add_init_script(OBSERVED)
        page, home = context.new_page(), f"http://{desk.host}:{desk.port}"
        page.goto(f"{home}/?token={TOKEN}")
        for what, path in _pages(first, second):
            looks = sorted(_look(page, home + path) for _ in range(N_LOOKS))
            task, paint = looks[N_LOOKS // 2]
            yield Row(f"Chromium, {what}: longest task", rounded(task), "ms", 50)
            yield Row(f"Chromium, {what}: largest contentful paint", rounded(paint), "ms")
        browser.close()


def _pages(first: int, second: int) -> tuple[tuple[str, str], ...]:
    return (
        ("home", "/"),
        ("runs list", "/runs"),
        ("run page", f"/runs/{first}"),
        ("trial page", f"/runs/{first}/cases/3/trials/2"),
        ("comparison", f"/compare?a={first}&b={second}"),
        ("failures", f"/failures?run={first}"),
        ("labels", f"/labels?run={first}"),
        ("run form", "/runs/new"),
        ("eval sets", "/evalsets"),
        ("agents", "/agents"),
    )


def _look(page: Page, address: str) -> tuple[float, float]:
    """Milliseconds of the longest task, 0 where none took 50, and until the largest paint."""
    page.goto(address)
    page.wait_for_timeout(IDLE_MS)
    found: Any = page.evaluate("[Math.max(...tasks), paint]")
    return float(found[0]), float(found[1])
