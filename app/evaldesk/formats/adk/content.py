"""ADK's Content, `{"parts": [...], "role": ...}`: text and media are read, everything else is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from evaldesk.model.media import Media, join_parts
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import ABSENT, wrong_value
from evaldesk.transcripts.adk import message_parts, parts_text, read_parts, written_parts

Query: TypeAlias = tuple[str, tuple[Media, ...]]
"""The message of a user: its text and its media."""


def read_content(place: JsonPosition, raw: Any) -> str | None:
    """The text of a content; None when it holds no text, is null or absent."""
    return None if raw is None or raw is ABSENT else parts_text(read_parts(place, raw))


def read_query(place: JsonPosition, raw: Any) -> Query:
    """The user's message; the content must be there, and may hold no text (a picture, say)."""
    if raw is ABSENT or raw is None:
        raise wrong_value(place, raw, "the user's message, an object with parts")
    return join_parts(message_parts(read_parts(place, raw)))


def write_query(query: Query) -> Any:
    """The content of a user's message, without a part where there is none."""
    text, media = query
    return {"parts": written_parts(text, media) if text or media else [], "role": "user"}


def write_reference(reference: str | None) -> Any:
    """The content of a reference answer; absent when there is none."""
    return ABSENT if reference is None else {"parts": [{"text": reference}], "role": "model"}


def patch_content(raw: Any, text: str | None) -> Any:
    """`raw` saying `text` instead: the first text part takes it, other texts go, all other parts stay."""
    if not isinstance(raw, dict):
        return write_reference(text)
    parts = patch_parts(raw.get("parts") or [], text)
    return {**raw, "parts": parts} if parts else ABSENT


def patch_query(raw: Any, query: Query) -> Any:
    """`raw` saying `query` instead; parts that are neither text nor media stay."""
    text, media = query
    old_media = join_parts(message_parts(read_parts(_NOWHERE, raw)))[1]
    if [item.digest or item.uri for item in old_media] == [item.digest or item.uri for item in media]:
        return patch_content(raw, text)
    others = [part for part in raw.get("parts") or [] if not (_is_text(part) or any(message_parts([part])))]
    return {**raw, "parts": [*write_query(query)["parts"], *others]}


_NOWHERE = JsonPosition(Document(None))


def patch_parts(parts: Sequence[dict[str, Any]], text: str | None) -> list[dict[str, Any]]:
    """The parts with `text` in place of the texts they had; None takes all text out."""
    new_parts, text = _leading_thoughts(parts, text)
    is_placed = text is None
    for part in parts[len(new_parts) :]:
        if not _is_text(part):
            new_parts.append(part)
        elif not is_placed and not part.get("thought"):
            new_parts.append({**part, "text": text})
            is_placed = True
    return new_parts if is_placed else [*new_parts, {"text": text}]


def patch_message(parts: Sequence[dict[str, Any]], text: str | None) -> list[dict[str, Any]]:
    """The parts with `text` in place of the visible text; thoughts stay, in front."""
    thoughts = [part for part in parts if part.get("thought")]
    return [*thoughts, *patch_parts([part for part in parts if not part.get("thought")], text)]


def _leading_thoughts(parts: Sequence[dict[str, Any]], text: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """The leading thoughts when `text` still begins with them, and the rest of `text`."""
    thoughts = []
    for part in parts:
        if not (part.get("thought") and part.get("text")):
            break
        thoughts.append(part)
    thought_text = "".join(part["text"] + "\n" for part in thoughts)
    if text is None or not text.startswith(thought_text) or text == thought_text:
        return [], text
    return thoughts, text.removeprefix(thought_text)


def _is_text(part: dict[str, Any]) -> bool:
    """Whether the part is text, or is nothing at all (every key null)."""
    return isinstance(part.get("text"), str) or all(value is None for value in part.values())
