"""The messages that were sent to a model, from the shapes of all APIs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from evaldesk.errors import NAME_LIMIT, TEXT_LIMIT
from evaldesk.model.json_text import json_or_text, short_json
from evaldesk.pages.json_tree import Node, Trees

MAX_TEXT = 8_000
"""A longer text is cut; the whole of it stands in the raw text of the call."""
_TEXTS = ("text", "input_text", "output_text", "refusal")
_IDS = ("call_id", "tool_call_id", "tool_use_id", "id")


@dataclass(frozen=True, slots=True)
class Piece:
    """A text, a call, or the result of one; a value of JSON is a `tree`."""

    kind: Literal["text", "call", "result", "other"]
    name: str = ""
    text: str = ""
    tree: Node | None = None

    @property
    def line(self) -> str:
        """How it begins."""
        if self.kind == "call":
            return self.name
        return self.text or (self.tree.line if self.tree else self.name)


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message; `line` is its beginning. It `is_kept` where an earlier call began with it as well."""

    role: str
    pieces: Sequence[Piece]
    line: str = ""
    is_kept: bool = False


@dataclass(slots=True)
class PromptDrawing:
    """The messages of one page."""

    trees: Trees = field(default_factory=Trees)

    def messages(self, raw: Any, n_kept: int = 0) -> tuple[PromptMessage, ...]:
        """The messages of a list, or a single one; the first `n_kept` are known from an earlier call."""
        items = raw if isinstance(raw, Sequence) and not isinstance(raw, str) else [raw]
        return tuple(self._message(each, is_kept=at < n_kept) for at, each in enumerate(items))

    def tools(self, raw: Any) -> tuple[Piece, ...]:
        """The tools that were offered."""
        items = raw if isinstance(raw, Sequence) and not isinstance(raw, str) else [raw] if raw else []
        flat = [inner for each in items for inner in _declarations(each)]
        return tuple(self._piece("call", _tool_name(each), _tool_value(each)) for each in flat)

    def settings(self, raw: Any) -> tuple[Piece, ...]:
        """All that was asked beside messages and tools, a piece for each name."""
        pairs = raw.items() if isinstance(raw, Mapping) else ()
        return tuple(self._piece("other", name, value) for name, value in pairs)

    def _message(self, raw: Any, *, is_kept: bool) -> PromptMessage:
        if not isinstance(raw, Mapping):
            return PromptMessage("", (self._piece("text", "", raw),), short_json(raw), is_kept)
        pieces = tuple(self._pieces(raw))
        line = next((line for piece in pieces if (line := piece.line)), short_json(dict(raw)))
        return PromptMessage(_role(raw), pieces, line[:160], is_kept)

    def _pieces(self, raw: Mapping[str, Any]) -> Iterator[Piece]:
        is_result = raw.get("role") in ("tool", "function")
        for name in ("content", "parts", "reasoning_content"):
            content = raw.get(name)
            if is_result and content is not None:
                yield self._piece("result", _text(raw, "name", *_IDS), content)
            elif isinstance(content, str):
                yield self._piece("text", "", content)
            elif isinstance(content, Sequence):
                for part in content:
                    yield from self._part(part)
            elif content is not None:
                yield self._piece("other", "", content)
        calls = raw.get("tool_calls")
        for call in calls if isinstance(calls, Sequence) and not isinstance(calls, str) else ():
            yield from self._part(call)
        if not raw.keys() & {"role", "content", "parts"}:
            yield from self._part(raw)

    def _part(self, part: Any) -> Iterator[Piece]:
        if isinstance(part, str):
            yield self._piece("text", "", part)
            return
        if not isinstance(part, Mapping):
            yield self._piece("other", "", part)
            return
        kind = part.get("type")
        inner = next((part[name] for name in ("function", "functionCall", "function_call") if name in part), None)
        answer = next((part[name] for name in ("functionResponse", "function_response") if name in part), None)
        if isinstance(inner, Mapping):
            yield self._piece("call", _text(inner, "name"), inner.get("arguments", inner.get("args")))
        elif kind in ("tool_use", "function_call", "tool_call"):
            yield self._piece("call", _text(part, "name"), part.get("input", part.get("arguments")))
        elif isinstance(answer, Mapping):
            yield self._piece("result", _text(answer, "name"), answer.get("response"))
        elif kind in ("tool_result", "function_call_output", "tool_call_response"):
            result = next((part[name] for name in ("content", "output", "response", "result") if name in part), None)
            yield self._piece("result", _text(part, *_IDS), result)
        else:
            yield from self._text_piece(part, kind)

    def _text_piece(self, part: Mapping[str, Any], kind: Any) -> Iterator[Piece]:
        """A text, a thought, or a part of a kind that is shown as it stands."""
        text = next((part[name] for name in ("text", "thinking", "content") if isinstance(part.get(name), str)), None)
        if isinstance(text, str) and (kind in _TEXTS or kind is None):
            yield self._piece("text", "thought" if part.get("thought") is True else "", text)
        elif isinstance(text, str):
            yield self._piece("text", str(kind), text)
        elif part:
            yield self._piece("other", str(kind or ""), part)

    def _piece(self, kind: Literal["text", "call", "result", "other"], name: str, value: Any) -> Piece:
        tree = self.trees.tree(value)
        if tree:
            return Piece(kind, name[:TEXT_LIMIT], tree=tree)
        text = "" if value is None else json_or_text(value)
        if len(text) > MAX_TEXT:
            text = f"{text[:MAX_TEXT]}… ({len(text) - MAX_TEXT:,} more characters, see Raw)"
        return Piece(kind, name[:TEXT_LIMIT], text)


def _role(raw: Mapping[str, Any]) -> str:
    role = raw.get("role")
    if isinstance(role, str):
        return role[:NAME_LIMIT]
    return {"function_call": "assistant", "function_call_output": "tool"}.get(str(raw.get("type")), "")


def _text(raw: Mapping[str, Any], *names: str) -> str:
    return next((str(raw[name]) for name in names if raw.get(name)), "")


def _declarations(raw: Any) -> Iterator[Any]:
    """The tools in one: Gemini's have several functions in one, and a hosted tool, such as googleSearch, by its key."""
    if not isinstance(raw, Mapping) or raw.keys() & {"name", "type", "function"}:
        yield raw
        return
    for key, value in raw.items():
        if key in ("functionDeclarations", "function_declarations") and isinstance(value, Sequence):
            yield from value
        else:
            yield {"type": key, "options": value}


def _function(raw: Any) -> Any:
    inner = raw.get("function") if isinstance(raw, Mapping) else None
    return inner if isinstance(inner, Mapping) else raw


def _tool_name(raw: Any) -> str:
    declaration = _function(raw)
    return _text(declaration, "name", "server_label", "type") if isinstance(declaration, Mapping) else ""


def _tool_value(raw: Any) -> Any:
    declaration = _function(raw)
    return (
        {key: value for key, value in declaration.items() if key != "name"}
        if isinstance(declaration, Mapping)
        else declaration
    )
