"""Real processes: a server driven over HTTP, its workers found by a mark in their environment."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.bound_processes import bound_python
from tests.forked_commands import ForkedCommands
from tests.torture.brief_agent import BRIEF_AGENT

TOKEN = "a-token-of-enough-letters"
MARK = "EVALDESK_TEST_MARK"
READY = re.compile(r"Evaldesk ready at (http://\S+?/)\?token=")
PATIENCE_S = 120.0
IS_LIVE = 'http-equiv="refresh"'
"""What the page of a run has until the run is over, whether or not a trial is being played."""


@dataclass
class ServedFolder:
    """A workspace with one agent and one eval set, and a mark that every process started for it carries."""

    folder: Path
    mark: str
    commands: ForkedCommands
    servers: list[Server] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def database(self) -> Path:
        return self.workspace / ".evaldesk" / "evaldesk.db"

    @property
    def evalset(self) -> Path:
        return self.workspace / "evalsets" / "set.evalset.json"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, MARK: self.mark, "PLAYED": str(self.folder / "played")}

    def hold(self) -> None:
        """Let no trial of a case from HELD_FROM on end, so that its run cannot, until `let_go`."""
        (self.folder / "held").touch()

    def let_go(self) -> None:
        """Let all trials end."""
        (self.folder / "held").unlink()

    @property
    def played(self) -> list[str]:
        """What the agents were asked, once for each time that a trial was played."""
        path = self.folder / "played"
        return path.read_text().splitlines() if path.exists() else []

    def write_agent(self, source: str, name: str = "brief") -> Path:
        """An agent's folder under the workspace."""
        folder = self.workspace / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "agent.py").write_text(source)
        return folder

    def write_cases(self, queries: list[str], reference: Callable[[str], str] = "It is {}".format) -> Path:
        """An eval set of one case for each query."""
        self.evalset.parent.mkdir(parents=True, exist_ok=True)
        cases = [_case(query, reference(query)) for query in queries]
        self.evalset.write_text(json.dumps({"eval_set_id": "set", "eval_cases": cases}))
        return self.evalset

    def spawn(self, *, program: Sequence[str] = ("-m", "evaldesk"), **environment: str) -> Server:
        """A server on the workspace that is still starting."""
        options = ["--port", "0", "--no-open", "--token", TOKEN, "--workspace", str(self.workspace)]
        log_path = self.folder / f"server{len(self.servers)}.log"
        with log_path.open("w") as log:
            process = subprocess.Popen(
                [*bound_python(*program), "ui", *options, str(self.workspace)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environment | environment,
                cwd=self.folder,
            )
        self.servers.append(Server(process, log_path, time.monotonic()))
        return self.servers[-1]

    def start(self, *, program: Sequence[str] = ("-m", "evaldesk"), **environment: str) -> Server:
        """A server on the workspace, once it is ready."""
        server = self.spawn(program=program, **environment)
        server.wait_until_ready()
        return server

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`evaldesk ARGUMENTS`, in the workspace, to its end."""
        return self.commands.run(*arguments, cwd=self.workspace, environment=self.environment | environment)

    def processes(self) -> dict[int, str]:
        """Process id and command line of everything alive that was started for this place."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and f"{MARK}={self.mark}".encode() in _read(entry / "environ"):
                found[int(entry.name)] = _read(entry / "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")
        return found

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        return [pid for pid, command in self.processes().items() if "evaldesk.engine.worker.main" in command]

    def workers_of_runs(self) -> list[int]:
        """Process ids of the workers that have played trials; the agent says who it was."""
        return [pid for pid in self.workers() if (self.folder / "pids" / str(pid)).exists()]

    def until_alone(self, within_s: float = PATIENCE_S) -> float:
        """Wait until no process of this place is left; gives the seconds it took."""
        began = time.monotonic()
        until(lambda: not self.processes(), within_s, lambda: f"still alive: {self.processes()}")
        return time.monotonic() - began


@dataclass
class Server:
    """A running `evaldesk ui`."""

    process: subprocess.Popen[str]
    log_path: Path
    spawned: float
    url: str = ""
    ready_s: float = 0.0

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = READY.match(line)
        assert found, f"{line!r} {self.log()}"
        self.url = found[1].rstrip("/")
        self.ready_s = time.monotonic() - self.spawned

    def get(self, path: str, **params: str) -> httpx2.Response:
        return httpx2.get(self.url + path, headers=_BEARER, params=params, timeout=PATIENCE_S)

    def post(self, path: str, **fields: Any) -> httpx2.Response:
        return httpx2.post(self.url + path, headers=_BEARER, data=fields, timeout=PATIENCE_S)

    def stream(self, path: str) -> Any:
        return httpx2.stream("GET", self.url + path, headers=_BEARER, timeout=PATIENCE_S)

    def stream_answer(self, path: str, **fields: str) -> Any:
        """Post a form as a script does that reads the answer as a stream."""
        headers = _BEARER | {"Accept": "text/html, text/event-stream", "HX-Request": "true"}
        return httpx2.stream("POST", self.url + path, headers=headers, data=fields, timeout=PATIENCE_S)

    def begin_post(self, path: str) -> socket.socket:
        """A connection on which the server waits for the body of a form."""
        url = httpx2.URL(self.url)
        lines = [f"POST {path} HTTP/1.1", f"Host: {url.host}:{url.port}", f"Authorization: Bearer {TOKEN}"]
        lines += ["Content-Type: application/x-www-form-urlencoded", "Content-Length: 9", "Expect: 100-continue"]
        connection = socket.create_connection((url.host, url.port), timeout=PATIENCE_S)
        connection.sendall("\r\n".join((*lines, "", "")).encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 "), self.log()
        return connection

    def is_listening(self) -> bool:
        """Whether a new connection is taken."""
        url = httpx2.URL(self.url)
        with socket.socket() as probe:
            return probe.connect_ex((url.host, url.port)) == 0

    def start_run(self, **changes: Any) -> int:
        """Start a run of the first agent and eval set that the form offers, as it proposes; gives its id."""
        page = self.get("/runs/new").text
        chosen = {name: _first_option(page, name) for name in ("agent", "evalset")}
        answer = self.post("/runs", **({"n": "1", "concurrency": "8", "timeout_s": "60"} | chosen | changes))
        assert answer.status_code == 303, answer.text
        return int(answer.headers["location"].rpartition("/")[2])

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def say_when_done(self, run_id: int) -> str:
        """The page of a run once it is over."""
        address = f"/runs/{run_id}"
        until(lambda: IS_LIVE not in self.get(address).text, 600)
        return self.get(address).text

    def end(self, number: int = signal.SIGTERM, within_s: float = PATIENCE_S) -> int:
        """Send a signal and wait for the exit; gives its code."""
        self.process.send_signal(number)
        return self.process.wait(within_s)


@pytest.fixture
def place(tmp_path: Path, commands: ForkedCommands) -> Iterator[ServedFolder]:
    """An empty workspace; everything that was started for it is ended after the test."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("processes are told by their environment in /proc, which only Linux has")
    place = ServedFolder(tmp_path, uuid.uuid4().hex, commands)
    place.workspace.mkdir()
    yield place
    for pid in place.processes():
        _kill(pid)
    for server in place.servers:
        server.process.wait(PATIENCE_S)
        if server.process.stdout:
            server.process.stdout.close()


@pytest.fixture
def brief(place: ServedFolder) -> ServedFolder:
    """The place with an agent that takes up to 20 ms if not held; each tenth answer is wrong and each tenth raises."""
    place.write_agent(BRIEF_AGENT)
    return place


@pytest.fixture
def wait_until() -> Callable[..., None]:
    return until


@pytest.fixture
def kill() -> Callable[[int], None]:
    return _kill


def until(is_so: Callable[[], object], within_s: float = PATIENCE_S, words: Callable[[], str] = lambda: "") -> None:
    """Ask again and again; fails with `words` when it is not so in time."""
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, words()
        time.sleep(0.02)


_BEARER = {"Authorization": f"Bearer {TOKEN}"}


def _case(query: str, reference: str) -> dict[str, Any]:
    turn = {
        "user_content": {"role": "user", "parts": [{"text": query}]},
        "final_response": {"role": "model", "parts": [{"text": reference}]},
        "intermediate_data": {"tool_uses": [{"name": "look_up", "args": {"what": query}}]},
    }
    return {"eval_id": query.replace(" ", "_"), "conversation": [turn]}


def _first_option(page: str, name: str) -> str:
    select = re.search(rf'<select[^>]*name="{name}".*?</select>', page, re.DOTALL)
    assert select, f"the form offers no {name}"
    value = re.search(r'<option[^>]*value="([^"]+)"', select[0])
    assert value, select[0]
    return value[1]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
