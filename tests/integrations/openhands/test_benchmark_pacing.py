"""Requests and tokens a minute of a benchmark: its instances share the limit of all."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.agents.answering import answering
from tests.agents.test_reasoning_models import answer
from tests.integrations.openhands.test_benchmark import row, spec

from evaldesk.engine import play_trial
from evaldesk.llm import pacing
from evaldesk.llm.retry_events import CURRENT_LISTENER
from evaldesk.model import ModelOptions


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pacing, "_process_books", {})


KIT = """
from evaluation.utils.shared import EvalOutput
from openhands.core.config import AppConfig
from openhands.core.main import run_controller
from openhands.events.action import MessageAction

def process_instance(instance, metadata, reset_logger=True):
    for _ in range(2):
        run_controller(config=AppConfig(), initial_user_action=MessageAction("hi")).history
    return EvalOutput(instance_id="a", test_result={})
"""
CLIENT = """
import threading, openai

def process_instance(instance, metadata):
    def ask():
        client = openai.OpenAI(base_url=instance.address + "/v1", api_key="none")
        client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}])
    for _ in range(2):
        BEGIN
    return {"test_result": {}}
"""
BENCHMARKS = {
    "its agent": KIT,
    "a client": CLIENT.replace("BEGIN", "ask()"),
    "a client in a thread": CLIENT.replace("BEGIN", "(it := threading.Thread(target=ask)).start() or it.join()"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", BENCHMARKS)
async def test_the_process_of_an_instance_keeps_to_the_limit_of_all(loaded: Any, tmp_path: Path, kind: str) -> None:
    told: list[Any] = []
    CURRENT_LISTENER.set(told.append)
    with answering() as (address, server):
        for _ in range(2):
            server.gives({"id": "x", "object": "chat.completion", "created": 0, "model": "small", **answer()})
        agent = loaded(BENCHMARKS[kind], "process_instance")
        options = ModelOptions(base_url=f"{address}/v1", rpm=30, tpm=10_000)
        asked = spec(row(address=address), model="small", model_options=options)

        result = await play_trial(agent, asked)

    assert result.error is None, result.error
    assert len(server.asked) == 2
    assert [(wait.why, 0 < wait.seconds <= 2) for wait in told] == [("paced", True)]
    (books,) = tmp_path.glob("evaldesk-*")
    assert len(list(books.iterdir())) == 1
