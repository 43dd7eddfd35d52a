"""Faults of model endpoints that a run asks for, to see how its agent copes: drawn for each call, and said.

They are injected where a call of the agent is seen: in our own client, in HTTP libraries that agents bring, and at the
model gateway. An equal trial has equal faults, as its seed decides. (decision 194)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random

SLOW_S = 5.0
"""So many seconds later comes a slow answer."""
SLOW, TIMEOUT, TRUNCATED, MALFORMED = "slow", "timeout", "truncated", "malformed"
STATUS = {"rate_limit": 429, "server_error": 500}
"""The faults that are answers of the endpoint, and their status."""
WORDS = {
    **{name: f"HTTP {status}" for name, status in STATUS.items()},
    TIMEOUT: "no answer",
    SLOW: f"an answer {SLOW_S:g} s late",
    TRUNCATED: "an answer that breaks off",
    MALFORMED: "an answer that cannot be read as JSON",
}
FAULTS_BEFORE_REQUEST = frozenset({*STATUS, TIMEOUT, MALFORMED})
"""The faults of an endpoint that does not read the request."""
INJECTED = "Injected fault in request "
"""How the remark on an injected fault begins."""
_KINDS = {429: "rate_limit_error", 500: "api_error"}
_BROKEN = b'{"id": "injected", "choices": [{"message": {"role": "assistant", "content": '


def draw_fault(shares: Iterable[tuple[str, float]], seed: str) -> str:
    """The fault of the call with that seed; empty for none."""
    remainder = Random(seed).random()  # noqa: S311
    for name, share in shares:
        remainder -= share
        if remainder < 0:
            return name
    return ""


def refusal_body(status: int) -> bytes:
    """The body of an endpoint's answer with that status, in a form that all SDKs read."""
    kind = _KINDS[status]
    error = {"type": kind, "code": kind, "message": f"HTTP {status}: a fault that the run asks Evaldesk to inject"}
    return json.dumps({"type": "error", "error": error}).encode()


def malformed_body(*, is_stream: bool) -> tuple[str, bytes]:
    """The kind and the body of an answer that no client can read."""
    return ("text/event-stream", b"data: " + _BROKEN + b"\n\n") if is_stream else ("application/json", _BROKEN)
