"""A page on another port shares the cookies of this machine with the desk, and cannot keep a person out of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

WRONG = """
(name) => {
  for (let n = 0; n < 12; n++) document.cookie = `${name}=wrong; path=/${"runs/".repeat(n)}`;
  document.cookie = `${name}=wrong; path=/runs`;
}
"""
FLOOD = """
() => { for (let n = 0; n < 400; n++) document.cookie = `flood${n}=${"x".repeat(3000)}; path=/`; }
"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>Another program</title>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_port() -> Iterator[str]:
    """The address of a page on another port of the host of the desk."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def inside(browser: Browser, serve: Callable[..., Any]) -> Iterator[tuple[Page, Any]]:
    """A page of a person who is in, and the desk."""
    served = serve()
    context = browser.new_context()
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.goto(f"{served.address}/?token={served.fort.token}")
    yield page, served
    context.close()


def test_wrong_cookies_of_our_name_keep_nobody_out(inside: tuple[Page, Any], other_port: str) -> None:
    page, served = inside
    other = page.context.new_page()
    other.goto(other_port)

    other.evaluate(WRONG, f"evaldesk-{served.port}")

    assert len([cookie for cookie in page.context.cookies() if "evaldesk" in cookie.get("name", "")]) > 10
    for _ in range(3):
        assert _status(page, f"{served.address}/runs") == 200


def test_a_flood_of_cookies_neither_displaces_ours_nor_makes_the_head_too_large(
    inside: tuple[Page, Any], other_port: str
) -> None:
    page, served = inside
    other = page.context.new_page()
    other.goto(other_port)

    other.evaluate(FLOOD)

    until = time.monotonic() + 300
    while _n_bytes(page) <= 64 * 1024 and time.monotonic() < until:  # the browser takes them in one after the other
        time.sleep(0.05)
    assert _n_bytes(page) > 64 * 1024
    assert _status(page, f"{served.address}/runs") == 200


def _n_bytes(page: Page) -> int:
    return sum(len(cookie.get("value", "")) for cookie in page.context.cookies())


def _status(page: Page, address: str) -> int:
    answer = page.goto(address)
    return answer.status if answer else 0
