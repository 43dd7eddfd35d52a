"""What every test may use."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

# No test is timed, and none is chance: the machines that run them are shared, and each plays the same examples.
settings.register_profile("evaldesk", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evaldesk")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-gpu-compositing",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--js-flags=--no-lazy-feedback-allocation",  # a page is looked at once: what warms up slowly stays cold
]
# The files that take longest begin, so that all workers of pytest-xdist end at about the same time.
LONGEST = (
    "test_every_page.py",
    "test_journey.py",
    "test_fuzz.py",
    "test_hostile_agents.py",
    "test_long_run.py",
    "test_crashes.py",
    "test_hostile_text.py",
    "test_eval_command.py",
    "test_evalset_files.py",
    "test_servers.py",
    "test_hostile_pages.py",
    "test_browser_chooses_ids.py",
    "test_readme_commands.py",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes under test, also where a shell started the tests in its background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a test that waits for a process or a page leaves its core to another."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests (`pytest.mark.anyio`) run on asyncio only, as the product does."""
    return "asyncio"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real files and known answers beside the checkout; skips where it is not."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared beside this checkout")
    return SHARED


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium, gone with its module: while Playwright runs, no test may have a loop in this thread."""
    from playwright.sync_api import sync_playwright

    executable = _chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


def _chromium() -> str:
    found = os.environ.get("EVALDESK_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    reason = "no Chromium on this machine; run `make browser`"
    if os.environ.get("EVALDESK_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)
