"""What trials wait for is told while they wait."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from evaldesk.engine import InlineExecutor, LocalExecutor
from evaldesk.engine.driver.worker_process import WorkerProcess
from evaldesk.engine.frames import Ready
from evaldesk.engine.worker.attempt import Attempt, Pause, active, pauses_sentence
from evaldesk.engine.worker.main import Channel, Worker
from evaldesk.llm import RetryWait
from evaldesk.llm.failures import ModelFailure
from evaldesk.model import AgentRef, Case, TrialSpec, Turn
from evaldesk.wire import to_json

pytestmark = pytest.mark.anyio

LATER = datetime(2100, 1, 1, 12, 3, 5, tzinfo=UTC)
WAITING = """
import asyncio
from datetime import UTC, datetime, timedelta

from evaldesk.llm import RetryWait
from evaldesk.llm.failures import ModelFailure
from evaldesk.llm.retry_events import CURRENT_LISTENER

async def root_agent(message):
    listener = CURRENT_LISTENER.get()
    listener(RetryWait(ModelFailure("rate_limit", "slow down"), 1, 5, datetime.now(UTC) + timedelta(hours=1)))
    await asyncio.Event().wait()
"""


def _wait(kind: str, until: datetime) -> RetryWait:
    return RetryWait(ModelFailure(kind, "no"), 1, 5, until)


def test_the_last_moment_and_every_reason_are_said_once() -> None:
    attempts = [Attempt(), Attempt(), Attempt()]
    for attempt, kind, seconds in zip(attempts, ("rate_limit", "server_error", "rate_limit"), (0, 1, 2), strict=True):
        attempt.waits(_wait(kind, LATER - timedelta(seconds=seconds)))
    until = LATER.astimezone().strftime("%H:%M:%S")

    one = pauses_sentence(active([attempts[0].pause]))
    all_of_them = pauses_sentence(active(attempt.pause for attempt in attempts))

    assert one == f"1 trial waits: rate-limited until {until}."
    assert all_of_them == f"3 trials wait: rate-limited or server error until {until}."


def test_what_is_over_is_not_told() -> None:
    attempt = Attempt()
    attempt.waits(_wait("rate_limit", datetime.now(UTC) - timedelta(seconds=1)))

    assert active([attempt.pause, None]) == ()
    assert pauses_sentence(()) == ""


async def test_a_trial_under_way_is_seen_to_wait(tmp_path: Path) -> None:
    executor = InlineExecutor(1)
    await executor.submit(_spec(tmp_path))
    while not executor.pauses:
        await asyncio.sleep(0.001)

    said = pauses_sentence(executor.pauses)
    await executor.close()

    assert said.startswith("1 trial waits: rate-limited until ")
    assert executor.pauses == ()


async def test_a_worker_tells_with_every_beat_and_its_parent_remembers() -> None:
    worker = Worker(cast("Channel", None))
    attempt = Attempt()
    attempt.waits(_wait("rate_limit", LATER))
    worker._jobs[1] = SimpleNamespace(attempt=attempt)  # type: ignore[assignment]

    beat = worker.snapshot()
    parent = WorkerProcess(lambda _: None, lambda _: None)
    parent.take_data(to_json(Ready(1)) + b"\n" + to_json(beat) + b"\n")

    assert [key for key, _ in beat.left] == [1]
    assert parent.pauses == (Pause("rate-limited", LATER.timestamp()),)
    assert LocalExecutor().pauses == ()


def _spec(root: Path) -> TrialSpec:
    folder = root / "waiting"
    folder.mkdir()
    folder.joinpath("agent.py").write_text(WAITING)
    ref = AgentRef("waiting", "waiting.agent:root_agent", root=str(root), folder=str(folder))
    return TrialSpec(1, 0, 0, Case("c", (Turn("hi"),)), ref, ())
