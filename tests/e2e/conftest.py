"""A desk in a process of its own, and visitors who use it with a browser."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect
from tests.bound_processes import bound_python

SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
CHECKOUT = Path(__file__).resolve().parents[2]
SHOTS = CHECKOUT / "screenshots"
ENVIRONMENT = {
    "EVALDESK_DEMO_MISTAKES": "0",
    "EVALDESK_DEMO_DELAY_MS": "25",
    "EVALDESK_MODELS": "demo/dice?mistakes=0, demo/dice?mistakes=0.25",
}

# Workers that wait for a run import LiteLLM, as long as whole seconds; here, those that play are forks of one that has
# imported what they need.
WITHOUT_WARM_POOL = f"""
import sys
sys.path.insert(0, {str(CHECKOUT)!r})
from tests.forked_python import ForkedPython
del sys.path[0]
sys.modules["uvloop"] = None  # its processes are not those of Popen
from evaldesk.cli import main
from evaldesk.engine import WarmPool
WarmPool.fill = lambda pool, purpose: None
with ForkedPython().standing_in():
    main()
"""

TIMEOUT_MS = 120_000
expect.set_options(timeout=TIMEOUT_MS)


@dataclass
class RunningDesk:
    """A desk that serves: its address, and a way to kill it and start it again on the same workspace.

    It serves the samples, or the agents and eval sets in `folders` of its workspace.
    """

    workspace: Path
    folders: tuple[str, ...] = ()
    program: tuple[str, ...] = ("-m", "evaldesk")
    address: str = ""
    token: str = "a-token-for-the-journeys"
    port: int = 0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start and wait for the line that says where it is."""
        command = [*bound_python(*self.program), "ui", *(self.folders or ["--demo"]), "--no-open"]
        command += ["--token", self.token, "--port", str(self.port), "--workspace", str(self.workspace)]
        environment = os.environ | ENVIRONMENT
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.workspace, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"Evaldesk ready at (http://127\.0\.0\.1:(\d+))/\?token=\S+\n", line)
        assert found, line
        self.address, self.port = found[1], int(found[2])

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        """As Ctrl-C would."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
        self._reap()

    def _reap(self) -> None:
        if self.process is None:
            return
        self.process.wait(120)
        if self.process.stdout:
            self.process.stdout.close()


Furniture = Callable[[Path], tuple[str, ...]]


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """Fills a new workspace and says which of its folders are served; nothing, for the samples."""
    return lambda workspace: ()


@pytest.fixture(scope="module")
def program() -> tuple[str, ...]:
    """What Python is told to serve the desk; the journey has the product as it is."""
    return ("-c", WITHOUT_WARM_POOL)


@pytest.fixture(scope="module")
def desk(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, furniture: Furniture, program: tuple[str, ...]
) -> Iterator[RunningDesk]:
    workspace = tmp_path_factory.mktemp("workspace")
    desk = RunningDesk(workspace, furniture(workspace), program)
    desk.start()
    yield desk
    desk.stop()


@dataclass
class Visitor:
    """A page, and all that went wrong in it."""

    page: Page
    desk: RunningDesk
    complaints: list[str] = field(default_factory=list)

    def goto(self, path: str) -> None:
        """Open an address of the desk."""
        self.page.goto(self.desk.address + path)

    def wear(self, size: str, scheme: str) -> None:
        """Look by another screen, by day or by night."""
        width, height = SIZES[size]
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")

    def turn_day_and_night(self) -> None:
        """Go on in the dark by day, and in the light by night."""
        is_dark = self.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        self.page.emulate_media(color_scheme="light" if is_dark else "dark")

    def shoot(self, name: str) -> None:
        """Keep a picture of the whole page, when EVALDESK_SHOTS asks for it."""
        if os.environ.get("EVALDESK_SHOTS"):
            SHOTS.mkdir(exist_ok=True)
            self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)

    def evalset(self, name: str) -> str:
        """The id of an eval set."""
        page = self.page.context.request.get(f"{self.desk.address}/evalsets").text()
        found = re.search(rf'href="/evalsets/([^"/]+)">{name}</a>', page)
        assert found, f"no eval set {name}"
        return found[1]

    def chat(self, agent: str, state: str, *messages: str) -> str:
        """Talk to an agent in a new session and say its address, without a page."""
        ask = self.page.context.request
        session = ask.post(f"{self.desk.address}/sessions", form={"agent": agent, "state": state}).url
        for message in messages:
            ask.post(f"{session}/turns", form={"message": message}, headers={"Accept": "text/event-stream"})
        return session.removeprefix(self.desk.address)

    def run(self, agent: str, evalset: str, metrics: Mapping[str, str], **options: str) -> str:
        """Start a run of metrics with their thresholds and say its address, without a page."""
        form = [("agent", agent), ("evalset", evalset), *options.items()]
        for metric, threshold in metrics.items():
            form += [("metric", metric), (f"{metric}.threshold", threshold)]
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self.page.context.request.post(f"{self.desk.address}/runs", data=urlencode(form), headers=headers)
        assert answer.ok, answer.text()
        return answer.url.removeprefix(self.desk.address)

    def leave(self) -> None:
        """Close the browser's window; nothing may have gone wrong."""
        self.page.context.close()
        assert self.complaints == []


Visit = Callable[..., Visitor]


def _open(browser: Browser, desk: RunningDesk, size: str, scheme: str, *, has_scripts: bool = True) -> Visitor:
    context = browser.new_context(java_script_enabled=has_scripts, has_touch=size == "phone", accept_downloads=True)
    context.set_default_timeout(TIMEOUT_MS)
    someone = Visitor(context.new_page(), desk)
    someone.wear(size, scheme)
    _listen(someone)
    someone.page.goto(f"{desk.address}/?token={desk.token}")
    return someone


def _listen(someone: Visitor) -> None:
    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and "status of 4" not in message.text:
            someone.complaints.append(f"console: {message.text}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((someone.desk.address, "data:", "blob:")):
            someone.complaints.append(f"request to {request.url}")

    someone.page.on("console", on_console)
    someone.page.on("pageerror", lambda error: someone.complaints.append(f"script: {error}"))
    someone.page.on("request", on_request)


@pytest.fixture
def visit(browser: Browser, desk: RunningDesk) -> Iterator[Visit]:
    """Opens windows on the desk; anything in their console, and any request elsewhere, is a complaint at the end."""
    visitors: list[Visitor] = []

    def visit(size: str = "desktop", scheme: str = "light", *, has_scripts: bool = True) -> Visitor:
        visitors.append(_open(browser, desk, size, scheme, has_scripts=has_scripts))
        return visitors[-1]

    yield visit
    for someone in visitors:
        someone.leave()


@pytest.fixture(scope="module")
def resident(browser: Browser, desk: RunningDesk) -> Iterator[Visitor]:
    """A visitor who prepares things for a whole module."""
    someone = _open(browser, desk, "desktop", "light")
    someone.page.emulate_media(reduced_motion="reduce")
    yield someone
    someone.leave()


@pytest.fixture
def someone(visit: Visit) -> Visitor:
    """A visitor at a desk, in daylight."""
    return visit()


@pytest.fixture(params=["desktop-light", "phone-dark"])
def anyone(visit: Visit, request: pytest.FixtureRequest) -> Visitor:
    """Visitors with a wide and a narrow screen, by day and by night."""
    size, scheme = request.param.split("-")
    return visit(size, scheme)
