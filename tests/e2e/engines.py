"""Firefox by Marionette and WebKit by WebDriver: the same commands of the W3C, sent in two ways.

Playwright brings browsers of its own for these engines; here they are Debian's, as people have them. Chromium takes the
same commands by Playwright, so that one test is played in all three.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

import httpx
import pytest
from playwright.sync_api import Browser, ElementHandle, Page
from playwright.sync_api import Error as PlaywrightError
from tests.bound_processes import bound_command

REQUIRED = "EVALDESK_REQUIRE_BROWSER"
TIMEOUT_S = 120.0
PREFERENCES: dict[str, object] = {
    "marionette.port": 0,
    "remote.prefs.recommended": True,
    "browser.dom.window.dump.enabled": True,
    "devtools.console.stdout.content": True,
    "ui.prefersReducedMotion": 0,
}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
SPECIAL = {
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}


class CommandError(Exception):
    """What a browser says of a command that it does not follow."""


class Wire(Protocol):
    """Sends a command of WebDriver and gives its answer."""

    def __call__(self, name: str, parameters: dict[str, Any], element: str = "") -> Any: ...


@dataclass
class Marionette:
    """Firefox's own protocol: each message is its length, a colon and JSON."""

    connection: socket.socket
    incoming: IO[bytes]
    n_sent: int = 0

    def __post_init__(self) -> None:
        self._read()  # the greeting
        self("NewSession", {"capabilities": {}})

    def __call__(self, name: str, parameters: dict[str, Any], element: str = "") -> Any:
        self.n_sent += 1
        said = json.dumps([0, self.n_sent, f"WebDriver:{name}", parameters | ({"id": element} if element else {})])
        self.connection.sendall(f"{len(said.encode())}:{said}".encode())
        _, _, error, answer = self._read()
        if error:
            raise CommandError(f"{error['error']}: {error['message']}")
        return answer["value"] if isinstance(answer, dict) and set(answer) == {"value"} else answer

    def _read(self) -> Any:
        length = b""
        while (byte := self.incoming.read(1)) != b":":
            assert byte, "Firefox has ended"
            length += byte
        return json.loads(self.incoming.read(int(length)))


HTTP = {
    "Navigate": ("POST", "/url"),
    "GetCurrentURL": ("GET", "/url"),
    "Back": ("POST", "/back"),
    "SetTimeouts": ("POST", "/timeouts"),
    "SetWindowRect": ("POST", "/window/rect"),
    "ExecuteScript": ("POST", "/execute/sync"),
    "FindElement": ("POST", "/element"),
    "ElementClick": ("POST", "/element/{element}/click"),
    "ElementClear": ("POST", "/element/{element}/clear"),
    "ElementSendKeys": ("POST", "/element/{element}/value"),
    "TakeScreenshot": ("GET", "/screenshot"),
}


@dataclass
class WebDriver:
    """The W3C's protocol over HTTP."""

    address: str
    capabilities: dict[str, Any]
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=2 * TIMEOUT_S, trust_env=False))
    session: str = ""

    def __post_init__(self) -> None:
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": self.capabilities}})
        self.session = f"/session/{answer['sessionId']}"

    def __call__(self, name: str, parameters: dict[str, Any], element: str = "") -> Any:
        method, path = HTTP[name]
        return self._ask(method, self.session + path.format(element=element), parameters)

    def end(self) -> None:
        """The browser ends with its session, not with the driver."""
        self._ask("DELETE", self.session, {})
        self.client.close()

    def _ask(self, method: str, path: str, body: dict[str, Any]) -> Any:
        answer = self.client.request(method, self.address + path, json=body if method == "POST" else None)
        value = answer.json()["value"]
        if answer.is_error:
            raise CommandError(f"{value['error']}: {value['message']}")
        return value


CLICK_MS = 5_000
"""How long Playwright waits for one click: whoever asked it asks once more, as after an error of WebDriver."""


@dataclass
class PlaywrightPage:
    """A page of Playwright that follows the commands of WebDriver; an element is named by its number."""

    page: Page
    elements: list[ElementHandle] = field(default_factory=list)

    def __call__(self, name: str, parameters: dict[str, Any], element: str = "") -> Any:
        try:
            return self._follow(name, parameters, self.elements[int(element)] if element else None)
        except PlaywrightError as error:
            raise CommandError(str(error)) from error

    def _follow(self, name: str, parameters: dict[str, Any], element: ElementHandle | None) -> Any:
        match name:
            case "Navigate":
                self.page.goto(parameters["url"])
            case "GetCurrentURL":
                return self.page.url
            case "Back":
                self.page.go_back()
            case "SetTimeouts":
                self.page.set_default_navigation_timeout(parameters["pageLoad"])
                self.page.set_default_timeout(parameters["implicit"])
            case "SetWindowRect":
                self.page.set_viewport_size({"width": parameters["width"], "height": parameters["height"]})
            case "ExecuteScript":
                script = f"(given) => (function () {{ {parameters['script']} }}).apply(null, given)"
                return self.page.evaluate(script, parameters["args"])
            case "FindElement":
                selector = f"xpath={parameters['value']}" if parameters["using"] == "xpath" else parameters["value"]
                handle = self.page.wait_for_selector(selector, state="attached")
                assert handle is not None
                self.elements.append(handle)
                return {ELEMENT: str(len(self.elements) - 1)}
            case "TakeScreenshot":
                return b64encode(self.page.screenshot()).decode()
        if element is not None:
            self._act(name, parameters, element)
        return None

    def _act(self, name: str, parameters: dict[str, Any], element: ElementHandle) -> None:
        match name:
            case "ElementClick":
                element.click(timeout=CLICK_MS)
            case "ElementClear":
                element.fill("", timeout=CLICK_MS)
            case "ElementSendKeys":
                if not element.evaluate("(element) => element === document.body"):
                    element.focus()
                names = {code: name for name, code in SPECIAL.items()}
                for key in parameters["text"]:
                    self.page.keyboard.press(names[key]) if key in names else self.page.keyboard.type(key)


@dataclass
class Window:
    """A window of such a browser, as a person uses it."""

    send: Wire
    log: Callable[[], str] = str
    """All that the browser has written of its console; WebKitGTK writes nothing of it."""

    def __post_init__(self) -> None:
        self.send("SetTimeouts", {"implicit": int(1000 * TIMEOUT_S), "pageLoad": int(1000 * TIMEOUT_S)})

    def goto(self, address: str) -> None:
        self.send("Navigate", {"url": address})

    def back(self) -> None:
        self.send("Back", {})

    @property
    def address(self) -> str:
        return str(self.send("GetCurrentURL", {}))

    def resize(self, width: int, height: int) -> None:
        self.send("SetWindowRect", {"width": width, "height": height})

    def ask(self, script: str, *arguments: object) -> Any:
        """The value of an expression of JavaScript in the page."""
        return self.send("ExecuteScript", {"script": f"return ({script})", "args": list(arguments)})

    def wait_for(self, script: str, *arguments: object) -> None:
        """Until an expression is true, also over pages that come and go."""
        is_true = self.becomes(script, *arguments, seconds=TIMEOUT_S)
        assert is_true, f"never true: {script} {arguments}\n{self.ask('document.body.innerText')}"

    def becomes(self, script: str, *arguments: object, seconds: float) -> bool:
        """Whether an expression becomes true within so many seconds."""
        end = time.monotonic() + seconds
        while not self._again(lambda: self.ask(script, *arguments)):
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        return True

    def says(self, text: str, where: str = "main") -> None:
        """Wait for a text that can be read in a part of the page."""
        self.wait_for("(document.querySelector(arguments[0])?.innerText ?? '').includes(arguments[1])", where, text)

    def find(self, place: str) -> str:
        """The element of a selector, or of an XPath that begins with `//`; the one that is there or comes."""
        using = "xpath" if place.startswith("//") else "css selector"
        found = self._again(lambda: self.send("FindElement", {"using": using, "value": place}))
        return str(found[ELEMENT])

    def press(self, name: str) -> None:
        """Click the link or button of that name."""
        self.click(f"//*[self::a or self::button][normalize-space()='{name}' and not(ancestor-or-self::*[@hidden])]")

    def click(self, place: str) -> None:
        self._act("ElementClick", place, {})

    def type(self, place: str, text: str) -> None:
        """Type into a field, or keys where the page listens; keys of a name are in `SPECIAL`."""
        self._act("ElementSendKeys", place, {"text": SPECIAL.get(text, text)})

    def press_until(self, place: str, key: str, script: str) -> None:
        """Press a key, and once more where it did not arrive: a driver on a busy machine loses one now and then."""
        for _ in range(3):
            self.type(place, key)
            if self.becomes(script, seconds=TIMEOUT_S / 4):
                return
        raise AssertionError(f"never true: {script}\n{self.ask('document.body.innerText')}")

    def fill(self, place: str, text: str) -> None:
        self._act("ElementClear", place, {})
        self.type(place, text)

    def shoot(self, file: Path) -> None:
        """Keep a picture of what the window shows."""
        file.write_bytes(b64decode(self.send("TakeScreenshot", {"full": False})))

    def _act(self, name: str, place: str, parameters: dict[str, Any]) -> None:
        self._again(lambda: self.send(name, parameters, self.find(place)))

    def _again(self, ask: Callable[[], Any]) -> Any:
        """What is refused because the page goes, or replaces what was found, is asked once more."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return ask()
            except CommandError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


@contextmanager
def opened(engine: str, browser: Browser, folder: Path) -> Iterator[Window]:
    """A window of `chromium`, in the browser of Playwright, or of `firefox` or `webkit`, with a new profile."""
    if engine == "chromium":
        context = browser.new_context()
        try:
            yield Window(PlaywrightPage(context.new_page()))
        finally:
            context.close()
        return
    with (firefox if engine == "firefox" else webkit)(folder) as window:
        yield window


@contextmanager
def firefox(folder: Path) -> Iterator[Window]:
    """Firefox without a screen, with a new profile."""
    program = _program("firefox-esr", "firefox")
    preferences = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items())
    (folder / "user.js").write_text("".join(preferences))
    command = [program, "--headless", "--marionette", "--no-remote", "--profile", str(folder)]
    with _running(command, folder, {"HOME": str(folder)}) as (process, log):
        place = folder / "MarionetteActivePort"
        _until(lambda: place.exists() and place.read_text().strip(), process, log)
        with (
            socket.create_connection(("127.0.0.1", int(place.read_text())), timeout=2 * TIMEOUT_S) as connection,
            connection.makefile("rb") as incoming,  # the socket is open for as long as its file is
        ):
            yield Window(Marionette(connection, incoming), log)


@contextmanager
def webkit(folder: Path) -> Iterator[Window]:
    """WebKitGTK's small browser, on a screen of Xvfb."""
    program, screen = _program("WebKitWebDriver"), _program("Xvfb")
    places = sorted(Path("/usr").glob("lib*/**/webkit2gtk-4.*/MiniBrowser"))
    browser = str(places[-1]) if places else _program("MiniBrowser")
    options = {"binary": browser, "args": ["--automation"]}
    with ExitStack() as stack:
        reading, writing = os.pipe()
        stack.callback(os.close, reading)
        command = [screen, "-displayfd", str(writing), "-nolisten", "tcp", "-screen", "0", "1600x1000x24"]
        _, log = stack.enter_context(_running(command, folder, {}, "screen", (writing,)))
        os.close(writing)
        assert select.select([reading], [], [], TIMEOUT_S)[0], log()
        variables = {"DISPLAY": f":{os.read(reading, 32).decode().strip()}", "HOME": str(folder), "NO_AT_BRIDGE": "1"}
        variables |= {"LIBGL_ALWAYS_SOFTWARE": "1", "GTK_USE_PORTAL": "0", "GDK_BACKEND": "x11"}
        address = stack.enter_context(_driver(program, folder, variables))
        window = WebDriver(address, {"webkitgtk:browserOptions": options})
        yield Window(window)
        window.end()


@contextmanager
def _driver(program: str, folder: Path, variables: dict[str, str]) -> Iterator[str]:
    """The driver on a free port; on another one where somebody took it meanwhile."""
    while True:
        with socket.socket() as seeker:
            seeker.bind(("127.0.0.1", 0))
            port = seeker.getsockname()[1]
        with _running([program, f"--port={port}", "--host=127.0.0.1"], folder, variables) as (process, log):
            address = f"http://127.0.0.1:{port}"
            if _until(partial(_answers, address), process, log, may_end=True):
                yield address
                return


def _answers(address: str) -> bool:
    try:
        return bool(httpx.get(f"{address}/status", trust_env=False, timeout=TIMEOUT_S).json()["value"]["ready"])
    except httpx.TransportError:
        return False


def _until(
    is_ready: Callable[[], object], process: subprocess.Popen[bytes], log: Callable[[], str], *, may_end: bool = False
) -> bool:
    end = time.monotonic() + TIMEOUT_S
    while not is_ready():
        if process.poll() is not None and may_end:
            return False
        assert process.poll() is None, log()
        assert time.monotonic() < end, log()
        time.sleep(0.02)
    return True


@contextmanager
def _running(
    command: list[str], folder: Path, variables: dict[str, str], name: str = "browser", files: tuple[int, ...] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """A process that ends with these tests, and what it has said."""
    place = folder / f"{name}.log"
    with place.open("wb") as said:
        process = subprocess.Popen(
            bound_command(*command), stdout=said, stderr=said, env=os.environ | variables, pass_fds=files
        )
        try:
            yield process, lambda: place.read_text(errors="replace")
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    message = f"{names[0]} is not installed"
    if os.environ.get(REQUIRED):
        pytest.fail(message)
    pytest.skip(message)
