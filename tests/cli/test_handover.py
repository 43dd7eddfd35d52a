"""Who plays a submitted run: the desk that is open, or a process of its own; and the page of a run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.islands import island_module

from evaldesk.cli.ui import DEFAULT_PORTS
from evaldesk.desk.desk import Desk
from evaldesk.desk.runs import runs as runs_module
from evaldesk.desk.runs.handover import hand_over
from evaldesk.desk.serving import desk_address
from evaldesk.errors import WorkspaceError
from evaldesk.settings import Settings
from evaldesk.store import hold_workspace
from evaldesk.web.guard import mcp_key

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

TOML = """\
[experiment]
rollout = "calc"
entrypoint = "main.py"
model_path = "openai/none"
dataset = "sums"
{env}
[secrets]
required = []
"""


def _settings(place: CommandFolder) -> Settings:
    return Settings(place.folder, (place.folder,), environment=dict(os.environ))


@pytest.fixture
def toml(place: CommandFolder) -> Path:
    """A run file whose agent reports no reward: its trials are unscored, which is enough here."""
    island_module("osmosis.dataset")  # the data are rows of Osmosis
    rollout, data = place.folder / "rollouts/calc", place.folder / "data"
    path = place.folder / "configs/eval/sums.toml"
    for folder in (rollout, data, path.parent):
        folder.mkdir(parents=True)
    (rollout / "main.py").write_text("def root_agent(message):\n    return message\n")
    (data / "sums.jsonl").write_text(json.dumps({"user_prompt": "1+1", "ground_truth": "2"}) + "\n")
    path.write_text(TOML.format(env=""))
    return path


@pytest.mark.anyio
async def test_the_desk_that_is_open_plays_a_submitted_run(
    place: CommandFolder, toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "POLL_S", 0.02)
    monkeypatch.setattr("evaldesk.desk.runs.handover.WAIT_S", 300.0)
    settings = _settings(place)
    with hold_workspace(settings.state_folder, url="http://127.0.0.1:1/"):
        desk = Desk.open(settings)
        attending = asyncio.create_task(desk.runs.poll_requests(takes_up=True))

        said = await asyncio.to_thread(place.run, "run", "submit", toml, "--yes", "--name", "nightly")
        async for _ in desk.runs.watch(1):
            pass

        summary = await desk.runs.summary(1)
        attending.cancel()
        await desk.close()
    assert "Run 1 is played by the desk that is open." in said.output, repr(said.exception)
    assert (summary.status, summary.n_done) == ("finished", 1)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, Any]]]:
    """The processes that would have been started."""
    found: list[tuple[list[str], dict[str, Any]]] = []

    class Process:
        pid = 1

        def __init__(self, command: list[str], **options: Any) -> None:
            found.append((command, options))

    monkeypatch.setattr(
        "evaldesk.desk.runs.handover.subprocess", SimpleNamespace(Popen=Process, DEVNULL=subprocess.DEVNULL)
    )
    return found


def test_where_no_desk_is_open_a_process_of_its_own_plays_it(
    place: CommandFolder, toml: Path, started: list[tuple[list[str], dict[str, Any]]]
) -> None:
    said = place.run("run", "submit", toml, "--yes").output

    assert "Run 1 is played in the background." in said
    command, options = started[0]
    *words, digest = command[1:]
    assert words == ["-P", "-m", "evaldesk", "run", "drive", "1", "--workspace", str(place.folder), "--accept"]
    assert len(digest) == 32
    assert options["start_new_session"] is True
    assert (place.folder / ".evaldesk/logs/run-1.log").stat().st_mode & 0o777 == 0o600


def test_a_stopped_run_is_offered_before_anybody_waits_for_it(
    place: CommandFolder, started: list[tuple[list[str], dict[str, Any]]]
) -> None:
    place.eval(place.evalset("first", {"one": "one"}))
    with place.store() as store:
        run_id = store.runs.create(store.runs.summary(1).config, [store.runs.case(1, 0)], "7 this-desk 12")
        store.runs.set_status(run_id, "stopped", "by hand")

    said = place.run("run", "resume", run_id, "--background").output

    assert f"Run {run_id} continues in the background." in said
    assert [command[5:7] for command, _ in started] == [["drive", str(run_id)]]
    with place.store() as store:
        offered = store.runs.summary(run_id)
    assert (offered.status, offered.driver) == ("pending", "waiting")
    assert "has no trial left to play" in str(place.run("run", "resume", "1", "--background").exception)


def test_variables_of_the_run_reach_its_process_even_beside_a_desk(
    place: CommandFolder, toml: Path, started: list[tuple[list[str], dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVEL_OF_SUMS", "low")
    toml.write_text(TOML.format(env='[env]\nLEVEL_OF_SUMS = "high"'))
    with hold_workspace(_settings(place).state_folder, url="http://127.0.0.1:1/"):
        place.run("run", "submit", toml, "--yes")

    assert started[0][1]["env"]["LEVEL_OF_SUMS"] == "high"


def test_a_desk_that_died_is_no_desk(place: CommandFolder, started: list[tuple[list[str], dict[str, Any]]]) -> None:
    place.eval(place.evalset("first", {"one": "one"}))
    lock = place.folder / ".evaldesk/desk.lock"
    lock.write_text(f"{os.getpid()} http://127.0.0.1:1/\n")  # its number may have gone to another process

    assert desk_address(_settings(place)) == ""
    assert hand_over(_settings(place), 1, "") == "driver"
    assert len(started) == 1


def test_open_says_the_address_of_the_page_with_its_token(place: CommandFolder) -> None:
    place.eval(place.evalset("first", {"one": "one"}), "--note", "nightly")
    state = place.folder / ".evaldesk"
    with hold_workspace(state, url="http://127.0.0.1:8420/"):
        assert isinstance(place.run("open", "1").exception, WorkspaceError)
        (state / "desk.url").write_text("http://127.0.0.1:8420/?token=abc\n")

        said = place.run("open", "nightly", "--no-open").output

    assert said == "http://127.0.0.1:8420/runs/1?token=abc\n"


def test_a_second_start_prints_the_address_of_the_open_desk(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.web.server.serve", lambda *_, **__: pytest.fail("a second desk was started"))
    state = place.folder / ".evaldesk"
    with hold_workspace(state, url="http://127.0.0.1:8421/"):
        (state / "desk.url").write_text("http://127.0.0.1:8421/?token=abc\n")

        started = place.run("ui", "--no-open", "--port", "9000")

    assert started.exit_code == 0
    assert started.stdout == "http://127.0.0.1:8421/?token=abc\n"
    assert "with the options of its own start" in started.stderr


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_second_start_prints_the_door_of_the_open_desk(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    monkeypatch.setattr("evaldesk.desk.trust.Trust.is_restricted", property(lambda _: not is_trusted))
    (place.folder / "evaldesk.toml").write_text("[mcp]\nserve = true\n")
    state = place.folder / ".evaldesk"
    with hold_workspace(state, url="http://127.0.0.1:8421/"):
        (state / "desk.url").write_text("http://127.0.0.1:8421/?token=abc\n")

        started = place.run("ui", "--no-open")

    lines = ("Coding agents are served at http://127.0.0.1:8421/mcp", f"  Authorization: Bearer {mcp_key('abc')}")
    assert [line in started.stderr.splitlines() for line in lines] == [is_trusted, is_trusted]


def test_a_second_start_shows_no_token_of_another_user(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    state = place.folder / ".evaldesk"
    with hold_workspace(state, url="http://127.0.0.1:8421/"):
        (state / "desk.url").write_text("http://127.0.0.1:8421/?token=abc\n")
        monkeypatch.setattr("evaldesk.cli.ui.os.geteuid", lambda: os.getuid() + 1)

        started = place.run("ui", "--no-open")

    assert "another user serves this workspace" in str(started.exception)
    assert "abc" not in started.output


def test_a_desk_that_is_opening_is_named_by_its_process(place: CommandFolder) -> None:
    state = place.folder / ".evaldesk"
    with hold_workspace(state, url=""):
        (state / "desk.url").write_text("http://127.0.0.1:8421/?token=of-a-desk-that-was-killed\n")

        started = place.run("ui", "--no-open")

    assert f"is held by process {os.getpid()}; use that one, or end it first" in str(started.exception)
    assert "killed" not in started.output


@pytest.mark.parametrize(
    ("options", "ports"),
    [([], DEFAULT_PORTS), (["--port", "9000"], (9000,)), (["--port", "8420"], (8420,)), (["--port", "0"], (0,))],
    ids=["default", "given", "the default given", "any"],
)
def test_only_a_port_that_was_not_given_moves_on(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch, options: list[str], ports: tuple[int, ...]
) -> None:
    served: list[Any] = []
    monkeypatch.setattr("evaldesk.web.server.serve", lambda settings, address, **_: served.append(address))

    place.run("ui", "--no-open", *options)

    assert served[0].ports == ports


def test_open_follows_no_address_that_another_user_wrote(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    place.eval(place.evalset("first", {"one": "one"}))
    state = place.folder / ".evaldesk"
    with hold_workspace(state, url="http://127.0.0.1:8420/"):
        (state / "desk.url").write_text("http://127.0.0.1:9/?token=theirs\n")
        monkeypatch.setattr("evaldesk.cli.ui.os.geteuid", lambda: os.getuid() + 1)

        said = place.run("open", "1", "--no-open")

    assert "another user serves this workspace" in str(said.exception)
    assert "9/" not in said.output


def test_open_begins_the_desk_where_none_is_open(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    place.eval(place.evalset("first", {"one": "one"}))
    served: list[Any] = []
    monkeypatch.setattr("evaldesk.web.server.serve", lambda settings, address, **options: served.append(address))

    place.run("open", "1")

    assert (served[0].page, served[0].ports, served[0].host) == ("runs/1", (0,), "127.0.0.1")
