"""Messages in OpenAI's shape, and in the shapes that descend from it, as tools write them into their results."""

from __future__ import annotations

from typing import Any

from evaldesk.errors import NAME_LIMIT, FormatError
from evaldesk.model import JsonObject, ToolCall
from evaldesk.model.media import Media, base64_text, join_parts
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition, parse_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_text, read_text, text_of, wrong_value
from evaldesk.transcripts.messages.turns import Message, Speaker

_SPEAKERS: dict[str, Speaker] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "agent",
    "model": "agent",
    "agent": "agent",
    "ai": "agent",
    "tool": "tool",
    "function": "tool",
}
_NOWHERE = JsonPosition(Document(None))

HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
"""Items of the Responses API for tools that the provider runs: each is a call and its result."""
ITEMS = ("function_call", "function_call_output", "reasoning", *HOSTED)
"""Items of the Responses API, which has them beside its messages."""
_RESULT_KEYS = ("status", "error", "output", "outputs", "result", "results")

RAW_ARGS = "raw_args"
NO_TEXT = "a part of a message that is not text"


def read_chat(place: JsonPosition, raw: Any, notes: Notes) -> tuple[Message, ...]:
    """The messages of a list. Raises FormatError."""
    message_lists = read_list(place, raw, lambda at, item: read_messages(at, item, notes))
    return tuple(message for messages in message_lists for message in messages)


def read_messages(place: JsonPosition, raw: Any, notes: Notes) -> tuple[Message, ...]:
    """`read_chat_message`, and after the call of a tool that the provider ran its result. Raises FormatError."""
    message = read_chat_message(place, raw, notes)
    if "role" in raw or raw.get("type") not in HOSTED:
        return (message,)
    (call,) = message.calls
    result = {key: raw[key] for key in _RESULT_KEYS if raw.get(key) is not None}
    if raw["type"] == "image_generation_call" and isinstance(raw.get("result"), str):
        result["result"] = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{raw['result']}"}}
    is_error = bool(raw.get("error")) or raw.get("status") == "failed"
    return message, Message("tool", "", call.name, call_id=call.id, result=result, is_error=is_error)


def read_chat_message(place: JsonPosition, raw: Any, notes: Notes) -> Message:
    """One message: `role`, `content` (text, a list of parts, or null), `tool_calls`, `tool_call_id`, `name`.

    An item of the Responses API is a message, too: a call, its output, or the reasoning before it.
    """
    raw = read_mapping(place, raw)
    if raw.get("type") in ITEMS and "role" not in raw:
        return _read_item(place, raw, notes)
    speaker = read_speaker(place.at("role"), raw.get("role", ABSENT))
    content, media = raw.get("content"), tuple[Media, ...]()
    if speaker in ("user", "agent") and isinstance(content, list):
        content, media = _taken_media(content)
    text, thought = read_content(place.at("content"), content, notes)
    if speaker == "tool":
        # tau2 calls it `id`; the old function messages have only a name.
        call_id = raw.get("tool_call_id", raw.get("id"))
        return Message(
            "tool",
            author=text_of(raw.get("name", raw.get("function"))),
            call_id=call_id if isinstance(call_id, str) else None,
            result=text,
            is_error=bool(raw.get("error")) or text.startswith("Error:"),
        )
    reasoning = raw.get("reasoning_content", raw.get("reasoning"))
    if isinstance(reasoning, str):
        thought = reasoning
    return Message(
        speaker, text, thought=thought, calls=_read_calls(place, raw) if speaker == "agent" else (), media=media
    )


def _taken_media(content: list[Any]) -> tuple[list[Any], tuple[Media, ...]]:
    """The parts that are no media, and the media among them with their places in the text."""
    parts: list[str | Media] = []
    others = []
    for part in content:
        media = read_media(part) if isinstance(part, dict) else None
        if media:
            parts.append(media)
            continue
        others.append(part)
        text = part.get("text") if isinstance(part, dict) else part
        parts += [text] if isinstance(text, str) else []
    return others, join_parts(parts)[1]


def read_media(part: dict[str, Any]) -> Media | None:
    """An image, a sound or a file as chat completions, the Responses API and LangChain write them."""
    kind = part.get("type")
    inner = part.get(kind) if isinstance(kind, str) else None
    fields = inner if isinstance(inner, dict) else part
    if kind == "input_audio":
        data = fields.get("data")
        payload = base64_text(data) if isinstance(data, str) else None
        return Media(f"audio/{fields.get('format') or 'wav'}", payload) if payload else None
    if kind in ("image_url", "input_image"):
        url = inner if isinstance(inner, str) else fields.get("url", fields.get("image_url"))
        return _media_at(url, "image/png", "")
    if kind in ("file", "input_file"):
        url = fields.get("file_data") or fields.get("file_url") or fields.get("file_id")
        return _media_at(url, "application/octet-stream", text_of(fields.get("filename")))
    return None


def _media_at(url: Any, mime_type: str, name: str) -> Media | None:
    """The bytes of a data address, or the address; of another address the MIME type is the usual one."""
    if not isinstance(url, str) or not url:
        return None
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return Media(mime_type, uri=url, name=name)
    payload = base64_text(data)
    own_type = head.removeprefix("data:").partition(";")[0].lower()
    return Media(own_type or mime_type, payload, name=name) if payload else None


def _read_item(place: JsonPosition, raw: dict[str, Any], notes: Notes) -> Message:
    if raw["type"] == "function_call":
        return Message("agent", calls=(read_tool_call(place, raw),))
    if raw["type"] in HOSTED:
        return Message("agent", calls=(_read_hosted_call(place, raw),))
    if raw["type"] == "reasoning":
        return Message("agent", thought=read_content(place.at("summary"), raw.get("summary"), notes)[0])
    text, _ = read_content(place.at("output"), raw.get("output"), notes)
    return Message("tool", call_id=read_optional_text(place.at("call_id"), raw.get("call_id")), result=text)


def _read_hosted_call(place: JsonPosition, raw: dict[str, Any]) -> ToolCall:
    """That of a tool on a server of MCP has its name and arguments, any other the fields of its item and action."""
    call_id = read_optional_text(place.at("id"), raw.get("id"))
    if raw["type"] == "mcp_call":
        args, extra = read_arguments(place.at("arguments"), raw.get("arguments"))
        return ToolCall(read_text(place.at("name"), raw.get("name", ABSENT)), args, call_id, extra)
    arguments = {key: value for key, value in raw.items() if key not in ("id", "type", *_RESULT_KEYS)}
    if isinstance(arguments.get("action"), dict):
        arguments |= arguments.pop("action")
    args = {key: value for key, value in arguments.items() if value is not None}
    return ToolCall(raw["type"].removesuffix("_call"), args, call_id)


def read_speaker(place: JsonPosition, raw: Any) -> Speaker:
    """The role of the author. Raises FormatError for an unknown role."""
    role = read_text(place, raw)
    if role not in _SPEAKERS:
        raise place.error(f"unknown role {role[:NAME_LIMIT]!r}; known are {', '.join(_SPEAKERS)}")
    return _SPEAKERS[role]


def read_content(place: JsonPosition, raw: Any, notes: Notes) -> tuple[str, str]:
    """The text of a message and the thoughts before it. A part that is no text is left out, with a note."""
    if raw is None or isinstance(raw, str):
        return raw or "", ""
    texts: list[str] = []
    thoughts: list[str] = []
    for kind, text in read_list(place, raw, lambda at, part: _read_part(at, part, notes)):
        if text is not None:
            (thoughts if kind in ("reasoning", "thinking") else texts).append(text)
    return "\n".join(texts), "\n".join(thoughts)


def tool_call(name: str, arguments: Any, call_id: str | None) -> ToolCall:
    """A call as a model made it, its arguments an object or the text that it wrote."""
    args, extra = read_arguments(_NOWHERE, arguments if isinstance(arguments, dict) else str(arguments or ""))
    return ToolCall(name, args, call_id, extra)


def read_tool_call(place: JsonPosition, raw: Any) -> ToolCall:
    """A call as `{id, function: {name, arguments}}`, `{id, function, arguments}` or `{id, name, arguments}`."""
    raw = read_mapping(place, raw)
    inner = raw.get("function")
    at, fields = (place.at("function"), inner) if isinstance(inner, dict) else (place, raw)
    name = fields.get("name", inner if isinstance(inner, str) else ABSENT)
    args, extra = read_arguments(at.at("arguments"), fields.get("arguments", fields.get("args", fields.get("kwargs"))))
    call_id = raw.get("call_id", raw.get("id"))  # an item of the Responses API has an `id` of its own beside it
    return ToolCall(read_text(at.at("name"), name), args, call_id if isinstance(call_id, str) else None, extra)


def read_arguments(place: JsonPosition, raw: Any) -> tuple[JsonObject, JsonObject]:
    """Arguments, an object or JSON text of one, and `extra`; a model's text that is none stays under RAW_ARGS."""
    if raw is None or raw == "":
        return {}, {}
    if isinstance(raw, dict):
        return raw, {}
    if not isinstance(raw, str):
        raise wrong_value(place, raw, "an object or the JSON text of one")
    try:
        value = parse_json(raw.encode("utf-8", "surrogatepass"), source=place.document.source).value
    except FormatError:
        return {}, {RAW_ARGS: raw}
    return (value, {}) if isinstance(value, dict) else ({}, {RAW_ARGS: raw})


def _read_calls(place: JsonPosition, raw: dict[str, Any]) -> tuple[ToolCall, ...]:
    calls = raw.get("tool_calls")
    if calls:
        return read_list(place.at("tool_calls"), calls, read_tool_call)
    function_call = raw.get("function_call")
    return (read_tool_call(place.at("function_call"), function_call),) if isinstance(function_call, dict) else ()


def _read_part(place: JsonPosition, raw: Any, notes: Notes) -> tuple[str, str | None]:
    if isinstance(raw, str):
        return "text", raw
    part = read_mapping(place, raw)
    kind = read_optional_text(place.at("type"), part.get("type")) or "text"
    key = next(
        (key for key in ("text", "content", "reasoning", "thinking", "refusal") if isinstance(part.get(key), str)), None
    )
    if key is not None:
        return kind, part[key]
    notes.refuse(NO_TEXT, place)
    return kind, None
