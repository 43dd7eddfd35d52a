"""What the command line lets out of this machine, and what never leaves a worker unscrubbed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evaldesk.cli.ui import ui
from evaldesk.errors import UsageError

SECRET = "canary-4f9a1c7e55"
KEYS = ("sk-proj-" + "a1B2" * 10, "AKIA" + "ABCD1234" * 2, "ghp_" + "a1b2c3d4" * 5)


def refused(*arguments: str) -> str:
    """Why the command line is refused."""
    result = CliRunner().invoke(ui, arguments)
    assert isinstance(result.exception, UsageError), result.output
    return str(result.exception)


@pytest.fixture(autouse=True)
def nothing_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def serve(*_: Any, **__: Any) -> None:
        raise AssertionError("it would have listened")

    monkeypatch.setattr("evaldesk.web.server.serve", serve)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.10", "desk.example", ""])  # noqa: S104
def test_another_address_needs_both_flags(host: str) -> None:
    for more in ((), ("--listen-beyond-loopback",), ("--allowed-host", "desk.example")):
        assert "--listen-beyond-loopback and --allowed-host" in refused("--host", host, *more)


@pytest.mark.parametrize(
    "token", ["", "short", "a" * 15, "a" * 20 + ";", "a b" * 10, "a" * 20 + "\r\nX: y", "é" * 20, "a" * 500]
)
def test_a_token_is_long_and_fits_into_a_cookie(token: str) -> None:
    assert "--token" in refused("--token", token)


def test_keys_that_an_agent_says_are_scrubbed_before_they_are_kept(open_fort: Callable[..., Any]) -> None:
    fort = open_fort(environment={"CANARY_API_KEY": SECRET})
    fort.host.texts = (SECRET, f"x{SECRET}x", *KEYS)
    stream = {"Accept": "text/event-stream", "HX-Request": "true"}

    said = fort.client.post(f"/sessions/{fort.session}/turns", data={"message": "Tell me"}, headers=stream).text

    assert fort.host.n_turns == 1
    shown = said + fort.get(f"/sessions/{fort.session}").text + fort.get(f"/sessions/{fort.session}/case").text
    kept = b"".join(path.read_bytes() for path in fort.folder.rglob("*") if path.is_file())
    for secret in (SECRET, *KEYS):
        assert secret not in shown
        assert secret.encode() not in kept
