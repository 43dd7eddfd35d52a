"""A session state that is too large for a form: its keys with their sizes, and one value part by part."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.errors import NotFoundError
from evaldesk.model import JsonObject
from evaldesk.wire import to_json
from evaldesk.wording.json_layout import laid_out

MAX_TYPED = 64 * 1024
"""A state of so many bytes is typed and posted; a larger one stays at the server."""
MAX_KEYS = 100
HEAD = 160
PART = 50_000


@dataclass(frozen=True, slots=True)
class StateKey:
    """A key of the state; `head` is how its value begins."""

    key: str
    n_bytes: int
    head: str

    @property
    def is_cut(self) -> bool:
        """Whether the value is longer than its head."""
        return self.n_bytes > len(self.head.encode())


@dataclass(frozen=True, slots=True)
class LargeState:
    """The facts of a large state; `keys` are its first MAX_KEYS of `n_keys`. `digest` is of its whole content."""

    n_bytes: int
    n_keys: int
    digest: str
    keys: Sequence[StateKey]

    @property
    def size(self) -> str:
        """The size in words."""
        return _size(self.n_bytes)


@dataclass(frozen=True, slots=True)
class ValuePart:
    """Characters `start` to `end` of a value of `n_chars`, laid out; None where there is no part before or after."""

    key: str
    text: str
    start: int
    end: int
    n_chars: int
    previous: int | None
    next: int | None


def large_state(state: JsonObject) -> LargeState | None:
    """The facts of a state that is too large for a form, None for one that is not."""
    data = to_json(state)
    if len(data) <= MAX_TYPED:
        return None
    keys = [_state_key(key, to_json(state[key])) for key in list(state)[:MAX_KEYS]]
    return LargeState(len(data), len(state), hashlib.sha256(data).hexdigest(), keys)


def value_part(state: JsonObject, key: str, start: int) -> ValuePart:
    """The part of a value from the character `start` on. Raises NotFoundError for an unknown key."""
    if key not in state:
        raise NotFoundError(f"the state has no key {key[:100]!r}")
    text = laid_out(state[key])
    start = max(0, min(start, max(len(text) - 1, 0)))
    end = min(start + PART, len(text))
    previous = max(0, start - PART) if start else None
    return ValuePart(key, text[start:end], start, end, len(text), previous, end if end < len(text) else None)


def _state_key(key: str, data: bytes) -> StateKey:
    return StateKey(key, len(data), data[: HEAD * 4].decode("utf-8", "ignore")[:HEAD])


def _size(n_bytes: int) -> str:
    if n_bytes < 1_000_000:
        return f"{n_bytes / 1000:,.0f} kB"
    return f"{n_bytes / 1_000_000:,.1f} MB"
