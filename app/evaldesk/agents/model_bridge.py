"""An OpenAI-compatible endpoint on loopback for agents with their own client; it calls the run's model.

A streaming client gets the answer in one chunk.

One server for the process, one key for each turn: a call belongs to the turn of its key.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from evaldesk.agents.local_server import LocalHandler, LocalServer
from evaldesk.agents.message_events import MessageEvents
from evaldesk.agents.own.model_calls import ask_and_report, reply_usage
from evaldesk.errors import EvaldeskError
from evaldesk.llm.apis import OWN_ADDRESSES
from evaldesk.model import Session

MAX_BODY = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bridge:
    """The address and the key of one turn at the endpoint."""

    address: str
    key: str
    session: Session
    events: MessageEvents
    loop: asyncio.AbstractEventLoop

    async def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """One chat completion. Raises EvaldeskError."""
        messages = body.get("messages") or []
        options = {name: value for name, value in body.items() if name not in {"messages", "tools", "model"}}
        reply, message = await ask_and_report(self.session, self.events, messages, body.get("tools") or (), options)
        return {
            "id": "chatcmpl-evaldesk",
            "object": "chat.completion",
            "created": 0,
            "model": reply.usage.model,
            "choices": [{"index": 0, "message": {"content": None, **message}, "finish_reason": reply.finish_reason}],
            "usage": reply_usage(reply),
        }


@asynccontextmanager
async def open_bridge(session: Session, events: MessageEvents) -> AsyncIterator[Bridge]:
    """The endpoint of the turn; its key is invalid after the context."""
    address = _SERVER.address
    OWN_ADDRESSES.add(address.removeprefix("http://"))
    bridge = Bridge(f"{address}/v1", secrets.token_urlsafe(16), session, events, asyncio.get_running_loop())
    _bridges[bridge.key] = bridge
    try:
        yield bridge
    finally:
        del _bridges[bridge.key]


class _Handler(LocalHandler):
    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        bridge = _bridges.get(self.headers.get("authorization", "").removeprefix("Bearer ").strip())
        if bridge is None:
            self._refuse(401, "the turn of this key has ended", "authentication_error")
            return
        try:
            length = min(int(self.headers.get("content-length") or 0), MAX_BODY)
            body = json.loads(self.rfile.read(length))
            is_streaming = bool(body.pop("stream", False))
            body.pop("stream_options", None)
            completion = asyncio.run_coroutine_threadsafe(bridge.answer(body), bridge.loop)
            if is_streaming:
                self.answer(200, stream_body(completion.result()), "text/event-stream")
            else:
                self.answer(200, json.dumps(completion.result()).encode())
        except (ValueError, AttributeError):
            self._refuse(400, "the body is not a JSON object", "bad_request")
        except EvaldeskError as error:
            self._refuse(502, str(error), getattr(error, "kind", "model"))

    def _refuse(self, status: int, message: str, kind: str) -> None:
        self.answer(status, json.dumps({"error": {"message": message, "type": kind, "code": kind}}).encode())


_SERVER = LocalServer("evaldesk-bridge", _Handler)
_bridges: dict[str, Bridge] = {}


def stream_body(completion: dict[str, Any]) -> bytes:
    """The completion in one piece, then its finish reason, its usage, and the end of the stream."""
    chunks = (json.dumps(chunk).encode() for chunk in _chunks(completion))
    return b"".join(b"data: " + chunk + b"\n\n" for chunk in (*chunks, b"[DONE]"))


def _chunks(completion: dict[str, Any]) -> Iterator[dict[str, Any]]:
    common = {**completion, "object": "chat.completion.chunk"}
    usage = common.pop("usage", None)
    [choice] = completion["choices"]
    message = dict(choice["message"])
    calls = message.pop("tool_calls", None) or ()
    delta = {**message, "tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]}
    yield {**common, "choices": [{"index": 0, "delta": delta if calls else message, "finish_reason": None}]}
    yield {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if usage is not None:
        yield {**common, "choices": [], "usage": usage}
