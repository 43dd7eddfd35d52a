"""The refusals of an endpoint, as our own client raises them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaldesk.codec import msgspec

MAX_SHOWN = 1000
MAX_TOKENS, MAX_COMPLETION = "max_tokens", "max_completion_tokens"
"""The same limit; reasoning models know the second name alone."""


class BrokenAnswerError(Exception):
    """An answer that says all is well and has nothing in it."""

    status_code = 200


class EndpointError(Exception):
    """An error status, with the message of its `body`; `key_name` is the variable that would hold the key."""

    def __init__(
        self, status_code: int, answer: bytes, headers: Mapping[str, str] | None = None, key_name: str = ""
    ) -> None:
        self.body = answer.decode("utf-8", "replace")
        super().__init__(_message(answer) or self.body[:MAX_SHOWN] or f"the endpoint answered {status_code}")
        self.status_code = status_code
        self.headers = headers or {}
        self.key_name = key_name


def _message(answer: bytes) -> str:
    """The sentence in OpenAI's, vLLM's or Ollama's shape of an error; empty where there is none."""
    try:
        found: Any = msgspec.json.decode(answer)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    for name in ("error", "message"):
        found = found.get(name, found) if isinstance(found, Mapping) else found
    return found if isinstance(found, str) else ""
