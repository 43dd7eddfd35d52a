"""A chat completion as the events of a stream, for clients that ask for nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def streamed(completion: dict[str, Any]) -> bytes:
    """The completion in one piece, then why it ended, what it took, and the end of the stream."""
    return b"".join(b"data: " + said + b"\n\n" for said in (*map(_encoded, _chunks(completion)), b"[DONE]"))


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


def _encoded(chunk: dict[str, Any]) -> bytes:
    return json.dumps(chunk).encode()
