"""`evaldesk inbox pull`: traces of a hosted tool come in once, and a table of the folder needs trust."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.hosted_tools import KEYS, FakeTool, Turn, hosted_tool
from tests.islands import of_tools

from evaldesk.cli import cli
from evaldesk.desk.inbox.listening import keep_pulling
from evaldesk.desk.inbox.pulling import PullDesk
from evaldesk.settings import read_settings
from evaldesk.store import Store

pytestmark = of_tools("phoenix")
TABLE = '[inbox.pull.shop]\ntool = "phoenix"\nurl = "{url}"\n'


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeTool, dict[str, str]]]:
    began_at = datetime.now(UTC) - timedelta(hours=3)
    turns = [Turn(1, began_at), Turn(2, began_at + timedelta(minutes=1), "And \x1b[31m18?", feedback=0.0)]
    with hosted_tool("phoenix", turns) as (fake, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield fake, environment


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["inbox", *words, "--workspace", str(folder)])


def as_json(folder: Path, *words: str) -> Any:
    result = run(folder, *words, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def test_traces_come_in_once_by_the_variables_of_the_tool(
    tmp_path: Path, server: tuple[FakeTool, dict[str, str]]
) -> None:
    first = run(tmp_path, "pull", "phoenix")
    second = as_json(tmp_path, "pull", "phoenix", "--since", "1d")
    listed = as_json(tmp_path, "list", "feedback<0 tool:get_order")
    status = as_json(tmp_path, "status")

    assert first.exit_code == 0
    assert first.stdout.endswith("UTC: 2 new traces.\n")
    assert (second["new"], second["equal"]) == (0, 2)
    assert [(each["source"], each["conversation"], each["turns"]) for each in listed] == [("phoenix", "s-1", 2)]
    assert [(each["source"], each["error"]) for each in status["pulls"]] == [("phoenix", None)]
    assert "The pull of phoenix of " in run(tmp_path, "status").stdout
    assert "\x1b" not in run(tmp_path, "list").stdout


def test_a_fault_of_the_tool_is_a_sentence_and_is_in_the_status(
    tmp_path: Path, server: tuple[FakeTool, dict[str, str]]
) -> None:
    server[0].faults = [(401, "")]

    result = run(tmp_path, "pull", "phoenix")

    assert result.exit_code != 0
    assert "Phoenix refuses the key" in str(result.exception)
    assert "Phoenix refuses the key" in as_json(tmp_path, "status")["pulls"][0]["error"]


def test_a_table_of_the_folder_needs_trust_before_a_key_goes_to_its_address(
    tmp_path: Path, server: tuple[FakeTool, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, environment = server
    monkeypatch.delenv("EVALDESK_TRUST")
    (tmp_path / "evaldesk.toml").write_text(TABLE.format(url=environment["PHOENIX_ENDPOINT"]))

    refusal = run(tmp_path, "pull", "shop")
    requests = [*fake.requests]
    outcome = as_json(tmp_path, "pull", "shop", "--trust")

    assert refusal.exit_code != 0
    assert "trust it" in str(refusal.exception)
    assert requests == []
    assert outcome["new"] == 2


@pytest.mark.parametrize("is_trusted", [False, True])
def test_an_open_inbox_pulls_in_a_trusted_folder_alone(
    tmp_path: Path,
    server: tuple[FakeTool, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    is_trusted: bool,
) -> None:
    fake, environment = server
    (tmp_path / "evaldesk.toml").write_text(TABLE.format(url=environment["PHOENIX_ENDPOINT"]))
    monkeypatch.setenv("EVALDESK_TRUST", "1" if is_trusted else "")
    settings = read_settings(tmp_path, (tmp_path,), environment=environment)
    is_stopped = threading.Event()
    monkeypatch.setattr(is_stopped, "wait", lambda _: is_stopped.set())  # one round

    with Store.open(settings.database) as store:
        keep_pulling(settings, store, is_stopped)
        records = PullDesk(settings, store).records()

    assert bool(fake.requests) is is_trusted
    assert [record.source for record in records] == ["shop"] * is_trusted


def test_a_wrong_time_or_source_is_refused_before_anything_is_asked(
    tmp_path: Path, server: tuple[FakeTool, dict[str, str]]
) -> None:
    for words in (
        ("pull", "phoenix", "--since", "soon"),
        ("pull", "opik"),
        ("pull", "phoenix", "--where", "state:new"),
    ):
        assert run(tmp_path, *words).exit_code != 0

    assert server[0].requests == []
    assert KEYS["phoenix"]["PHOENIX_API_KEY"] not in run(tmp_path, "pull", "phoenix").output
