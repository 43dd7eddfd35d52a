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
from evaldesk.errors import AgentError
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
from evaldesk.secrets import forms, known_values, may_hold_key, scrubber_of

T = TypeVar("T")

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
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts, self._n_bytes = [], 0
        if rest:
            self._parts.append(rest)
            self._n_bytes += len(rest)
        if self._n_bytes > self._limit:
            raise ValueError(f"a line of more than {self._limit} bytes")
        return [line for line in lines if line.strip()]

    def rest(self) -> list[bytes]:
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


def plain_object(value: object) -> dict[str, JsonValue]:
    """As `plain`; empty where that is no object."""
    found = plain(value)
    return found if isinstance(found, dict) else {}


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


# The player itself says these: an agent that does too would have them twice.
_NOT_THE_AGENTS = ("user_message", "state_delta", "decision")
_AGENT_KINDS = tuple(kind for kind in get_args(EventKind) if kind not in _NOT_THE_AGENTS)


def checked_event(found: object, at_ms: float) -> Event:
    """`found` as a plain event stamped `at_ms`. Raises AgentError naming its fault."""
    if not isinstance(found, Event):
        raise AgentError(f"the agent yielded {_shown(found)}, not an Event")
    if found.kind not in _AGENT_KINDS:
        raise AgentError(f"the agent yielded an event of kind {_shown(found.kind)}; kinds: {', '.join(_AGENT_KINDS)}")
    needed = {
        "tool_call": found.call,
        "tool_result": found.call,
        "usage": found.usage,
        "error": found.error,
        "waiting": found.waiting,
    }
    if found.kind in needed and needed[found.kind] is None:
        raise AgentError(f"the agent yielded a {found.kind} event without its content")
    return Event(
        kind=found.kind,
        at_ms=at_ms,
        author=_text(found.author, "author"),
        within=_text(found.within, "within"),
        text=_text(found.text, "text"),
        call=_call(found.call) if found.call is not None else None,
        result=found.result if is_artefact(found) else plain(found.result),
        is_error=found.is_error is True,
        is_partial=found.is_partial is True,
        duration_ms=None if found.duration_ms is None else checked_amount("event.duration_ms", found.duration_ms),
        usage=_usage(found.usage) if found.usage is not None else None,
        error=_error(found.error) if found.error is not None else None,
        waiting=_waiting(found.waiting) if found.waiting is not None else None,
        media=_media(found.media) if found.media else (),
    )


def _media(found: object) -> tuple[Media, ...]:
    if not isinstance(found, list | tuple) or len(found) > MAX_MEDIA_COUNT:
        raise AgentError(f"the media of an event must be a list of at most {MAX_MEDIA_COUNT}, got {_shown(found)}")
    return tuple(_medium(item) for item in found)


def _medium(found: object) -> Media:
    if not isinstance(found, Media):
        raise AgentError(f"the media of an event must be Media, got {_shown(found)}")
    data = base64_text(found.data) if isinstance(found.data, str) else None
    uri = _text(found.uri, "media.uri")
    if not data and not uri:
        raise AgentError("the media of an event have neither base64 in `data` nor an address in `uri`")
    mime_type, name = _text(found.mime_type, "media.mime_type")[:200], _text(found.name, "media.name")[:200]
    return Media(mime_type, data or "", uri, name, found.at if isinstance(found.at, int) and found.at >= 0 else 0)


def _call(found: object) -> ToolCall:
    if not isinstance(found, ToolCall):
        raise AgentError(f"the call of an event must be a ToolCall, got {_shown(found)}")
    args = plain(found.args)
    if not isinstance(args, dict):
        raise AgentError(f"the arguments of a tool call must be an object, got {_shown(found.args)}")
    call_id = None if found.id is None else _text(found.id, "call.id")
    extra = plain(found.extra)
    return ToolCall(_text(found.name, "call.name"), args, call_id, extra if isinstance(extra, dict) else {})


def _usage(found: object) -> Usage:
    if not isinstance(found, Usage):
        raise AgentError(f"the usage of an event must be a Usage, got {_shown(found)}")
    return Usage(
        model=_text(found.model, "usage.model"),
        role=found.role if found.role in get_args(Role) else "agent",
        tokens_in=found.tokens_in,
        tokens_out=found.tokens_out,
        cost=found.cost,
        n_attempts=found.n_attempts,
        duration_ms=found.duration_ms,
        is_replayed=found.is_replayed is True,
        tokens_cached=found.tokens_cached,
        tokens_reasoning=found.tokens_reasoning,
        is_least=found.is_least is True,
        is_cut=found.is_cut is True,
    )


def _error(found: object) -> ErrorRecord:
    if not isinstance(found, ErrorRecord):
        raise AgentError(f"the error of an event must be an ErrorRecord, got {_shown(found)}")
    return ErrorRecord(_text(found.kind, "kind"), _text(found.message, "message"), _text(found.trace, "trace"))


def _waiting(found: object) -> Waiting:
    if not isinstance(found, Waiting):
        raise AgentError(f"the waiting of an event must be a Waiting, got {_shown(found)}")
    return Waiting(
        _text(found.id, "waiting.id"),
        _text(found.tool, "waiting.tool"),
        plain_object(found.args),
        tuple(choice for choice in ANY if choice in found.choices) or ANY,
        plain(found.question),
        found.takes_message is True,
    )


def _text(found: Any, name: str) -> str:
    if not isinstance(found, str):
        raise AgentError(f"the {name} of an event must be a string, got {_shown(found)}")
    return plain_text(found)


def _shown(found: object) -> str:
    if found is None:
        return "None"
    text = str(plain(found))
    return f"{type(found).__name__} {text[:80]}{'…' if len(text) > 80 else ''}"
