"""Hands a submitted run or experiment to the desk that is open, or to a driver that outlives the command."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from evaldesk.desk.runs.stored_runs import is_held, open_stored_runs
from evaldesk.desk.serving import desk_address
from evaldesk.engine.executors import OWN_VARIABLES, has_own_driver
from evaldesk.settings import Settings

WAIT_S = 5.0
LOOK_S = 0.1


def hand_over(settings: Settings, run_id: int, digest: str, *, environment: Mapping[str, str] | None = None) -> str:
    """Ensure that a process plays the run with this digest; gives which one: `desk` or `driver`.

    A run that needs variables of its own (`environment`) always gets a driver, since the desk has not got them, and so
    does one whose executor the server of a desk must not open.
    """
    if environment is None and desk_address(settings) and _is_taken_up(settings, run_id):
        return "desk"
    own = environment or {}
    start_driver(settings, run_id, digest, {**os.environ, **own, OWN_VARIABLES: " ".join(own)})
    return "driver"


def hand_over_experiment(
    settings: Settings,
    experiment_id: int,
    digests: Mapping[int, str],
    *,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Ensure that a process plays the runs of an experiment, each with its digest; gives `desk` or `driver`.

    One process plays all of them, whose cells are interleaved. Variables of their own lead to a driver, as of a run.
    """
    if environment is None and desk_address(settings) and _is_taken_up(settings, next(iter(digests))):
        return "desk"
    own = environment or {}
    arguments = ["experiment", "drive", str(experiment_id), "--workspace", str(settings.workspace)]
    for run_id, digest in digests.items():
        arguments += ["--accept", f"{run_id}:{digest}"]
    _start(settings, f"experiment-{experiment_id}", arguments, {**os.environ, **own, OWN_VARIABLES: " ".join(own)})
    return "driver"


def hand_over_search(settings: Settings, run_id: int, blame_id: int) -> None:
    """Start a process that plays a stored search for the decisive turn of a trial of the run, and ends with it."""
    arguments = ["blame", str(run_id), "--search", str(blame_id), "--workspace", str(settings.workspace)]
    _start(settings, f"search-{blame_id}", arguments, os.environ)


def start_driver(settings: Settings, run_id: int, digest: str, environment: Mapping[str, str]) -> int:
    """Start a process that plays the run while it has the digest, and ends with it; gives the id of the process.

    Its output is in `.evaldesk/logs`.
    """
    arguments = ["run", "drive", str(run_id), "--workspace", str(settings.workspace), "--accept", digest]
    return _start(settings, f"run-{run_id}", arguments, environment)


def _start(settings: Settings, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    folder = settings.state_folder / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "evaldesk", *arguments],
            env=dict(environment),
            cwd=settings.workspace,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    return process.pid


def _is_taken_up(settings: Settings, run_id: int) -> bool:
    """Wait until a living process has taken the run up; False when none does within seconds, or no desk may."""
    with open_stored_runs(settings) as runs:
        end = time.monotonic() + WAIT_S
        is_apart = has_own_driver(runs.summary(run_id).config.executor)
        while not is_apart and time.monotonic() < end:
            summary = runs.summary(run_id)
            if is_held(runs.store, summary) or summary.status not in ("pending", "running"):
                return True
            time.sleep(LOOK_S)
    return False
