"""The public address of a desk: written by a person, and of a file only once its folder is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evaldesk.cli.ui import ui
from evaldesk.errors import UsageError
from evaldesk.settings import public_url, read_settings


@pytest.mark.parametrize(
    ("text", "address", "authorities"),
    [
        ("https://evals.example", "https://evals.example", {"evals.example", "evals.example:443"}),
        ("https://Evals.Example/", "https://evals.example", {"evals.example", "evals.example:443"}),
        ("https://evals.example:8443", "https://evals.example:8443", {"evals.example:8443"}),
        ("http://evals.example:443", "http://evals.example:443", {"evals.example:443"}),
        ("http://10.0.0.7", "http://10.0.0.7", {"10.0.0.7", "10.0.0.7:80"}),
        ("https://[fd00::7]:8443", "https://[fd00::7]:8443", {"[fd00::7]:8443"}),
    ],
)
def test_scheme_host_and_port_are_read(text: str, address: str, authorities: set[str]) -> None:
    url = public_url(text, "--public-url")

    assert str(url) == address
    assert url.authorities == authorities


@pytest.mark.parametrize(
    "text",
    [
        *("", "evals.example", "ftp://evals.example", "https://", "https://evals.example/path", "https://a b"),
        *("https://user@evals.example", "https://evals.example?x", "https://evals.example#x", "https://*.example"),
        *("https://evals.example:99999", "https://evals.example\r\nX: y", 7, ["https://evals.example"]),
    ],
)
def test_anything_else_is_refused_with_its_place(text: Any) -> None:
    with pytest.raises(UsageError, match="--public-url is the address that browsers open"):
        public_url(text, "--public-url")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The addresses of the desks that the command would serve."""
    addresses: list[Any] = []
    monkeypatch.setattr("evaldesk.web.server.serve", lambda _, address, **__: addresses.append(address))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("EVALDESK_TRUST", raising=False)
    monkeypatch.chdir(tmp_path)
    return addresses


def start(*words: str, environment: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(ui, ["--no-open", *words], env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_flag_or_a_variable_names_the_public_address(started: list[Any]) -> None:
    variable = {"EVALDESK_PUBLIC_URL": "https://one.example"}

    start(environment=variable)
    start("--public-url", "https://two.example", environment=variable)
    start()

    assert [str(each.public or "") for each in started] == ["https://one.example", "https://two.example", ""]


def test_that_of_a_file_counts_once_the_folder_is_trusted(started: list[Any], tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text('public_url = "https://evals.example"\n')
    (tmp_path / "agent.py").write_text("root_agent = None\n")

    told = start(".")
    start(".", "--public-url", "https://mine.example")
    start(".", "--trust")

    assert [str(each.public or "") for each in started] == ["", "https://mine.example", "https://evals.example"]
    assert "public_url of evaldesk.toml counts once the folder is trusted" in told


def test_a_wrong_address_in_the_file_names_file_and_key(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text('public_url = "evals.example"\n')

    with pytest.raises(UsageError, match=r"evaldesk\.toml: public_url is the address"):
        read_settings(tmp_path, (), environment={})
