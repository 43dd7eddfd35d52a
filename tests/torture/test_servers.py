"""Starting and ending `evaldesk ui`: what is refused, in which words, and what is left behind."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.torture.conftest import ServedFolder

pytestmark = pytest.mark.server

Until = Callable[..., None]
EVERYWHERE = "0.0.0.0"  # noqa: S104 - that it is refused is the test

# A server that would wait ten minutes for the requests under way, and one that takes ten minutes to leave.
PATIENT = "from evaldesk.cli import main; from evaldesk.web import server; server.GRACE_S = 600; main()"
LEAVING = """
import atexit, time
from evaldesk.cli import main
atexit.register(lambda: (print("leaving", flush=True), time.sleep(600)))
main()
"""


def test_a_second_start_prints_the_address_of_the_first_which_can_be_followed_once_it_is_killed(
    brief: ServedFolder, kill: Callable[[int], None]
) -> None:
    first = brief.start()

    second = brief.run("ui", "--port", "0", "--no-open")
    kill(first.process.pid)
    third = brief.start()

    assert second.returncode == 0
    assert second.stdout.startswith(f"{first.url}/?token=")
    assert second.stderr.startswith("The desk of this workspace is open")
    assert third.get("/").status_code == 200


def test_a_port_that_is_taken_is_said_so(brief: ServedFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        ended = brief.run("ui", "--port", str(port), "--no-open")

    assert ended.returncode == 2
    assert ended.stderr == (
        f"evaldesk: 127.0.0.1:{port} cannot be used: Address already in use; choose another with --port, or --port 0\n"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(["--host", EVERYWHERE], ["--listen-beyond-loopback", "--allowed-host"], id="host"),
        pytest.param(
            ["--host", EVERYWHERE, "--listen-beyond-loopback"], ["--allowed-host"], id="host without allowed names"
        ),
        pytest.param(["--token", "short"], ["--token: 16 to 200"], id="token"),
        pytest.param(["--port", "70000"], ["--port", "65535"], id="port"),
        pytest.param(["nowhere"], ["nowhere", "is not a folder"], id="folder"),
    ],
)
def test_what_must_not_be_served_is_refused_before_anything_listens(
    brief: ServedFolder, options: list[str], words: list[str]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    on_port = [] if "--port" in options else ["--port", str(port)]

    ended = brief.run("ui", "--no-open", *on_port, *options)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert [word for word in words if word not in ended.stderr] == []
    assert not (brief.workspace / ".evaldesk").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_server_told_to_stop_waits_for_no_trial_and_its_run_goes_on_at_the_next_start(
    brief: ServedFolder, wait_until: Until, number: int
) -> None:
    brief.write_cases([f"case {i}" for i in range(40)])
    brief.hold()
    server = brief.start(HELD_FROM="30")
    run_id = server.start_run()
    with server.stream(f"/runs/{run_id}/events") as run, server.stream(f"/runs/{run_id}/events") as same_run:
        assert [next(each.iter_bytes())[:5] for each in (run, same_run)] == [b"data:"] * 2
        wait_until(lambda: "<b>0 of 40" not in server.get(f"/runs/{run_id}").text)

        code = server.end(number)

    assert (code, server.log()) == (0, "")
    brief.until_alone()
    assert "All 40 trials done" in brief.start().say_when_done(run_id)


def test_a_server_told_twice_to_stop_does_not_wait(place: ServedFolder, wait_until: Until) -> None:
    place.write_agent("import time\n\n\ndef root_agent(message):\n    time.sleep(600)\n")
    place.write_cases(["case 1"])
    server = place.start(program=("-c", PATIENT))
    server.start_run()
    wait_until(lambda: "1 running" in server.get("/runs/1").text)

    with server.begin_post("/evalsets"):
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: not server.is_listening())
        code = server.end(signal.SIGINT)

    assert code == 130
    place.until_alone()


def test_a_server_on_its_way_out_ends_when_it_is_told_again(place: ServedFolder) -> None:
    server = place.start(program=("-c", LEAVING))
    assert server.process.stdout is not None

    server.process.send_signal(signal.SIGINT)
    assert server.process.stdout.readline() == "leaving\n"

    assert server.end(signal.SIGINT) == 130
