"""The model calls of a trial while it is played or graded: each as it was sent, and its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.errors import EvaldeskError
from evaldesk.llm.apis import api_of, model_in
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.retry_events import HttpCall, TurnListener, body_of
from evaldesk.model import JsonObject, Usage
from evaldesk.model.prompts import FAILED
from evaldesk.model.transcript import UNKNOWN, Role
from evaldesk.secrets import mask_values
from evaldesk.transcripts.model_exchanges import Exchange, ModelRequest, read_exchange, read_request
from evaldesk.transcripts.prompt_writer import CallPlace, PromptWriter


def sent_by_us(call: ModelCall) -> ModelRequest:
    """A call of our own in its parts."""
    extra = {name: value for name, value in mask_values(call.extra).items() if value is not None}
    return ModelRequest(tuple(call.messages), list(call.tools) or None, {"model": call.model, **call.settings, **extra})


def said_to_us(reply: ModelReply) -> dict[str, Any]:
    """The answer to a call of our own, in the shape of its messages."""
    calls = [*_calls(reply)]
    return {"role": "assistant", "content": reply.text or None, **({"tool_calls": calls} if calls else {})}


def _calls(reply: ModelReply) -> Iterator[dict[str, Any]]:
    for call in reply.tool_calls:
        yield {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


@dataclass(frozen=True)
class CallsAside(TurnListener):
    """Keeps the model calls of a simulated user or of judges, each where `place` says, and notes no more of them."""

    role: Role
    prompts: PromptWriter
    place: Callable[[], CallPlace]

    def note_reply(self, call: ModelCall | None = None, reply: ModelReply | None = None) -> None:
        """Keep a call of ours."""
        if call and reply:
            self._keep(reply.usage, sent_by_us(call), said_to_us(reply))

    def note_answer(self, call: HttpCall) -> None:
        """Keep a call of a client."""
        request = body_of(call.request)
        usage, exchange = read_seen(call, request)
        self._keep(usage, read_request(request), exchange.raw_answer if exchange else None)

    def note_failure(self, call: ModelCall | HttpCall, why: str, duration_ms: float) -> None:
        """Keep a call that failed."""
        model, request = sent_parts(call)
        self._keep(Usage(model, duration_ms=duration_ms), request, {FAILED: why})

    def _keep(self, usage: Usage, request: ModelRequest, answer: object) -> None:
        self.prompts.add(self.place(), replace(usage, role=self.role), request, answer)


def untold_of(usages: Sequence[Usage], reported_usages: Sequence[Usage], n_told: int) -> list[bool]:
    """The usages of unreported calls: their number by count alone, their choice by tokens."""
    n_by_tokens = Counter((usage.tokens_in, usage.tokens_out) for usage in reported_usages)
    is_reported: list[bool] = []
    for usage in usages:
        tokens = usage.tokens_in, usage.tokens_out
        is_reported.append(n_by_tokens[tokens] > 0)
        n_by_tokens[tokens] -= 1
    news = set(sorted(range(len(usages)), key=lambda at: is_reported[at])[: max(len(usages) - n_told, 0)])
    return [at in news for at in range(len(usages))]


def read_seen(call: HttpCall, request: JsonObject) -> tuple[Usage, Exchange | None]:
    """The usage that the answer tells, and the call; "at least" and None where it tells none, or cannot be read."""
    api = api_of(call.path)
    try:
        assert api  # noqa: S101 - no other path is told
        exchange = read_exchange(api, call.path, dict(request), call.answer)
        tokens = exchange.tokens
        if tokens is None:
            return replace(UNKNOWN, model=exchange.model or "unknown", duration_ms=call.duration_ms), exchange
        usage = Usage(
            exchange.model,
            tokens_in=tokens.tokens_in,
            tokens_out=tokens.tokens_out,
            duration_ms=call.duration_ms,
            tokens_cached=tokens.cached,
            tokens_reasoning=tokens.reasoning,
        )
    except (EvaldeskError, ValueError, LookupError, TypeError, AttributeError, RecursionError):  # of any shape
        return replace(UNKNOWN, duration_ms=call.duration_ms), None
    return usage, exchange


def sent_parts(call: ModelCall | HttpCall) -> tuple[str, ModelRequest]:
    """The model of a call, and its request."""
    if isinstance(call, ModelCall):
        return call.model, sent_by_us(call)
    request = body_of(call.request)
    return str(request.get("model") or model_in(call.path)), read_request(request)
