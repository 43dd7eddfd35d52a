"""The model calls of a trial or a chat as they were sent; shared messages are stored once, with bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile
from operator import eq
from threading import Lock

from evaldesk.errors import TEXT_LIMIT
from evaldesk.model import JsonValue, Prompt, Prompts, Usage
from evaldesk.transcripts.model_exchanges import ModelRequest
from evaldesk.wire import plain_json, to_json

MAX_CALLS = 2_000
MAX_BYTES = 1024 * 1024
MAX_TEXT = 50_000
MAX_PART = 200_000
DIGESTED = 64
LOOKS_BACK = 8
"""A call is compared with so many before it: those of agents that take turns begin alike, not with the very last."""


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where a call belongs: its turn, when it was answered, and the criterion whose judge was asked."""

    turn: int
    at_ms: float = 0.0
    criterion: str = ""


@dataclass(slots=True)
class PromptWriter:
    """Stores the new messages of each call. Any thread may add one."""

    _parts: list[JsonValue] = field(default_factory=list)
    _places: dict[bytes, int] = field(default_factory=dict)
    _calls: list[Prompt] = field(default_factory=list)
    _recent: list[tuple[int, list[int]]] = field(default_factory=list)
    _n_bytes: int = 0
    _n_left_out: int = 0
    _lock: Lock = field(default_factory=Lock)

    def add(self, place: CallPlace, usage: Usage, request: ModelRequest, raw_answer: object) -> None:
        """Keep a call; one for which there is no room is counted."""
        with self._lock:
            values = (*request.messages, request.tools, request.settings or None, raw_answer)
            keys = [_key(value) for value in values]
            pairs = zip(keys, values, strict=True)
            new_parts = {key: _bound(value) for key, value in pairs if key and key not in self._places}
            n_bytes = sum(len(to_json(part)) for part in new_parts.values())
            if len(self._calls) >= MAX_CALLS or self._n_bytes + n_bytes > MAX_BYTES:
                self._n_left_out += 1
                return
            self._n_bytes += n_bytes
            for key, part in new_parts.items():
                self._places[key] = len(self._parts)
                self._parts.append(part)
            *messages, tools, settings, answer = [self._places[key] if key else -1 for key in keys]
            base, n_kept = self._base(messages)
            self._recent = [*self._recent, (len(self._calls), messages)][-LOOKS_BACK:]
            self._calls.append(
                Prompt(
                    place.turn,
                    place.at_ms,
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
                    place.criterion,
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
        """The call with the longest common beginning of messages, the newest of several, and its length."""
        alike = [(sum(takewhile(bool, map(eq, messages, other))), at) for at, other in self._recent]
        n_kept, at = max(alike, default=(0, -1))
        return (at, n_kept) if n_kept else (-1, 0)


def plain_model(name: str) -> str:
    """The name of a model, as long as names are."""
    return name[:TEXT_LIMIT]


def _key(value: object) -> bytes:
    """The JSON of a value, or its digest where that is shorter; empty for None."""
    if value is None:
        return b""
    try:
        data = to_json(value)
    except Exception:  # an object that a framework left in a message
        data = to_json(plain_json(value))
    return data if len(data) < DIGESTED else blake2b(data, digest_size=20).digest()


def _bound(value: object) -> JsonValue:
    """A copy of the value with its long texts cut; where that is still too long, the start of its JSON."""
    part = _shorten(plain_json(value))
    data = to_json(part)
    return part if len(data) <= MAX_PART else f"{data[:MAX_TEXT].decode('utf-8', 'ignore')}…"


def _shorten(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}… ({len(value) - MAX_TEXT:,} more characters)"
    if isinstance(value, Mapping):
        return {key: _shorten(item) for key, item in value.items()}
    return [_shorten(item) for item in value] if isinstance(value, Sequence) else value
