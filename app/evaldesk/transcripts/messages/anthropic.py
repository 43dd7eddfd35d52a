"""Messages with content blocks, as Anthropic's Messages API has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.errors import NAME_LIMIT
from evaldesk.model import Case, ToolCall
from evaldesk.model.media import Media, base64_text, join_parts, split
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_text, read_text, text_of
from evaldesk.transcripts.conversation_case import calls_with_results
from evaldesk.transcripts.messages.chat import NO_TEXT, read_arguments
from evaldesk.transcripts.messages.turns import Message

_OWN_BLOCKS = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"}
_CALLS = {"tool_use", "server_tool_use", "mcp_tool_use"}


def has_blocks(conversation: Any) -> bool:
    """Whether a conversation is Anthropic's: a system prompt beside its messages, or a block only it has."""
    if isinstance(conversation, dict) and "system" in conversation:
        return True
    messages: Any = conversation.get("messages") if isinstance(conversation, dict) else conversation
    contents = [each.get("content") for each in messages if isinstance(each, dict)]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return any(isinstance(block, dict) and _is_own(block.get("type")) for block in blocks)


def read_anthropic(place: JsonPosition, raw: Any, notes: Notes) -> tuple[Message, ...]:
    """The messages; results of tools, which stand in messages of the user, are messages of their own."""
    message_lists = read_list(place, raw, lambda at, item: tuple(_read_message(at, item, notes)))
    return tuple(message for messages in message_lists for message in messages)


def write_anthropic(case: Case) -> dict[str, Any]:
    """The conversation with a system prompt beside it."""
    prompt = case.extra.get("system_prompt")
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(case.turns):
        content: Any = [_block(part) for part in split(turn.query, turn.media)] if turn.media else turn.query
        messages += [{"role": "user", "content": content}] if content else []
        messages += [_assistant(text) for _, text in turn.expected.intermediate]
        for call_id, call, result in calls_with_results(number, turn):
            block = {"type": "tool_use", "id": call_id, "name": call.name, "input": dict(call.args)}
            messages.append({"role": "assistant", "content": [block]})
            if result is not None:
                answer = {"type": "tool_result", "tool_use_id": call_id, "content": result}
                messages.append({"role": "user", "content": [answer]})
        if turn.expected.reference is not None:
            messages.append(_assistant(turn.expected.reference))
    return {"system": prompt if isinstance(prompt, str) else None, "messages": messages}


def _read_message(place: JsonPosition, raw: Any, notes: Notes) -> Iterator[Message]:
    raw = read_mapping(place, raw)
    role = read_text(place.at("role"), raw.get("role", ABSENT))
    if role not in ("user", "assistant", "system"):
        raise place.at("role").error(f"unknown role {role[:NAME_LIMIT]!r}; known are user, assistant, system")
    content = raw.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts: list[str] = []
    parts: list[str | Media] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for index, block in enumerate(read_list(place.at("content"), blocks or [], read_mapping)):
        here = place.at("content", index)
        kind = read_optional_text(here.at("type"), block.get("type")) or "text"
        if kind == "text":
            texts.append(read_text(here.at("text"), block.get("text", ABSENT)))
            parts.append(texts[-1])
        elif kind == "thinking":
            thoughts.append(read_optional_text(here.at("thinking"), block.get("thinking")) or "")
        elif kind in _CALLS:
            calls.append(_read_call(here, block))
        elif kind.endswith("tool_result"):
            yield _read_result(here, block, notes)
        elif role == "user" and (attachment := _read_media(block)):
            parts.append(attachment)
        else:
            notes.refuse(NO_TEXT, here)
    if role == "assistant":
        yield Message("agent", "\n".join(texts), thought="\n".join(filter(None, thoughts)), calls=tuple(calls))
    elif parts:
        text, media = join_parts(parts)
        yield Message("user" if role == "user" else "system", text, media=media)


def _read_media(block: dict[str, Any]) -> Media | None:
    """An image or a document of a message of the user; None where it has neither bytes nor an address."""
    source = block.get("source")
    if block.get("type") not in ("image", "document") or not isinstance(source, dict):
        return None
    data, url = source.get("data"), source.get("url")
    payload = base64_text(data) if isinstance(data, str) and source.get("type") == "base64" else None
    if not (payload or isinstance(url, str)):
        return None
    default_type = "image/png" if block["type"] == "image" else "application/pdf"
    mime_type = source.get("media_type")
    return Media(
        mime_type.lower() if isinstance(mime_type, str) else default_type,
        payload or "",
        "" if payload else str(url),
        text_of(block.get("title")),
    )


def _block(part: str | Media) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    bytes_or_url = {"type": "url", "url": part.uri} if part.uri else {"type": "base64", "data": part.data}
    source = bytes_or_url if part.uri else {**bytes_or_url, "media_type": part.mime_type}
    kind = "image" if part.kind == "image" else "document"
    return {"type": kind, "source": source, **({"title": part.name} if part.name and kind == "document" else {})}


def _read_call(place: JsonPosition, block: dict[str, Any]) -> ToolCall:
    args, extra = read_arguments(place.at("input"), block.get("input"))
    call_id = read_optional_text(place.at("id"), block.get("id"))
    return ToolCall(read_text(place.at("name"), block.get("name", ABSENT)), args, call_id, extra)


def _read_result(place: JsonPosition, block: dict[str, Any], notes: Notes) -> Message:
    content = block.get("content")
    if content is None or isinstance(content, str):
        text = content or ""
    else:
        parts = read_list(place.at("content"), content, read_mapping)
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        if len(texts) < len(parts):
            notes.refuse(NO_TEXT, place.at("content"))
        text = "\n".join(texts)
    call_id = read_optional_text(place.at("tool_use_id"), block.get("tool_use_id"))
    return Message("tool", call_id=call_id, result=text, is_error=bool(block.get("is_error")))


def _is_own(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _OWN_BLOCKS


def _assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}
