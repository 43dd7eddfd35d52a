"""Fault injection into model calls: faults of endpoints, drawn for each call by the shares of the run.

They are injected in our own client, in HTTP libraries of agents, and in the model gateway. The seed of a trial decides:
equal trials have equal faults. (decision 194)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random

SLOW_S = 5.0
"""Delay of a slow answer."""
SLOW, TIMEOUT, TRUNCATED, MALFORMED = "slow", "timeout", "truncated", "malformed"
STATUS = {"rate_limit": 429, "server_error": 500}
"""The faults with an HTTP error status."""
WORDS = {
    **{name: f"HTTP {status}" for name, status in STATUS.items()},
    TIMEOUT: "no answer",
    SLOW: f"an answer {SLOW_S:g} s late",
    TRUNCATED: "an answer that breaks off",
    MALFORMED: "an answer that cannot be read as JSON",
}
FAULTS_BEFORE_REQUEST = frozenset({*STATUS, TIMEOUT, MALFORMED})
"""The faults without a request to the endpoint."""
INJECTED = "Injected fault in request "
"""Start of the log text about an injected fault."""
_KINDS = {429: "rate_limit_error", 500: "api_error"}
_BROKEN = b'{"id": "injected", "choices": [{"message": {"role": "assistant", "content": '


def draw_fault(shares: Iterable[tuple[str, float]], seed: str) -> str:
    """Draw the fault of a call by its seed; empty for none."""
    remainder = Random(seed).random()  # noqa: S311
    for name, share in shares:
        remainder -= share
        if remainder < 0:
            return name
    return ""


def faulty_answer(fault: str, *, is_stream: bool) -> tuple[int, str, bytes]:
    """The status, the content type and the body of an answer with a fault before the request, which is no timeout."""
    if fault in STATUS:
        return STATUS[fault], "application/json", refusal_body(STATUS[fault])
    return 200, *malformed_body(is_stream=is_stream)


def refusal_body(status: int) -> bytes:
    """The body of an endpoint's answer with that status, in a form that all SDKs read."""
    kind = _KINDS[status]
    error = {"type": kind, "code": kind, "message": f"HTTP {status}: a fault that the run asks Evaldesk to inject"}
    return json.dumps({"type": "error", "error": error}).encode()


def malformed_body(*, is_stream: bool) -> tuple[str, bytes]:
    """The content type and the body of a malformed answer."""
    return ("text/event-stream", b"data: " + _BROKEN + b"\n\n") if is_stream else ("application/json", _BROKEN)
