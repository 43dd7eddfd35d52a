"""Exceptions of frameworks that are outcomes of a turn: a guardrail that trips, a refusal, a limit of usage.

They are known by the names of their classes, so that agents of all frameworks, also inside of a function, are read
alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.model import ErrorRecord, Event
from evaldesk.model.transcript import REFUSED_BY

GUARDRAIL = "GuardrailTripwireTriggered"
"""The end of the names of four exceptions of the OpenAI Agents SDK, and of the one of openai-guardrails."""
MAX_NAME = 100


def outcome_of(error: BaseException) -> Event | None:
    """The event that ends a turn by the outcome that the exception stands for; None for a failure."""
    for each in _chain(error):
        name = type(each).__name__
        if name.endswith(GUARDRAIL):
            return _event("refused_by_guardrail", f"{REFUSED_BY}{guardrail_name(each)[:MAX_NAME]}")
        if name == "ModelRefusalError":  # of the OpenAI Agents SDK
            return _event("refused_by_model", f"the model refused: {getattr(each, 'refusal', None) or each}")
        if name == "ContentFilterError":  # of pydantic-ai
            return _event("content_filter", str(each))
        if name == "UsageLimitExceeded":  # of pydantic-ai
            return _event("usage_limit", str(each))
    return None


def guardrail_name(error: Any) -> str:
    """The name that its author gave the guardrail, or that of its function."""
    result = getattr(error, "guardrail_result", None)
    guardrail = getattr(error, "guardrail", None) or getattr(result, "guardrail", None)
    if guardrail is not None and hasattr(guardrail, "get_name"):
        return str(guardrail.get_name())
    info = getattr(result, "info", None)
    own_name = info.get("guardrail_name") if isinstance(info, dict) else None
    return str(own_name or getattr(guardrail, "name", "") or type(guardrail or error).__name__)


def _event(kind: str, words: str) -> Event:
    return Event("error", error=ErrorRecord(kind, words))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, those of its group, and those that it was raised from."""
    seen_ids: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop(0)
        if each is None or id(each) in seen_ids:
            continue
        seen_ids.add(id(each))
        yield each
        todo += [*getattr(each, "exceptions", ()), each.__cause__]
