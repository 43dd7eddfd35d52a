"""What every test may use."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

# No test is timed: the machines that run them are shared.
settings.register_profile("evaldesk", deadline=None)
settings.load_profile("evaldesk")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LONGEST = "test_every_page.py"
NAMES = ("chromium", "chromium-browser", "google-chrome")
SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes under test, also where a shell started the tests in its background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Journeys come last: while Playwright runs, no other test may have an event loop of its own in this thread.

    The longest of them begins, so that two workers of pytest-xdist end at about the same time.
    """
    items.sort(key=lambda item: (_is_journey(item), item.path.name != LONGEST))


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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The one headless Chromium of a test run: Playwright cannot be started twice."""
    from playwright.sync_api import sync_playwright

    executable = _chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


def _is_journey(item: pytest.Item) -> bool:
    return item.get_closest_marker("browser") is not None


def _chromium() -> str:
    found = os.environ.get("EVALDESK_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    reason = "no Chromium on this machine; run `make browser`"
    if os.environ.get("EVALDESK_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)
