"""Values and texts that are too large for a form: digests, the keys of a state with their sizes, a value in parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaldesk.diff.text_diff import Segment
from evaldesk.errors import VALUE_LIMIT, NotFoundError
from evaldesk.model import Case, JsonObject, JsonValue
from evaldesk.wire import to_json
from evaldesk.wording.json_layout import laid_out
from evaldesk.wording.words import size_words

# A larger value stays at the server, named by its digest: decision 054.
MAX_TYPED = 64 * 1024
"""A state of so many bytes is typed and posted; a larger one stays at the server."""
MAX_TYPED_IN_ALL = 1024 * 1024
"""So many bytes of values are typed and posted in one form; beyond that, values from MIN_HELD on stay, too."""
MIN_HELD = 1000
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
    """The facts of a large state; `keys` are its first MAX_KEYS of `n_keys`."""

    n_bytes: int
    n_keys: int
    keys: Sequence[StateKey]

    @property
    def size(self) -> str:
        """The size in words."""
        return size_words(self.n_bytes)


@dataclass(slots=True)
class Held:
    """A value that is too large for a form and stays at the server; `is_kept` is its tick, `head` begins a text."""

    digest: str
    n_bytes: int
    is_kept: bool = True
    head: str = ""

    @property
    def size(self) -> str:
        """The size in words."""
        return size_words(self.n_bytes)


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
    """The facts of a state that is too large for a form, else None."""
    data = to_json(state)
    if len(data) <= MAX_TYPED:
        return None
    keys = [_state_key(key, to_json(state[key])) for key in list(state)[:MAX_KEYS]]
    return LargeState(len(data), len(state), keys)


def typed_limit(case: Case) -> int:
    """The bytes of the largest value of `case` that its form holds itself; others stay at the server."""
    sizes = [len(to_json(value)) for value in _values(case)]
    n_typed_bytes = sum(size for size in sizes if size <= MAX_TYPED)
    return MAX_TYPED if n_typed_bytes <= MAX_TYPED_IN_ALL else MIN_HELD


def held_values(case: Case) -> dict[str, JsonValue]:
    """The values of `case` that a form may name by a digest."""
    encoded_values = ((to_json(value), value) for value in _values(case))
    return {_digest(data): value for data, value in encoded_values if len(data) > MIN_HELD}


def held_value(value: JsonValue, limit: int) -> Held | None:
    """How a form names a value of more than `limit` bytes, None for another one."""
    data = to_json(value)
    head = " ".join(value[: HEAD * 2].split())[:HEAD] if isinstance(value, str) else ""
    return Held(_digest(data), len(data), head=head) if len(data) > limit else None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _values(case: Case) -> Iterator[JsonValue]:
    """The values of JSON and the texts that the form of a case shows."""
    yield dict(case.initial_state)
    yield dict(case.final_state or {})
    for turn in case.turns:
        yield turn.query
        yield turn.expected.reference or ""
        yield from (text for _, text in turn.expected.intermediate)
        for call in turn.expected.tool_calls or ():
            yield from call.args.values()


def value_part(state: JsonObject, key: str, start: int) -> ValuePart:
    """The part of a value from the character `start` on. Raises NotFoundError for an unknown key."""
    if key not in state:
        raise NotFoundError(f"the state has no key {key[:VALUE_LIMIT]!r}")
    return text_part(key, laid_out(state[key]), start)


def text_part(key: str, text: str, start: int) -> ValuePart:
    """The part of a text from the character `start` on."""
    start = max(0, min(start, max(len(text) - 1, 0)))
    end = min(start + PART, len(text))
    previous = max(0, start - PART) if start else None
    return ValuePart(key, text[start:end], start, end, len(text), previous, end if end < len(text) else None)


def shorten_segments(segments: Sequence[Segment], most: int = 4_000) -> Sequence[Segment]:
    """The beginning of a long comparison, with the number of characters after it."""
    n_left = sum(len(segment.text) for segment in segments) - most
    if n_left <= 0:
        return segments
    head = list[Segment]()
    for segment in segments:
        head.append(Segment(segment.kind, segment.text[:most]))
        most -= len(segment.text)
        if most <= 0:
            break
    return [*head, Segment("same", f"… ({n_left:,} more characters)")]


def _state_key(key: str, data: bytes) -> StateKey:
    return StateKey(key, len(data), data[: HEAD * 4].decode("utf-8", "ignore")[:HEAD])
