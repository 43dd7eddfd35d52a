"""Values as JSON bytes and back: frames between processes, columns of the database.

The codec is msgspec: it knows frozen dataclasses, keeps integers of any size and checks its input.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from evaldesk.codec import msgspec
from evaldesk.model import ErrorRecord, JsonValue, TrialResult, plain_number
from evaldesk.model.media import is_image_text
from evaldesk.secrets import forms, known_values, may_hold_key, scrubber_of

T = TypeVar("T")

MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_BITS = 4_096
MAX_TEXT = 1_000_000

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_building = threading.Lock()
"""msgspec caches its analysis of a type on the type; two threads that analyse it at once crash the process."""


def to_json(value: object) -> bytes:
    """Compact UTF-8 JSON of a value of `evaldesk.model`, or of plain JSON values."""
    return msgspec.json.encode(value)


def from_json(data: bytes | str, kind: type[T]) -> T:
    """The value of type `kind` that `data` holds. Raises msgspec.ValidationError or msgspec.DecodeError."""
    decoder: msgspec.json.Decoder[T] = _decoders.get(kind) or _new_decoder(kind)
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def converted(value: object, kind: type[T], *, strict: bool = True) -> T:
    """Plain JSON as a value of type `kind`. Raises msgspec.ValidationError."""
    if kind not in _decoders:
        _new_decoder(kind)
    return msgspec.convert(value, kind, strict=strict)


def learn(kind: Any) -> None:
    """Let msgspec learn a type that threads will convert values to. Raises TypeError for no type of JSON."""
    with _building:
        msgspec.json.Decoder(kind)


def _new_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    with _building:
        return _decoders.setdefault(kind, msgspec.json.Decoder(kind))


def json_scrubber(environment: Mapping[str, str]) -> Callable[[bytes], bytes]:
    """A function that masks the secrets of `environment` in every text, keys included, of a `to_json` result.

    Values without secrets are returned as they are: that check takes microseconds, the walk a hundred times as long.
    """
    return json_scrubber_of(known_values(environment))


def json_scrubber_of(known: Mapping[str, str], found: Counter[str] | None = None) -> Callable[[bytes], bytes]:
    """As `json_scrubber`, for values that `known_values` gave; `found` counts them by the names of their variables."""
    scrub = scrubber_of(known, found)
    values = list(dict.fromkeys(to_json(form)[1:-1] for value in known for form in forms(value)))

    def scrubbed(data: bytes) -> bytes:
        if not (may_hold_key(data) or any(value in data for value in values)):
            return data
        return to_json(_scrubbed(from_json(data, object), scrub))

    return scrubbed


def plain(value: object, *, keeps_images: bool = True) -> JsonValue:
    """`value` as plain JSON; values outside JSON become text, never an exception.

    Meant for values of code that is not ours. NaN and infinities become their names, bytes and unknown objects their
    repr, lone surrogates a replacement character; text is cut at MAX_TEXT, unless it is an image and `keeps_images`,
    nesting at MAX_DEPTH, and a value of more than MAX_NODES parts (one that contains itself has no end) where the
    number is reached.
    """
    return _plain(value, 0, _Room(MAX_NODES, keeps_images))


def plain_text(text: str) -> str:
    """`text` as valid Unicode of bounded length."""
    text = text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text) - MAX_TEXT} more characters)"


def _scrubbed(value: Any, scrub: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {scrub(key): _scrubbed(item, scrub) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrubbed(item, scrub) for item in value]
    return value


@dataclass(slots=True)
class _Room:
    n_nodes: int
    keeps_images: bool


def _plain(value: object, depth: int, room: _Room) -> JsonValue:
    try:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value) if value.bit_length() <= MAX_BITS else f"… an integer of {value.bit_length()} bits"
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else repr(float(value))
        if isinstance(value, str):
            is_kept = len(value) > MAX_TEXT and room.keeps_images and is_image_text(value)
            return value if is_kept else plain_text(value)
        if depth >= MAX_DEPTH:
            return f"… nested deeper than {MAX_DEPTH} levels"
        if type(value) is dict or isinstance(value, Mapping):  # whether it is some other mapping is a slow question
            return _plain_mapping(value, depth, room)
        if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray | memoryview):
            return _plain_list(value, depth, room)
        number = plain_number(value)
        if number is not value:
            return _plain(number, depth, room)
    except Exception:  # of a class of its own, or changed meanwhile by a thread of its own
        return _described(value, depth, room)
    return _described(value, depth, room)


def _plain_mapping(value: Mapping[Any, object], depth: int, room: _Room) -> JsonValue:
    items: dict[str, JsonValue] = {}
    for key, item in value.items():
        room.n_nodes -= 1
        if room.n_nodes < 0:
            items["…"] = f"more than {MAX_NODES} parts"
            break
        items[plain_text(str(key))] = _plain(item, depth + 1, room)
    return items


def _plain_list(value: Iterable[object], depth: int, room: _Room) -> JsonValue:
    items: list[JsonValue] = []
    for item in value:
        room.n_nodes -= 1
        if room.n_nodes < 0:
            items.append(f"… more than {MAX_NODES} parts")
            break
        items.append(_plain(item, depth + 1, room))
    return items


def _described(value: object, depth: int, room: _Room) -> JsonValue:
    for method in ("model_dump", "to_dict", "_asdict"):
        dump = getattr(value, method, None)
        if callable(dump) and not isinstance(value, type):
            try:
                return _plain(dump(), depth + 1, room)
            except Exception:
                break
    try:
        return plain_text(repr(value))
    except Exception as error:
        return f"<{type(value).__name__}, whose repr failed: {type(error).__name__}>"


def result_scrubber(environment: Mapping[str, str]) -> Callable[[TrialResult], TrialResult]:
    """As `value_scrubber`; a result that cannot be scrubbed becomes an errored one without its content."""
    scrub: Callable[[TrialResult], TrialResult] = value_scrubber(environment)

    def scrubbed(result: TrialResult) -> TrialResult:
        try:
            return scrub(result)
        except Exception as error:
            message = f"the result cannot be searched for secrets: {type(error).__name__}: {error}"
            return result.without_content(ErrorRecord("unstorable", message[:500]))

    return scrubbed


def value_scrubber(environment: Mapping[str, str]) -> Callable[[T], T]:
    """A function that gives a value of `evaldesk.model` back with every text in it, keys included, scrubbed."""
    scrub = json_scrubber(environment)

    def scrubbed(value: T) -> T:
        data = to_json(value)
        clean = scrub(data)
        return value if clean is data else from_json(clean, type(value))

    return scrubbed
