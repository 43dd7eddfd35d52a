"""Requests and tokens a minute: one limit for each model, whoever asks it."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.agents.answering import answering
from tests.agents.test_reasoning_models import FRAMEWORK, answer

from evaldesk.engine.worker.attempt import Attempt
from evaldesk.llm import pacing
from evaldesk.llm.pacing import Pace
from evaldesk.llm.retry_events import CURRENT_LISTENER, waiting_s
from evaldesk.model import ModelOptions, Session

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pacing, "_process_books", {})


def waits(pace: Pace, *moments: float, model: str = "openai/small") -> list[float]:
    return [round(pace.wait_s(model, lambda at=moment: NOW + at), 3) for moment in moments]  # type: ignore[misc]


def test_each_request_books_the_next_free_time() -> None:
    assert waits(Pace(60, None), 0, 0, 0, 2.5, 10) == [0, 1, 2, 0.5, 0]


def test_a_model_is_one_with_and_without_its_provider_and_another_elsewhere() -> None:
    pace = Pace(60, None)

    assert waits(pace, 0, model="openai/small") + waits(pace, 0, model="small") == [0, 1]
    assert waits(pace, 0, model="openai/large") == [0]
    assert waits(Pace(60, None, "http://127.0.0.1:9/v1"), 0) == [0]


def test_used_tokens_delay_the_next_request() -> None:
    pace = Pace(None, 600)  # ten a second, a hundred at once
    first = waits(pace, 0)
    pace.book_tokens("small", 300, lambda: NOW)

    assert (first, waits(pace, 0)) == ([0], [20])


def test_a_request_larger_than_the_limit_is_sent() -> None:
    pace = Pace(None, 60)
    waits(pace, 0)
    pace.book_tokens("small", 6_000, lambda: NOW)

    assert waits(pace, 0) == [3_590]


def test_a_booking_far_in_the_future_is_not_waited_for() -> None:
    pace = Pace(60, None)
    waits(pace, 0)

    assert waits(pace, -10_000_000) == [3_600]


def _book(folder: str, n: int, queue: Any) -> None:
    tempfile.tempdir = folder
    pace = Pace(60, None)
    queue.put([pace.wait_s("small", lambda: NOW) for _ in range(n)])


def test_processes_share_a_limit(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_book, args=(str(tmp_path), 25, queue)) for _ in range(4)]
    for worker in workers:
        worker.start()
    found = [each for _ in workers for each in queue.get(timeout=300)]
    for worker in workers:
        worker.join()

    assert sorted(round(each) for each in found) == list(range(100))


@pytest.mark.parametrize("how", ["others may write", "a link", "no folder"])
def test_a_shared_folder_is_not_used(tmp_path: Path, how: str) -> None:
    folder = tmp_path / f"evaldesk-{os.getuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if how == "others may write":
        folder.mkdir()
        folder.chmod(0o777)
    elif how == "a link":
        folder.symlink_to(elsewhere)
    else:
        folder.write_text("")

    assert waits(Pace(60, None), 0, 0) == [0, 1]
    assert not list(elsewhere.iterdir())
    assert not folder.is_dir() or not list(folder.iterdir())


OWN = 'from evaldesk import LlmAgent\nroot_agent = LlmAgent(name="small", model="small", api_base="{address}/v1")\n'


@pytest.mark.anyio
@pytest.mark.parametrize("source", [OWN, FRAMEWORK], ids=["our own calls", "a client of the agent's own"])
async def test_calls_of_a_turn_keep_the_rate_limit_and_report_waits(
    loaded: Any, played: Any, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    booked: list[tuple[int | None, str]] = []

    def wait_s(pace: Pace, model: str) -> float:
        booked.append((pace.rpm, model))
        return 0.001

    monkeypatch.setattr(Pace, "wait_s", wait_s)
    told: list[Any] = []
    CURRENT_LISTENER.set(told.append)
    with answering() as (address, server):
        server.gives({"id": "x", "object": "chat.completion", "created": 0, "model": "small", **answer()})
        agent = loaded(source.format(address=address))

        turn = await played(agent, Session("s", model_options=ModelOptions(rpm=30)), "hi")

    assert (turn.error, turn.answer) == (None, "hello")
    assert booked == [(30, "small")]
    assert [wait.why for wait in told] == ["paced"]
    assert [usage.n_attempts for usage in turn.usages] == [1]


@pytest.mark.anyio
async def test_tokens_of_an_answer_are_booked_once(loaded: Any, played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[int] = []
    monkeypatch.setattr(Pace, "book_tokens", lambda pace, model, n_tokens: spent.append(n_tokens))
    with answering() as (address, server):
        server.gives(answer())
        agent = loaded(OWN.format(address=address))

        await played(agent, Session("s", model_options=ModelOptions(tpm=1_000)), "hi")

    assert spent == [7]


def test_the_time_that_a_trial_waits_for_a_limit_is_not_its_own() -> None:
    attempt = Attempt(clock=lambda: 0.0)
    attempt.begin("play", 10)
    CURRENT_LISTENER.set(attempt.waits)
    pace = Pace(60, None)
    waiting_s(pace, "small")

    seconds = waiting_s(pace, "small")

    assert 0.5 < seconds <= 1
    assert attempt.seconds_left == pytest.approx(10 + seconds)
