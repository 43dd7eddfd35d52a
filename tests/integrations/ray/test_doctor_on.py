"""`evaldesk doctor --on NAME`: one trial of the sample agent is played there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaldesk.cli import cli
from evaldesk.engine import executors
from evaldesk.engine.executors import Node
from evaldesk.errors import EvaldeskError
from evaldesk.integrations.ray import kind
from evaldesk.model import RunConfig

TOML = """
[executors.here]
kind = "local"
[executors.cluster]
kind = "ray"
address = "127.0.0.1:1"
"""


def doctor(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setenv("EVALDESK_TRUST", "1")
    (folder / "evaldesk.toml").write_text(TOML)
    done = CliRunner().invoke(cli, ["doctor", "--on", name, "--workspace", str(folder), str(folder)])
    return done.exit_code, done.output


def test_a_trial_is_played_where_the_name_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = doctor(tmp_path, "here", monkeypatch)

    assert code == 0, said
    assert re.search(r"ok +executor here +this machine", said)
    assert re.search(r"ok +trial on here +asked 'Hello', the sample agent said .?I am", said)


def test_a_cluster_that_is_not_there_is_a_problem_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "is_installed", lambda _: True)

    code, said = doctor(tmp_path, "cluster", monkeypatch)

    assert code == 1
    assert re.search(
        r"bad +executor cluster +(Ray at 127\.0\.0\.1:1 cannot be used: |no cluster: No module named 'ray')", said
    )


def test_each_machine_is_named_with_what_differs_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [Node("vm-1", "4 CPUs, Python 3.11.7"), Node("vm-2", "8 CPUs", "has Python 3.9, and here it is 3.11")]

    async def look(_: RunConfig) -> tuple[str, list[Node]]:
        return "2 nodes, 7 of 12 CPUs free", nodes

    monkeypatch.setattr(executors, "LOCAL", replace(executors.LOCAL, look=look))

    code, said = doctor(tmp_path, "here", monkeypatch)

    assert code == 0, said
    assert re.search(r"ok +executor here +2 nodes, 7 of 12 CPUs free", said)
    assert re.search(r"ok +node vm-1 +4 CPUs, Python 3.11.7\n", said)
    assert re.search(r"look +node vm-2 +8 CPUs; has Python 3.9, and here it is 3.11, so no trial is played there", said)
    assert "trial on here" in said


@pytest.mark.parametrize("error", [EvaldeskError("no way there"), TimeoutError()], ids=["refused", "silent"])
def test_no_trial_is_sent_where_the_machines_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def look(_: RunConfig) -> tuple[str, list[Node]]:
        raise error

    monkeypatch.setattr(executors, "LOCAL", replace(executors.LOCAL, look=look))

    code, said = doctor(tmp_path, "here", monkeypatch)

    assert code == 1
    assert re.search(r"bad +executor here +(no way there|no answer within 120 s)", said)
    assert "trial on here" not in said


def test_a_name_that_leads_nowhere_is_refused_with_those_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = doctor(tmp_path, "nowhere", monkeypatch)

    assert code != 0
    assert "trial on" not in said
