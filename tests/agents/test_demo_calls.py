"""Calls of the scripted model need no LiteLLM, and say the same through it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import ModelError
from evaldesk.llm import ModelCall, RetryPolicy, complete, is_direct
from evaldesk.llm.attempts import is_demo
from evaldesk.llm.client import open_litellm
from evaldesk.model import JsonObject

CHECKOUT = Path(__file__).resolve().parents[2]
MODELS = ("demo/dice?mistakes=1&delay_ms=0", "demo/dice?mistakes=0&delay_ms=0", "demo/trips?delay_ms=0", "demo/nothing")
TOOLS: list[JsonObject] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("roll_die", "check_prime")
]
ASKED: JsonObject = {"role": "user", "content": "Roll two dice, d6 and d8."}
ROLLED: list[JsonObject] = [
    ASKED,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1_0", "type": "function", "function": {"name": "roll_die", "arguments": '{"sides": 6}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1_0", "content": "4"},
]
FAULTS = ("pretends to be overloaded", "no scripted model 'nothing'")  # LiteLLM wraps the first in names of its own
QUICK = RetryPolicy(n_attempts=2, first_wait_s=0.001)
CALLS = [
    ModelCall(model, messages, TOOLS, seed=seed)
    for model in MODELS
    for messages in ([ASKED], ROLLED, [{"role": "user", "content": "Hi, who are you?"}])
    for seed in range(12 if "=1" in model else 2)
]


async def answers() -> list[Any]:
    """Every call, whole and streamed: the reply and its pieces, or the error."""
    found: list[Any] = []
    for call in CALLS:
        for is_streamed in (False, True):
            pieces: list[str] = []
            try:
                reply = await complete(call, pieces.append if is_streamed else None, retry_policy=QUICK)
            except ModelError as error:
                found.append(
                    ["error", next(words for words in FAULTS if words in str(error)), error.kind, error.is_fatal]
                )
                continue
            calls = [[each.id, each.name, each.arguments] for each in reply.tool_calls]
            usage = [reply.usage.tokens_in, reply.usage.tokens_out, reply.usage.cost, reply.usage.n_attempts]
            found.append([reply.text, calls, usage, reply.finish_reason, pieces])
    return found


PROGRAM = """
import asyncio, json, sys
from evaldesk.llm import warm
from tests.agents.test_demo_calls import CALLS, answers
for call in CALLS:
    warm(call)
found = asyncio.run(answers())
json.dump(["litellm" in sys.modules, found], sys.stdout)
"""


@pytest.mark.server
def test_the_scripted_model_says_the_same_with_and_without_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert said.returncode == 0, said.stderr
    has_litellm, without = json.loads(said.stdout)
    monkeypatch.setattr("evaldesk.llm.attempts.is_demo", lambda _: False)
    through_litellm = json.loads(json.dumps(asyncio.run(answers())))
    assert not has_litellm
    assert without == through_litellm
    kinds = [each[0] == "error" for each in through_litellm]
    assert any(kinds)
    assert not all(kinds)
    assert {each[1] for each in through_litellm if each[0] == "error"} == set(FAULTS)
    assert any(each[1] for each in through_litellm if each[0] != "error")
    assert any(each[4] for each in through_litellm if each[0] != "error")


def test_callbacks_of_litellm_get_the_calls_of_the_demo_model(monkeypatch: pytest.MonkeyPatch) -> None:
    call = CALLS[0]
    assert is_demo(call)

    monkeypatch.setattr(open_litellm(), "success_callback", [print])

    assert not is_demo(call)
    assert not is_direct(call)
