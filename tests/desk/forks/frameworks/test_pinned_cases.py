"""Forks kept as cases, played by agents of real frameworks: the endpoint counts no request for a pinned turn."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.agents.endpoint import Endpoint
from tests.desk.forks.conftest import Forks
from tests.desk.forks.frameworks.sources import FRAMEWORKS
from tests.desk.forks.frameworks.test_framework_forks import FIRST_REQUEST, add_answers, play_parent, read

import evaldesk
from evaldesk.desk.desk import Desk
from evaldesk.desk.forks.forks import ForkDesk
from evaldesk.desk.forks.keeping import case_of_fork
from evaldesk.formats import dump_evalset, load_evalset
from evaldesk.model import Case, Criterion, EvalSet
from evaldesk.model.fork import Fork, ForkPoint

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore"), pytest.mark.long]  # of the frameworks

TURN = 3
"""The first turn that is not pinned; it calls a tool, and its first request shows the history with another call."""


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest, forks: Forks, play_by: Callable[[str, str], None]) -> str:
    play_by(*FRAMEWORKS[request.param])
    return str(request.param)


async def write_pinned_case(forks: Forks, endpoint: Endpoint, path: Path) -> list[dict[str, Any]]:
    """Write the eval set file of a fork before turn 3; gives the requests of its parent from that turn on."""
    parent, requests = await play_parent(forks, endpoint)
    desk = cast("Desk", SimpleNamespace(forks=ForkDesk(forks.store, forks.desk.runs, forks.desk.agents)))
    source = await case_of_fork(desk, Fork(ForkPoint(parent.id, 0, 0, TURN)))
    dump_evalset(EvalSet("pinned", cases=(source.case,)), path)
    add_answers(endpoint, TURN)
    return [read(each) for each in requests[FIRST_REQUEST[TURN] :]]


def check_requests(endpoint: Endpoint, requests: list[dict[str, Any]]) -> None:
    """The requests of the pinned case are those of its parent, without any for its two pinned turns."""
    assert len(endpoint.asked) == 3
    assert [read(each) for each in endpoint.asked] == requests


def pinned_case(path: Path) -> Case:
    """The case of the file, as it is read back."""
    (case,) = load_evalset(path).cases
    return case


async def test_a_run_of_a_pinned_case_asks_the_model_for_its_later_turns_alone(
    framework: str, forks: Forks, endpoint: Endpoint, tmp_path: Path
) -> None:
    path = tmp_path / "pinned.evalset.json"
    requests = await write_pinned_case(forks, endpoint, path)

    run = await forks.play(pinned_case(path), criteria=(Criterion("response_exact", 1.0),))

    trial = forks.store.runs.trial(run.id, 0, 0)
    check_requests(endpoint, requests)
    assert (run.n_passed, trial.n_prefix_turns, len(trial.transcript.turns)) == (1, 2, 4)
    assert trial.transcript.final_state["rolls"] == [1, 3]


async def test_pytest_and_python_ask_the_model_for_its_later_turns_alone(
    framework: str, forks: Forks, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    agent = project / "dice"
    agent.mkdir(parents=True)
    agent.joinpath("agent.py").write_text(FRAMEWORKS[framework][1].replace("{address}", endpoint.address))
    path = project / "pinned.evalset.json"
    requests = await write_pinned_case(forks, endpoint, path)
    project.joinpath("test_config.json").write_text(json.dumps({"criteria": {"response_match_score": 1.0}}))

    result = evaldesk_pytest(project, agent)
    from_pytest = list(endpoint.asked)
    endpoint.asked.clear()
    add_answers(endpoint, TURN)
    evaluation = await evaldesk.evaluate_async(
        str(agent), path, criteria={"response_match_score": 1.0}, workspace=project
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed" in result.stdout
    assert [read(each) for each in from_pytest] == requests
    check_requests(endpoint, requests)
    assert evaluation.n_passed == 1


def evaldesk_pytest(project: Path, agent: Path) -> subprocess.CompletedProcess[str]:
    """The eval set files of a project, as a person plays them with pytest."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--evaldesk-agent={agent}",
        "pinned.evalset.json",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=300)
