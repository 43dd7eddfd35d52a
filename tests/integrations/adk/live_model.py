"""A live model of google-adk that answers by a script, and random scripts in the shapes of the Live API.

A turn is a list of parts. The first part answers the user, each further one the results of the tools that the part
before called. Events of a part are `("text", "...")`, `("said", "...")` for a transcript, `("piece", "...")` for a
partial one, `("heard", "...")`, `("call", name, args)`, `("interrupted",)` and `("complete",)`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from google.adk.models.base_llm import BaseLlm
from google.adk.models.base_llm_connection import BaseLlmConnection
from google.adk.models.llm_response import LlmResponse
from google.genai import types

Part: TypeAlias = list[tuple[Any, ...]]
Turn: TypeAlias = list[Part]


class ScriptedConnection(BaseLlmConnection):  # type: ignore[misc] # the package may be missing
    """Gives the next part of the script for each message of the user, and for the results of each call."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = list(turns)
        self.parts: list[Part] = []
        self.ready: asyncio.Queue[Part | None] = asyncio.Queue()
        self.messages: list[str] = []
        self.answered_ids: set[str] = set()

    async def send_history(self, history: list[types.Content]) -> None:
        self.messages += [part.text for content in history for part in content.parts or () if part.text]

    async def send_content(self, content: types.Content) -> None:
        results = [part.function_response for part in content.parts or () if part.function_response]
        if results:
            # ADK's evaluation calls each tool once more than the runner does, and sends the second result, too.
            new_ids = {result.id for result in results} - self.answered_ids
            self.answered_ids |= new_ids
            if new_ids and self.parts:
                self.ready.put_nowait(self.parts.pop(0))
            return
        self.messages += [part.text for part in content.parts or () if part.text]
        self.parts = list(self.turns.pop(0)) if self.turns else []
        if self.parts:
            self.ready.put_nowait(self.parts.pop(0))

    async def send_realtime(self, blob: Any) -> None:
        raise AssertionError("no sound is sent")

    async def receive(self) -> AsyncIterator[LlmResponse]:
        part = await self.ready.get()
        for event in part or ():
            yield _response(event, len(self.answered_ids))

    async def close(self) -> None:
        self.ready.put_nowait(None)


class ScriptedLive(BaseLlm):  # type: ignore[misc] # the package may be missing
    """A live model with a script, that notes its connections."""

    turns: list[Turn] = []  # noqa: RUF012 - a field of pydantic
    connections: list[Any] = []  # noqa: RUF012

    @asynccontextmanager
    async def connect(self, llm_request: Any) -> AsyncIterator[BaseLlmConnection]:
        connection = ScriptedConnection(self.turns)
        self.connections.append(connection)
        yield connection

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        raise AssertionError("a live model has no single calls")
        yield


def _response(event: tuple[Any, ...], number: int) -> LlmResponse:
    kind, *values = event
    if kind == "call":
        name, args = values
        call = types.FunctionCall(id=f"call-{number}-{name}", name=name, args=args)
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))
    if kind == "text":
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=values[0])]))
    if kind == "sound":
        blob = types.Blob(data=values[0], mime_type="audio/pcm;rate=24000")
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(inline_data=blob)]))
    if kind == "said":
        return LlmResponse(output_transcription=types.Transcription(text=values[0], finished=True))
    if kind == "piece":
        return LlmResponse(output_transcription=types.Transcription(text=values[0], finished=False), partial=True)
    if kind == "heard":
        return LlmResponse(input_transcription=types.Transcription(text=values[0], finished=True))
    return LlmResponse(interrupted=True) if kind == "interrupted" else LlmResponse(turn_complete=True)


def random_turns(chance: random.Random) -> list[Turn]:
    """One to three turns, with calls of `roll` between what is said."""
    return [_random_turn(chance, number) for number in range(chance.randint(1, 3))]


def _random_turn(chance: random.Random, number: int) -> Turn:
    parts: Turn = []
    for call in range(chance.randint(0, 2)):
        before = [("said", f"wait {call}")] if chance.random() < 0.3 else []
        parts.append([*before, ("call", "roll", {"sides": chance.randint(2, 20)}), ("complete",)])
    words = f"answer {number} {chance.randint(0, 9)}"
    answer: Part = [("piece", words[:3]), ("piece", words[3:])] if chance.random() < 0.5 else []
    if chance.random() < 0.3:
        answer += [("sound", b"\0\1" * 8)]
    answer += [(chance.choice(["said", "text"]), words)]
    if chance.random() < 0.2:
        answer += [("interrupted",)]
    parts.append([*answer, ("complete",)])
    return parts
