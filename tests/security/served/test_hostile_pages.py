"""A real browser at a desk where everybody says the worst."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, Request

pytestmark = pytest.mark.browser

WATCH = """
window.__faults = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.__faults.push(`${event.violatedDirective} ${event.blockedURI}`));
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => window.__faults.push(name);
"""
FOREIGN = """
() => [...document.querySelectorAll("*")].filter((element) => {
  const names = element.getAttributeNames();
  const steers = names.some((name) => /^(data-)?hx-(?!swap-oob)/.test(name));
  return names.some((name) => /^on/.test(name)) || (steers && !element.hasAttribute("hx-nonce"));
}).map((element) => element.outerHTML.slice(0, 200))
"""


def test_no_page_runs_or_loads_what_was_said_in_it(
    browser: Browser, serve: Callable[..., Any], payloads: tuple[str, ...]
) -> None:
    served = serve(*payloads)
    complaints: list[str] = []
    page = watched(browser, served, complaints)
    page.goto(f"{served.address}/?token={served.fort.token}")

    for address in served.fort.pages():
        page.goto(served.address + address)
        page.wait_for_load_state("load")
        if not page.evaluate("document.activeElement.matches('input, textarea, select')"):
            page.keyboard.press("j")
        page.wait_for_timeout(150)  # what htmx would do on its own, it does within a moment
        complaints += [f"{address}: {fault}" for fault in page.evaluate("window.__faults")]
        complaints += [f"{address}: foreign {element}" for element in page.evaluate(FOREIGN)]

    assert complaints == []


def test_an_answer_that_streams_in_runs_nothing(
    browser: Browser, serve: Callable[..., Any], payloads: tuple[str, ...]
) -> None:
    served = serve(*payloads)
    complaints: list[str] = []
    page = watched(browser, served, complaints)
    page.goto(f"{served.address}/?token={served.fort.token}")
    page.goto(f"{served.address}/sessions/{served.fort.session}")
    n_turns = len(served.fort.desk.sessions.get(served.fort.session).turns)

    page.locator("[data-enter]").fill(payloads[0])
    page.locator("[data-enter]").press("Enter")
    page.wait_for_selector(f"#turn-{n_turns + 1}", state="attached", timeout=120_000)
    page.wait_for_timeout(300)

    complaints += page.evaluate("window.__faults")
    complaints += page.evaluate(FOREIGN)
    assert complaints == []
    assert page.locator("#main b:text-is('gone')").count() == 0


def test_without_the_nonce_htmx_does_nothing(browser: Browser, serve: Callable[..., Any]) -> None:
    """The second lock: were an element to slip in, it would be dead, and so would be a script."""
    served = serve()
    page = watched(browser, served, [])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{served.address}/?token={served.fort.token}")
    page.goto(f"{served.address}/runs")
    asked.clear()

    refused = page.evaluate(
        """async () => {
          const div = document.createElement("div");
          div.setAttribute("hx-get", "/evalsets");
          div.setAttribute("hx-trigger", "load");
          document.body.append(div);
          window.htmx.process(div);
          div.click();
          let refused = 0;
          try { div.innerHTML = "<b>x</b>"; } catch { refused += 1; }
          const script = document.createElement("script");
          try { script.text = "window.__ran = 1"; document.body.append(script); } catch { refused += 1; }
          await new Promise((done) => setTimeout(done, 300));
          return [refused, window.__ran === undefined];
        }"""
    )

    assert refused == [2, True]
    assert [address for address in asked if "/static/" not in address] == []


def watched(browser: Browser, served: Any, complaints: list[str]) -> Page:
    """A page that complains of dialogs, of errors, and of requests to anywhere else."""
    context = browser.new_context()
    context.set_default_timeout(120_000)
    context.add_init_script(WATCH)
    page = context.new_page()

    def on_dialog(dialog: Dialog) -> None:
        complaints.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def on_request(request: Request) -> None:
        if not request.url.startswith((served.address, "data:image/")):
            complaints.append(f"request to {request.url}")

    page.on("dialog", on_dialog)
    page.on("pageerror", lambda error: complaints.append(f"script: {error}"))
    page.on("request", on_request)
    return page
