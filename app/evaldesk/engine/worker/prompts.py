"""The model calls of a trial while it is played: each as it was sent, gathered once, with bounds, and its tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from threading import Lock
from typing import Any

from evaldesk.errors import EvaldeskError
from evaldesk.llm import price
from evaldesk.llm.apis import api_of, model_in
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.pacing import Pace
from evaldesk.llm.retry_events import RetryWait, SeenCall
from evaldesk.model import Capture, JsonObject, JsonValue, Prompt, Prompts, Usage
from evaldesk.model.prompts import FAILED
from evaldesk.transcripts.model_exchanges import Exchange, Sent, read_exchange, sent_of
from evaldesk.wire import plain, to_json

MAX_CALLS = 2_000
MAX_BYTES = 1024 * 1024
MAX_TEXT = 50_000
MAX_PART = 200_000
DIGESTED = 64
LOOKS_BACK = 8
"""A call is compared with so many before it: those of agents that take turns begin alike, not with the very last."""


@dataclass(slots=True)
class PromptWriter:
    """Keeps of each call what earlier ones did not say. Any thread may add one."""

    _parts: list[JsonValue] = field(default_factory=list)
    _places: dict[bytes, int] = field(default_factory=dict)
    _calls: list[Prompt] = field(default_factory=list)
    _recent: list[tuple[int, list[int]]] = field(default_factory=list)
    _n_bytes: int = 0
    _n_left_out: int = 0
    _lock: Lock = field(default_factory=Lock)

    def add(self, turn: int, at_ms: float, usage: Usage, sent: Sent, said: object) -> None:
        """Keep a call; one for which there is no room is counted."""
        with self._lock:
            values = (*sent.messages, sent.tools, sent.settings or None, said)
            keys = [_key(value) for value in values]
            found = zip(keys, values, strict=True)
            new = {key: _bounded(value) for key, value in found if key and key not in self._places}
            n_bytes = sum(len(to_json(part)) for part in new.values())
            if len(self._calls) >= MAX_CALLS or self._n_bytes + n_bytes > MAX_BYTES:
                self._n_left_out += 1
                return
            self._n_bytes += n_bytes
            for key, part in new.items():
                self._places[key] = len(self._parts)
                self._parts.append(part)
            *messages, tools, settings, answer = [self._places[key] if key else -1 for key in keys]
            base, n_kept = self._base(messages)
            self._recent = [*self._recent, (len(self._calls), messages)][-LOOKS_BACK:]
            self._calls.append(
                Prompt(
                    turn,
                    at_ms,
                    usage.duration_ms,
                    plain_model(usage.model),
                    usage.tokens_in,
                    usage.tokens_out,
                    base,
                    n_kept,
                    tuple(messages[n_kept:]),
                    tools,
                    settings,
                    answer,
                    usage.role,
                )
            )

    def has_calls_of(self, turn: int) -> bool:
        """Whether a call of the turn was kept, or left out."""
        return self._n_left_out > 0 or any(call.turn == turn for call in self._calls)

    def prompts(self) -> Prompts | None:
        """All calls so far; None without any."""
        with self._lock:
            if not (self._calls or self._n_left_out):
                return None
            return Prompts(tuple(self._parts), tuple(self._calls), self._n_left_out)

    def _base(self, messages: Sequence[int]) -> tuple[int, int]:
        """The call that begins with the most of the same messages, the newest of several, and how many."""
        alike = [(_n_alike(messages, other), at) for at, other in self._recent]
        n_kept, at = max(alike, default=(0, -1))
        return (at, n_kept) if n_kept else (-1, 0)


def plain_model(name: str) -> str:
    """The name of a model, as long as names are."""
    return name[:200]


def _n_alike(one: Sequence[int], other: Sequence[int]) -> int:
    n = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        n += 1
    return n


def _key(value: object) -> bytes:
    """The JSON of a value, or its digest where that is shorter; empty for None."""
    if value is None:
        return b""
    try:
        data = to_json(value)
    except Exception:  # an object that a framework left in a message
        data = to_json(plain(value))
    return data if len(data) < DIGESTED else blake2b(data, digest_size=20).digest()


def _bounded(value: object) -> JsonValue:
    """A copy of the value with its long texts cut; one that is too long even so is the start of its JSON."""
    part = _cut(plain(value))
    data = to_json(part)
    return part if len(data) <= MAX_PART else f"{data[:MAX_TEXT].decode('utf-8', 'ignore')}…"


def _cut(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}… ({len(value) - MAX_TEXT} more characters)"
    if isinstance(value, Mapping):
        return {key: _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, Sequence) else value


def sent_by_us(call: ModelCall) -> Sent:
    """A call of our own in its parts."""
    asked = {
        "model": call.model,
        "temperature": call.temperature,
        "top_p": call.top_p,
        "max_tokens": call.max_tokens,
        "seed": call.seed,
        **call.extra,
    }
    settings = {name: value for name, value in asked.items() if value is not None}
    return Sent(tuple(call.messages), list(call.tools) or None, settings)


def said_to_us(reply: ModelReply) -> dict[str, Any]:
    """The answer to a call of our own, in the shape of its messages."""
    calls = [*_calls(reply)]
    return {"role": "assistant", "content": reply.text or None, **({"tool_calls": calls} if calls else {})}


def _calls(reply: ModelReply) -> Iterator[dict[str, Any]]:
    for call in reply.tool_calls:
        yield {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


@dataclass(frozen=True, slots=True)
class UserCalls:
    """Keeps the model calls of a simulated user, which come before the turn at `index`; no more is noted of them."""

    index: int
    prompts: PromptWriter
    n_retries: int | None = None
    pace: Pace | None = None
    asked_fields: frozenset[str] = frozenset()

    def fault(self, model: str) -> str:
        """None: they are for the agent."""
        return ""

    def notes(self, text: str) -> None:
        """Nothing."""

    def was_whole(self, call: ModelCall | None = None, reply: ModelReply | None = None) -> None:
        """Keep a call of ours."""
        if call and reply:
            self._keep(reply.usage, sent_by_us(call), said_to_us(reply))

    def asked(self, call: SeenCall) -> None:
        """Keep a call of a client."""
        request = request_of(call)
        usage, exchange = read_seen(call, request)
        self._keep(usage, sent_of(request), exchange.said if exchange else None)

    def unanswered(self, call: ModelCall | SeenCall, why: str, duration_ms: float) -> None:
        """Keep a call that failed."""
        model, sent = sent_parts(call)
        self._keep(Usage(model, duration_ms=duration_ms), sent, {FAILED: why})

    def waits(self, wait: RetryWait, *, is_counted: bool) -> None:
        """Nothing: there is no turn that could tell."""

    def was_cached(self) -> None:
        """Nothing."""

    def passed(self, call: SeenCall) -> None:
        """Nothing: a user has no gateway."""

    def asks(self) -> None:
        """Nothing."""

    def refused(self) -> None:
        """Nothing."""

    def missed_call(self) -> None:
        """Nothing."""

    def captured(self, way: Capture) -> None:
        """Nothing."""

    def _keep(self, usage: Usage, sent: Sent, said: object) -> None:
        self.prompts.add(self.index, 0.0, replace(usage, role="user"), sent, said)


def untold_of(found: Sequence[Usage], told: Sequence[Usage], n_told: int) -> list[bool]:
    """Which usages are of calls that were not told: how many, by their number alone; which, by their tokens."""
    left = Counter((usage.tokens_in, usage.tokens_out) for usage in told)
    known: list[bool] = []
    for usage in found:
        tokens = usage.tokens_in, usage.tokens_out
        known.append(left[tokens] > 0)
        left[tokens] -= 1
    news = set(sorted(range(len(found)), key=lambda at: known[at])[: max(len(found) - n_told, 0)])
    return [at in news for at in range(len(found))]


def priced(usage: Usage) -> Usage:
    if usage.is_least:
        return usage
    return replace(usage, cost=price(usage.model, usage.tokens_in, usage.tokens_out))


UNKNOWN = Usage("unknown", is_least=True)
"""The usage of a call of which nothing is known."""


def read_seen(call: SeenCall, request: JsonObject) -> tuple[Usage, Exchange | None]:
    """The usage that the answer tells, and the call; "at least" and None where it tells none, or cannot be read."""
    api = api_of(call.path)
    try:
        assert api  # noqa: S101 - no other path is told
        exchange = read_exchange(api, call.path, dict(request), call.answer)
        found = exchange.tokens
        if found is None:
            return replace(UNKNOWN, model=exchange.model or "unknown", duration_ms=call.duration_ms), exchange
        usage = Usage(
            exchange.model,
            tokens_in=found.tokens_in,
            tokens_out=found.tokens_out,
            duration_ms=call.duration_ms,
            tokens_cached=found.cached,
            tokens_reasoning=found.reasoning,
        )
    except (EvaldeskError, ValueError, LookupError, TypeError, AttributeError, RecursionError):  # of any shape
        return replace(UNKNOWN, duration_ms=call.duration_ms), None
    return usage, exchange


def sent_parts(call: ModelCall | SeenCall) -> tuple[str, Sent]:
    """The model that a call asks, and what it sends."""
    if isinstance(call, ModelCall):
        return call.model, sent_by_us(call)
    request = request_of(call)
    return str(request.get("model") or model_in(call.path)), sent_of(request)


def request_of(call: SeenCall) -> JsonObject:
    """The body of the request; empty where it is no object of JSON."""
    return dict(call.request) if isinstance(call.request, Mapping) else _parsed(call.request)


def _parsed(data: bytes) -> JsonObject:
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
