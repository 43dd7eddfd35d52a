"""Chat completions as an OpenAI-compatible endpoint sends them, whole or in pieces, read into a ModelReply.

The loose ends are those that LiteLLM accepts, too: arguments as an object, content in parts, other words for `stop`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
from evaldesk.llm.refusals import BrokenAnswerError, EndpointError
from evaldesk.model import Usage

_THOUGHT = re.compile(r"\A<(think|thinking)>.*?</\1>", re.DOTALL)
_REASONS: Mapping[str, str] = {
    **{reason: reason for reason in ("stop", "length", "tool_calls", "content_filter", "function_call")},
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: Any = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Tokens(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Tokens | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Answer)


def whole_reply(call: ModelCall, body: bytes) -> ModelReply:
    """The reply in the body of an answer. Raises BrokenAnswerError, and EndpointError where it says it is an error."""
    answer = _decoded(body)
    if not answer.choices or answer.choices[0].message is None:
        raise BrokenAnswerError("the answer has no choices")
    message, reason = answer.choices[0].message, answer.choices[0].finish_reason
    calls = [_Pending(found.id, found.function or _Function()) for found in message.tool_calls or ()]
    return _reply(call, _text(message.content), calls, reason, answer.usage)


@dataclass(slots=True)
class Pieces:
    """A streamed answer as far as it has come."""

    _text: list[str] = field(default_factory=list)
    _calls: dict[int, _Pending] = field(default_factory=dict)
    _usage: _Tokens | None = None
    _reason: str | None = None
    _is_done: bool = False

    def take(self, line: bytes) -> str:
        """Add a line of the stream; the text in it. Raises as `whole_reply` does."""
        name, colon, data = line.partition(b":")
        data = data.strip()
        if name != b"data" or not colon or not data:
            return ""
        if data == b"[DONE]":
            self._is_done = True
            return ""
        answer = _decoded(data)
        self._usage = answer.usage or self._usage
        if not answer.choices:
            return ""
        self._reason = answer.choices[0].finish_reason or self._reason
        delta = answer.choices[0].delta or _Message()
        for part in delta.tool_calls or ():
            self._join(part)
        text = _text(delta.content)
        self._text.append(text)
        return text

    def reply(self, call: ModelCall) -> ModelReply:
        """All of it. Raises BrokenAnswerError when the stream ended in the middle."""
        if not (self._is_done or self._reason):
            raise BrokenAnswerError("the streamed answer broke off")
        calls = [self._calls[index] for index in sorted(self._calls)]
        return _reply(call, "".join(self._text), calls, self._reason, self._usage)

    def _join(self, part: _Call) -> None:
        """Add a part of a tool call; one without an index goes on with the last, unless it names another."""
        last = max(self._calls, default=-1)
        index = part.index
        if index is None:
            is_new = part.id is not None and not (last >= 0 and self._calls[last].id == part.id)
            index = last + 1 if is_new or last < 0 else last
        known = self._calls.setdefault(index, _Pending(None, _Function()))
        known.id = known.id or part.id
        if part.function:
            known.function.name = known.function.name or part.function.name
            known.function.arguments = (known.function.arguments or "") + _arguments(part.function.arguments)


@dataclass(slots=True)
class _Pending:
    id: str | None
    function: _Function


def _decoded(body: bytes) -> _Answer:
    try:
        answer = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise BrokenAnswerError(
            f"the answer cannot be read: {error}: {body[:200].decode('utf-8', 'replace')}"
        ) from None
    if answer.error:
        code = answer.error.get("code") if isinstance(answer.error, Mapping) else None
        raise EndpointError(code if isinstance(code, int) else BrokenAnswerError.status_code, body)
    return answer


def _reply(
    call: ModelCall, text: str, pending: list[_Pending], reason: str | None, tokens: _Tokens | None
) -> ModelReply:
    calls = tuple(
        RequestedCall(
            found.id or f"call_{index}", found.function.name or "", _arguments(found.function.arguments) or "{}"
        )
        for index, found in enumerate(pending)
    )
    known = _REASONS.get(reason or "stop", "stop")
    usage = Usage(call.model, tokens_in=_count(tokens, "prompt_tokens"), tokens_out=_count(tokens, "completion_tokens"))
    finish_reason = "tool_calls" if calls and known == "stop" else known
    return ModelReply(_THOUGHT.sub("", text), calls, usage, finish_reason)


def _count(tokens: _Tokens | None, name: str) -> int:
    return getattr(tokens, name, None) or 0


def _text(content: Any) -> str:
    """The text of a message, which may come in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _arguments(found: Any) -> str:
    return found if isinstance(found, str) else "" if found is None else json.dumps(found, ensure_ascii=False)
