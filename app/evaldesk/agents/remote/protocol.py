"""The JSON protocol for agents in any language, over HTTP or on stdin and stdout. (docs/protocol.md)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evaldesk.errors import VALUE_LIMIT, AgentError
from evaldesk.llm.retry_events import note_reported_state
from evaldesk.model import (
    AgentDescription,
    ErrorRecord,
    Event,
    JsonObject,
    Session,
    ToolCall,
    ToolDescription,
    Usage,
    Waiting,
)
from evaldesk.model.decisions import ANY, Decided
from evaldesk.model.media import MEDIA_KINDS, Media
from evaldesk.model.transcript import FATAL_KINDS
from evaldesk.wire import plain_json

VERSION = 1
MAX_CODE = 80
MAX_UNKNOWN_KEYS = 5
MAX_NAME = 200
MAX_TEXT = 100_000
MAX_TOOLS = 1_000


def turn_body(session: Session, message: str, decided: Sequence[Decided] = ()) -> dict[str, Any]:
    """The request to an agent: the message, and the session.

    With decisions it resumes the paused turn of the message.
    """
    turns = [
        {
            "query": turn.query,
            "answer": turn.answer,
            "tool_calls": [{"name": call.name, "args": dict(call.args)} for call in turn.tool_calls],
        }
        for turn in session.turns
    ]
    return {
        "version": VERSION,
        "message": message,
        **({"media": [_media(item) for item in session.media]} if session.media else {}),
        "session": {
            "id": session.id,
            "app_name": session.app_name,
            "user_id": session.user_id,
            "state": plain_json(session.state),
            "turns": turns,
        },
        "model": session.model,
        "seed": session.seed,
        "is_streaming": session.is_streaming,
        "decisions": decisions_of(decided),
    }


def decisions_of(decided: Sequence[Decided]) -> list[JsonObject]:
    """The decisions in the protocol's form, each with its question."""
    return [
        {
            "id": request.id,
            "name": request.tool,
            "args": dict(request.args),
            "decision": decision.decision,
            "answer": decision.answer,
            "reason": decision.reason,
        }
        for request, decision in decided
    ]


def _media(item: Media) -> dict[str, Any]:
    fields = {"mime_type": item.mime_type, "name": item.name, "data": item.data, "uri": item.uri}
    return {"at": item.at, **{key: value for key, value in fields.items() if value}}


def read_events(raw: object, session: Session, author: str) -> Iterator[Event]:
    """The event of one object, after a log of its unknown keys; a `state` object sets the session state.

    Raises AgentError.
    """
    if not isinstance(raw, Mapping):
        raise AgentError(f"an event must be an object, got {type(raw).__name__}: {str(raw)[:VALUE_LIMIT]!r}")
    kind = raw.get("kind")
    maker, keys = _MAKERS.get(str(kind), (None, ""))
    if not keys:
        raise AgentError(f"no event of kind {kind!r}; there are: {', '.join(_MAKERS)}")
    yield from _unknown_keys_log(raw, f"kind author parent within {keys}".split(), session)
    if maker is None:
        session.state = dict(_object(raw, "state"))
        note_reported_state()
        return
    event = maker(raw, _name(raw, "author", author))
    yield replace(event, parent=_name(raw, "parent"), within=_name(raw, "within"))


def _name(raw: Mapping[str, Any], key: str, default: str = "") -> str:
    value = raw.get(key, default)
    return value if isinstance(value, str) else default


def _unknown_keys_log(raw: Mapping[str, Any], known_keys: Sequence[str], session: Session) -> Iterator[Event]:
    """A log event with the unknown keys of an object; once in a session for each kind."""
    kind, names = str(raw["kind"]), [str(key)[:MAX_CODE] for key in raw if key not in known_keys]
    if names and f"left out of {kind}" not in session.memory:
        session.memory[f"left out of {kind}"] = True
        more = f" and {len(names) - MAX_UNKNOWN_KEYS:,} more" if len(names) > MAX_UNKNOWN_KEYS else ""
        words = f"{', '.join(map(repr, names[:MAX_UNKNOWN_KEYS]))}{more}"
        text = f"A `{kind}` event has {words}, which Evaldesk does not read; it reads {', '.join(known_keys)}."
        yield Event("log", author="evaldesk", text=text)


@dataclass(slots=True)
class Calls:
    """The tool calls of a turn by id, to complete results that name only the id of their call.

    `is_told`: a call, a result or a request to a person was among its events.
    """

    is_told: bool = False
    _by_id: dict[str, ToolCall] = field(default_factory=dict)

    def with_call(self, event: Event) -> Event:
        """The event; a result gets its call."""
        self.is_told = self.is_told or event.call is not None or event.waiting is not None
        if event.call is None or event.call.id is None:
            return event
        if event.kind == "tool_call":
            self._by_id[event.call.id] = event.call
        return replace(event, call=self._by_id.get(event.call.id, event.call))


def description_of(raw: object, name: str, kind: str) -> AgentDescription:
    """The description from an agent's own JSON. Raises AgentError."""
    if not isinstance(raw, Mapping):
        raise AgentError(f"an agent describes itself with an object, got {type(raw).__name__}")
    tools = raw.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) and "name" in tool for tool in tools):
        raise AgentError("the tools of an agent must be a list of objects with a name")
    if len(tools) > MAX_TOOLS:
        raise AgentError(f"tools: {len(tools):,} are more than the {MAX_TOOLS:,} that an agent may have")
    model = raw.get("model")
    return AgentDescription(
        name=_truncate(_text(raw, "name"), MAX_NAME) or name,
        kind=kind,
        description=_truncate(_text(raw, "description"), MAX_TEXT),
        instruction=_truncate(_text(raw, "instruction"), MAX_TEXT),
        model=_truncate(model, MAX_NAME) if isinstance(model, str) else None,
        tools=tuple(
            ToolDescription(
                _truncate(str(tool["name"]), MAX_NAME),
                _truncate(str(tool.get("description", "")), MAX_TEXT),
                _optional_object(tool, "parameters"),
            )
            for tool in tools
        ),
        initial_state=_optional_object(raw, "initial_state"),
        tells_cost=raw.get("tells_cost") is True,
        tells_calls=raw.get("tells_calls") is True,
        takes=_kinds(raw.get("takes")),
    )


def _kinds(value: object) -> tuple[str, ...]:
    return tuple(kind for kind in MEDIA_KINDS if kind in value) if isinstance(value, list) else ()


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _message(raw: Mapping[str, Any], author: str) -> Event:
    text, is_partial = _text(raw, "text"), raw.get("is_partial") is True
    return Event("agent_message", author=author, text=text, is_partial=is_partial, media=_message_media(raw))


def _message_media(raw: Mapping[str, Any]) -> tuple[Media, ...]:
    """The media of a message. Raises AgentError unless they are a list of objects."""
    media = raw.get("media") or []
    if not isinstance(media, list) or not all(isinstance(item, Mapping) for item in media):
        raise AgentError("media must be a list of objects with mime_type, and data or uri")
    return tuple(
        Media(_text(item, "mime_type"), _text(item, "data"), _text(item, "uri"), _text(item, "name")) for item in media
    )


def _log(raw: Mapping[str, Any], author: str) -> Event:
    return Event("log", author=author, text=_text(raw, "text"))


def _tool_call(raw: Mapping[str, Any], author: str) -> Event:
    return Event("tool_call", author=author, call=_call(raw))


def _tool_result(raw: Mapping[str, Any], author: str) -> Event:
    return Event(
        "tool_result",
        author=author,
        call=_call(raw),
        result=plain_json(raw.get("result")),
        is_error=raw.get("is_error") is True,
        duration_ms=raw.get("duration_ms"),
    )


def _usage(raw: Mapping[str, Any], _: str) -> Event:
    """The usage; unknown (`is_least`) without both tokens and cost."""
    return Event(
        "usage",
        usage=Usage(
            _text(raw, "model") or "unknown",
            is_least=not raw.keys() & {"tokens_in", "tokens_out", "cost"},
            tokens_in=raw.get("tokens_in", 0),
            tokens_out=raw.get("tokens_out", 0),
            tokens_cached=raw.get("tokens_cached", 0),
            tokens_reasoning=raw.get("tokens_reasoning", 0),
            cost=raw.get("cost"),
        ),
    )


def _request_event(raw: Mapping[str, Any], author: str) -> Event:
    """The pending decision; without `choices` a person may approve, deny or answer."""
    call = _call(raw)
    raw_choices = raw.get("choices")
    choices = tuple(choice for choice in ANY if choice in raw_choices) if isinstance(raw_choices, list) else ANY
    if not choices:
        raise AgentError(f"choices must be a list of some of {', '.join(ANY)}, got {str(raw_choices)[:VALUE_LIMIT]}")
    request = Waiting(call.id or call.name, call.name, call.args, choices, plain_json(raw.get("question")))
    return Event("waiting", author=author, waiting=request)


def _error(raw: Mapping[str, Any], _: str) -> Event:
    """The error with the agent's own code, except for codes that would end the whole run."""
    code, message = _text(raw, "code")[:MAX_CODE] or "agent_error", _text(raw, "message")
    if code in FATAL_KINDS:
        code, message = "agent_error", f"{code}: {message}"
    return Event("error", error=ErrorRecord(code, message))


_MAKERS: Mapping[str, tuple[Callable[[Mapping[str, Any], str], Event] | None, str]] = {
    "message": (_message, "text media is_partial"),
    "log": (_log, "text"),
    "tool_call": (_tool_call, "name args id"),
    "tool_result": (_tool_result, "name args id result is_error duration_ms"),
    "usage": (_usage, "model tokens_in tokens_out tokens_cached tokens_reasoning cost"),
    "error": (_error, "message code"),
    "waiting": (_request_event, "name args id question choices"),
    "state": (None, "state"),
}
"""The parser of each kind of event, and its keys."""


def _call(raw: Mapping[str, Any]) -> ToolCall:
    name = _text(raw, "name")
    if not name:
        raise AgentError(f"a {raw.get('kind')} event needs the name of its tool")
    call_id = raw.get("id")
    return ToolCall(name, _optional_object(raw, "args"), None if call_id is None else str(call_id))


def _optional_object(raw: Mapping[str, Any], key: str) -> JsonObject:
    return _object(raw, key) if raw.get(key) is not None else {}


def _object(raw: Mapping[str, Any], key: str) -> JsonObject:
    value = plain_json(raw.get(key))
    if not isinstance(value, dict):
        raise AgentError(f"{key} must be an object, got {type(raw.get(key)).__name__}")
    return value


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key, "")
    if value is not None and not isinstance(value, str):
        raise AgentError(f"{key} must be text, got {type(value).__name__}")
    return value or ""
