"""Live sessions of google-adk, text in and out: the turns of a session go over one run of `Runner.run_live`.

(reference/live.md section 2, step 1; google-adk 2.13 evaluation/evaluation_generator.py)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from evaldesk.agents.agent import SessionResource
from evaldesk.errors import AgentError

MEMORY, WITNESS = "adk_live", "adk_live_witness"
"""The keys of the connection, and of its witness, in the memory of a session."""
NORMAL_CLOSURE = 1000  # of a WebSocket


class LiveSilentError(AgentError):
    """The model did not complete its turn in time."""


@dataclass(slots=True)
class LiveConnection(SessionResource):
    """The live run of a session. Its events are kept until the turn that they belong to takes them."""

    run: Any
    requests: Any
    loop: asyncio.AbstractEventLoop
    _events: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    _task: asyncio.Task[None] | None = None
    _failure: BaseException | None = None
    _has_ended: bool = False

    def start(self) -> None:
        """Begin to receive."""
        self._task = self.loop.create_task(self._receive())

    @property
    def is_open(self) -> bool:
        """Whether a turn can be sent on this loop."""
        return not self._has_ended and self.loop is asyncio.get_running_loop()

    async def turn(self, content: Any, timeout_s: float) -> AsyncGenerator[Any]:
        """Send a message; the events of google-adk until the model has completed its turn.

        Raises LiveSilentError without that in `timeout_s`, and the exception that ended the live run.
        """
        self.requests.send_content(content)
        has_open_call = False
        end_s = self.loop.time() + timeout_s
        while True:
            try:
                event = await asyncio.wait_for(self._events.get(), max(end_s - self.loop.time(), 0.0))
            except TimeoutError:
                sentence = f"the live model did not complete its turn within {timeout_s:g} s (live_timeout_s)"
                raise LiveSilentError(sentence) from None
            if event is None:
                if self._failure:
                    raise self._failure
                return
            yield event
            # A model ends the part of its turn that calls tools, too; its answer to the results comes after that.
            if event.get_function_calls():
                has_open_call = True
            elif _text_of(event):
                has_open_call = False
            if event.turn_complete and event.author != "user" and not has_open_call:
                return

    def close(self) -> None:
        """End the live run."""
        self.requests.close()
        task = self._task
        if task is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(task.cancel)

    async def _receive(self) -> None:
        try:
            async with aclosing(self.run) as events:
                async for event in events:
                    self._events.put_nowait(event)
        except Exception as error:  # of the connection or of a tool: the turn raises it
            self._failure = None if _is_normal_closure(error) else error
        finally:
            self._has_ended = True
            self._events.put_nowait(None)


def run_config() -> Any:
    """The configuration of ADK's evaluation: audio with transcripts, and a user whose turns have explicit ends."""
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.genai import types

    detection = types.AutomaticActivityDetection(disabled=True)
    return RunConfig(
        streaming_mode=StreamingMode.BIDI,
        response_modalities=["AUDIO"],
        output_audio_transcription=types.AudioTranscriptionConfig(),
        input_audio_transcription=types.AudioTranscriptionConfig(),
        realtime_input_config=types.RealtimeInputConfig(automatic_activity_detection=detection),
    )


def request_queue() -> Any:
    """An empty queue of requests to a live model."""
    from google.adk.agents.live_request_queue import LiveRequestQueue

    return LiveRequestQueue()


def as_text(event: Any) -> Any:
    """The event with a transcript as its text, as ADK's evaluation reads it, and without sound."""
    content = event.content
    if content is not None:
        parts = [part for part in content.parts or () if not _is_sound(part)]
        return event if len(parts) == len(content.parts or ()) else _with_parts(event, content.role, parts)
    text = "" if event.partial else _transcript(event)
    if not text:
        return event
    from google.genai import types

    return _with_parts(event, "user" if event.author == "user" else "model", [types.Part(text=text)])


def _with_parts(event: Any, role: str | None, parts: list[Any]) -> Any:
    from google.genai import types

    return event.model_copy(update={"content": types.Content(role=role, parts=parts)})


def _is_sound(part: Any) -> bool:
    return bool(part.inline_data and str(part.inline_data.mime_type).startswith("audio/"))


def _transcript(event: Any) -> str:
    transcription = event.input_transcription or event.output_transcription
    return (transcription.text or "") if transcription else ""


def _text_of(event: Any) -> bool:
    """Whether the agent says something in the event, in text or in a transcript."""
    if event.author == "user":
        return False
    parts = (event.content.parts if event.content else None) or ()
    return bool(_transcript(event)) or any(part.text and not part.thought for part in parts)


def _is_normal_closure(error: BaseException) -> bool:
    """Whether the provider closed the session in order (websockets ConnectionClosedOK, or an APIError with 1000)."""
    return type(error).__name__ == "ConnectionClosedOK" or getattr(error, "code", None) == NORMAL_CLOSURE
