"""Values as JSON bytes and back: frames between processes, columns of the database; values of other code as plain ones.

The codec is msgspec: it knows frozen dataclasses, keeps integers of any size and checks its input.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from evaldesk.codec import msgspec
from evaldesk.errors import REASON_LIMIT, TEXT_LIMIT, VALUE_LIMIT, AgentError
from evaldesk.model import (
    ErrorRecord,
    Event,
    EventKind,
    JsonValue,
    Role,
    ToolCall,
    TrialResult,
    Usage,
    Waiting,
    plain_number,
)
from evaldesk.model.decisions import ANY
from evaldesk.model.media import MAX_MEDIA_COUNT, Media, base64_text, is_image_text
from evaldesk.model.transcript import checked_amount, is_artefact
from evaldesk.process_setup import gc_paused
from evaldesk.secrets import forms, known_values, may_hold_key, scrubber_of

T = TypeVar("T")

LARGE = 200_000
"""Bytes of a text whose many values make the collector look through all of them, again and again, while it is read."""
MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_BITS = 4_096
MAX_TEXT = 1_000_000

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
# One thread at a time, since msgspec keeps its analysis on the type: decision 002.
_building = threading.Lock()
"""msgspec caches its analysis of a type on the type; two threads that analyse it at once crash the process."""


def to_json(value: object) -> bytes:
    """Compact UTF-8 JSON of a value of `evaldesk.model`, or of plain JSON values."""
    return msgspec.json.encode(value)


def from_json(data: bytes | str, kind: type[T]) -> T:
    """The value of type `kind` that `data` holds. Raises msgspec.ValidationError or msgspec.DecodeError."""
    decoder: msgspec.json.Decoder[T] = _decoders.get(kind) or _new_decoder(kind)
    try:
        if len(data) < LARGE:
            return decoder.decode(data)
        with gc_paused():
            return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def converted(value: object, kind: type[T]) -> T:
    """Plain JSON as a value of type `kind`. Raises msgspec.ValidationError."""
    if kind not in _decoders:
        _new_decoder(kind)
    return msgspec.convert(value, kind)


def learn(kind: Any) -> None:
    """Let msgspec learn a type that threads will convert values to. Raises TypeError for no type of JSON."""
    with _building:
        msgspec.json.Decoder(kind)


class LineCutter:
    """Cuts a stream of bytes into lines that are not blank, each copied once and of at most `limit` bytes."""

    def __init__(self, limit: float = math.inf) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._n_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends. Raises ValueError beyond the limit."""
        *lines, beginning = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts, self._n_bytes = [], 0
        if beginning:
            self._parts.append(beginning)
            self._n_bytes += len(beginning)
        if self._n_bytes > self._limit:
            raise ValueError(f"a line of more than {self._limit} bytes")
        return [line for line in lines if line.strip()]

    def last_lines(self) -> list[bytes]:
        """The last line, where no end of a line follows it."""
        line, self._parts = b"".join(self._parts), []
        return [line] if line.strip() else []


def _new_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    with _building:
        return _decoders.setdefault(kind, msgspec.json.Decoder(kind))


def json_scrubber(environment: Mapping[str, str]) -> Callable[[bytes], bytes]:
    """A function that masks the secrets of `environment` in every text, keys included, of a `to_json` result.

    Values without secrets are returned as they are: that check takes microseconds, the walk a hundred times as long.
    """
    return json_scrubber_of(known_values(environment))


def json_scrubber_of(names_by_value: Mapping[str, str], counts: Counter[str] | None = None) -> Callable[[bytes], bytes]:
    """As `json_scrubber`, for values that `known_values` gave; `counts` counts them by the names of their variables."""
    scrub, values = scrubber_of(names_by_value, counts), _values_in_json(names_by_value)

    def scrubbed(data: bytes) -> bytes:
        if not (may_hold_key(data) or any(value in data for value in values)):
            return data
        return to_json(scrubbed_value(from_json(data, object), scrub))

    return scrubbed


def value_json_scrubber_of(names_by_value: Mapping[str, str]) -> Callable[[bytes], bytes]:
    """As `json_scrubber_of`, of JSON in which only these values are looked for.

    It is for a process whose reader looks for texts like keys itself, since a search for them takes the longest.
    """
    scrub, values = scrubber_of(names_by_value), _values_in_json(names_by_value)

    def scrubbed(data: bytes) -> bytes:
        return (
            to_json(scrubbed_value(from_json(data, object), scrub)) if any(value in data for value in values) else data
        )

    return scrubbed


def _values_in_json(names_by_value: Mapping[str, str]) -> list[bytes]:
    return list(dict.fromkeys(to_json(form)[1:-1] for value in names_by_value for form in forms(value)))


def plain_json(value: object, *, keeps_images: bool = True) -> JsonValue:
    """`value` as plain JSON; values outside JSON become text, never an exception.

    Meant for values of code that is not ours. NaN and infinities become their names, bytes and unknown objects their
    repr, lone surrogates a replacement character; text is cut at MAX_TEXT, unless it is an image and `keeps_images`,
    nesting at MAX_DEPTH, and a value of more than MAX_NODES parts (one that contains itself has no end) where the
    number is reached.
    """
    return _plain_value(value, 0, _Room(MAX_NODES, keeps_images))


def plain_object(value: object) -> dict[str, JsonValue]:
    """As `plain`; empty where that is no object."""
    json_value = plain_json(value)
    return json_value if isinstance(json_value, dict) else {}


def plain_text(text: str) -> str:
    """`text` as valid Unicode of bounded length."""
    text = text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text) - MAX_TEXT:,} more characters)"


def scrubbed_value(value: Any, scrub: Callable[[str], str]) -> Any:
    """The value of JSON with every text of it scrubbed, keys included."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {scrub(key): scrubbed_value(item, scrub) for key, item in value.items()}
    if isinstance(value, list):
        return [scrubbed_value(item, scrub) for item in value]
    return value


@dataclass(slots=True)
class _Room:
    n_nodes: int
    keeps_images: bool


def _plain_value(value: object, depth: int, room: _Room) -> JsonValue:
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
            return _plain_value(number, depth, room)
    except Exception:  # of a class of its own, or changed meanwhile by a thread of its own
        return _object_value(value, depth, room)
    return _object_value(value, depth, room)


def _plain_mapping(value: Mapping[Any, object], depth: int, room: _Room) -> JsonValue:
    items: dict[str, JsonValue] = {}
    for key, item in value.items():
        room.n_nodes -= 1
        if room.n_nodes < 0:
            items["…"] = f"more than {MAX_NODES} parts"
            break
        items[plain_text(str(key))] = _plain_value(item, depth + 1, room)
    return items


def _plain_list(value: Iterable[object], depth: int, room: _Room) -> JsonValue:
    items: list[JsonValue] = []
    for item in value:
        room.n_nodes -= 1
        if room.n_nodes < 0:
            items.append(f"… more than {MAX_NODES} parts")
            break
        items.append(_plain_value(item, depth + 1, room))
    return items


def _object_value(value: object, depth: int, room: _Room) -> JsonValue:
    for method in ("model_dump", "to_dict", "_asdict"):
        dump = getattr(value, method, None)
        if callable(dump) and not isinstance(value, type):
            try:
                return _plain_value(dump(), depth + 1, room)
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
            return result.without_content(ErrorRecord("unstorable", message[:REASON_LIMIT]))

    return scrubbed


def value_scrubber(environment: Mapping[str, str]) -> Callable[[T], T]:
    """A function that gives a value of `evaldesk.model` back with every text in it, keys included, scrubbed."""
    scrub = json_scrubber(environment)

    def scrubbed(value: T) -> T:
        data = to_json(value)
        clean = scrub(data)
        return value if clean is data else from_json(clean, type(value))

    return scrubbed


# The player itself says these: an agent that does too would have them twice.
_NOT_THE_AGENTS = ("user_message", "state_delta", "decision")
_AGENT_KINDS = tuple(kind for kind in get_args(EventKind) if kind not in _NOT_THE_AGENTS)


def checked_event(event: object, at_ms: float) -> Event:
    """`event` as a plain event stamped `at_ms`. Raises AgentError naming its fault."""
    if not isinstance(event, Event):
        raise AgentError(f"the agent yielded {_value_words(event)}, not an Event")
    if event.kind not in _AGENT_KINDS:
        raise AgentError(
            f"the agent yielded an event of kind {_value_words(event.kind)}; kinds: {', '.join(_AGENT_KINDS)}"
        )
    required_values = {
        "tool_call": event.call,
        "tool_result": event.call,
        "usage": event.usage,
        "error": event.error,
        "waiting": event.waiting,
    }
    if event.kind in required_values and required_values[event.kind] is None:
        raise AgentError(f"the agent yielded a {event.kind} event without its content")
    return Event(
        kind=event.kind,
        at_ms=at_ms,
        author=_text(event.author, "author"),
        within=_text(event.within, "within"),
        parent=_text(event.parent, "parent"),
        text=_text(event.text, "text"),
        call=_call(event.call) if event.call is not None else None,
        result=event.result if is_artefact(event) else plain_json(event.result),
        is_error=event.is_error is True,
        is_partial=event.is_partial is True,
        duration_ms=None if event.duration_ms is None else checked_amount("event.duration_ms", event.duration_ms),
        usage=_usage(event.usage) if event.usage is not None else None,
        error=_error(event.error) if event.error is not None else None,
        waiting=_request(event.waiting) if event.waiting is not None else None,
        media=_media(event.media) if event.media else (),
    )


def _media(value: object) -> tuple[Media, ...]:
    if not isinstance(value, list | tuple) or len(value) > MAX_MEDIA_COUNT:
        raise AgentError(
            f"the media of an event must be a list of at most {MAX_MEDIA_COUNT}, got {_value_words(value)}"
        )
    return tuple(_medium(item) for item in value)


def _medium(value: object) -> Media:
    if not isinstance(value, Media):
        raise AgentError(f"the media of an event must be Media, got {_value_words(value)}")
    data = base64_text(value.data) if isinstance(value.data, str) else None
    uri = _text(value.uri, "media.uri")
    if not data and not uri:
        raise AgentError("the media of an event have neither base64 in `data` nor an address in `uri`")
    mime_type = _text(value.mime_type, "media.mime_type")[:TEXT_LIMIT]
    name = _text(value.name, "media.name")[:TEXT_LIMIT]
    return Media(mime_type, data or "", uri, name, value.at if isinstance(value.at, int) and value.at >= 0 else 0)


def _call(value: object) -> ToolCall:
    if not isinstance(value, ToolCall):
        raise AgentError(f"the call of an event must be a ToolCall, got {_value_words(value)}")
    args = plain_json(value.args)
    if not isinstance(args, dict):
        raise AgentError(f"the arguments of a tool call must be an object, got {_value_words(value.args)}")
    call_id = None if value.id is None else _text(value.id, "call.id")
    extra = plain_json(value.extra)
    return ToolCall(_text(value.name, "call.name"), args, call_id, extra if isinstance(extra, dict) else {})


def _usage(value: object) -> Usage:
    if not isinstance(value, Usage):
        raise AgentError(f"the usage of an event must be a Usage, got {_value_words(value)}")
    return Usage(
        model=_text(value.model, "usage.model"),
        role=value.role if value.role in get_args(Role) else "agent",
        tokens_in=value.tokens_in,
        tokens_out=value.tokens_out,
        cost=value.cost,
        n_attempts=value.n_attempts,
        duration_ms=value.duration_ms,
        is_replayed=value.is_replayed is True,
        tokens_cached=value.tokens_cached,
        tokens_reasoning=value.tokens_reasoning,
        is_least=value.is_least is True,
        is_cut=value.is_cut is True,
    )


def _error(value: object) -> ErrorRecord:
    if not isinstance(value, ErrorRecord):
        raise AgentError(f"the error of an event must be an ErrorRecord, got {_value_words(value)}")
    return ErrorRecord(_text(value.kind, "kind"), _text(value.message, "message"), _text(value.trace, "trace"))


def _request(value: object) -> Waiting:
    if not isinstance(value, Waiting):
        raise AgentError(f"the waiting of an event must be a Waiting, got {_value_words(value)}")
    return Waiting(
        _text(value.id, "waiting.id"),
        _text(value.tool, "waiting.tool"),
        plain_object(value.args),
        tuple(choice for choice in ANY if choice in value.choices) or ANY,
        plain_json(value.question),
        value.takes_message is True,
    )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise AgentError(f"the {name} of an event must be a string, got {_value_words(value)}")
    return plain_text(value)


def _value_words(value: object) -> str:
    if value is None:
        return "None"
    text = str(plain_json(value))
    return f"{type(value).__name__} {text[:VALUE_LIMIT]}{'…' if len(text) > 80 else ''}"
