"""Messages of pydantic-ai as events, and the messages of earlier turns."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from evaldesk.agents.shared_loop import Tell
from evaldesk.llm import price
from evaldesk.model import Event, ToolCall, TurnRecord, Usage
from evaldesk.wire import plain

OUTPUT_TOOL = "final_result"  # by which a model gives a structured output


class Teller:
    """Tells what the nodes of a run are about."""

    def __init__(self, tell: Tell, *, author: str, model: str) -> None:
        self.author = author
        self._tell = tell
        self._model = model
        self._calls: dict[str, ToolCall] = {}
        self._asked = time.perf_counter()

    async def node(self, node: Any, context: Any) -> None:
        """Tell results before a request, and the response after it; with a `context` its pieces as well."""
        kind = type(node).__name__
        if kind == "ModelRequestNode":
            for part in node.request.parts:
                await self._gave(part)
            self._asked = time.perf_counter()
            if context is not None:
                await self._pieces(node, context)
        elif kind == "CallToolsNode":
            await self._said(node.model_response)

    async def _pieces(self, node: Any, context: Any) -> None:
        async with node.stream(context) as stream:
            async for event in stream:
                text = _piece(event)
                if text:
                    await self._tell(Event("agent_message", author=self.author, text=text, is_partial=True))

    async def _said(self, response: Any) -> None:
        await self._tell(Event("usage", author=self.author, usage=self._usage(response)))
        text = "".join(part.content for part in response.parts if part.part_kind == "text")
        if text:
            await self._tell(Event("agent_message", author=self.author, text=text))
        for part in response.parts:
            if part.part_kind == "tool-call" and not part.tool_name.startswith(OUTPUT_TOOL):
                call = self._calls[part.tool_call_id] = _call(part)
                await self._tell(Event("tool_call", author=self.author, call=call))

    async def _gave(self, part: Any) -> None:
        is_retry = part.part_kind == "retry-prompt" and part.tool_name
        if part.part_kind != "tool-return" and not is_retry:
            return
        if part.tool_name.startswith(OUTPUT_TOOL):
            return
        result = part.model_response() if is_retry else _as_json(part.content)
        took_ms = (time.perf_counter() - self._asked) * 1000
        call = self._calls.get(part.tool_call_id) or ToolCall(part.tool_name, id=part.tool_call_id)
        await self._tell(
            Event(
                "tool_result",
                author=self.author,
                call=call,
                result=plain(result),
                is_error=bool(is_retry) or getattr(part, "outcome", "success") != "success",
                duration_ms=took_ms,
            )
        )

    def _usage(self, response: Any) -> Usage:
        model = self._model or str(response.model_name or "unknown")
        tokens_in, tokens_out = int(response.usage.input_tokens), int(response.usage.output_tokens)
        return Usage(
            model,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost=price(model, tokens_in, tokens_out),
            duration_ms=(time.perf_counter() - self._asked) * 1000,
        )


def past_messages(turns: Iterable[TurnRecord]) -> list[Any]:
    """The turns as pydantic-ai's messages."""
    return [message for turn in turns for message in _past(turn)]


def _past(turn: TurnRecord) -> Iterator[Any]:
    from pydantic_ai import messages

    yield messages.ModelRequest(parts=[messages.UserPromptPart(turn.query)])
    events = [event for event in turn.events if not event.within and not event.is_partial]
    answered = {event.call.id for event in events if event.kind == "tool_result" and event.call}
    for event in events:
        call = event.call
        if event.kind == "agent_message":
            yield messages.ModelResponse(parts=[messages.TextPart(event.text)])
        elif event.kind == "tool_call" and call and call.id in answered:
            yield messages.ModelResponse(parts=[messages.ToolCallPart(call.name, dict(call.args), call.id or "")])
        elif event.kind == "tool_result" and call:
            yield messages.ModelRequest(parts=[messages.ToolReturnPart(call.name, event.result, call.id or "")])


def _piece(event: Any) -> str:
    if event.event_kind == "part_start" and event.part.part_kind == "text":
        return str(event.part.content)
    if event.event_kind == "part_delta" and event.delta.part_delta_kind == "text":
        return str(event.delta.content_delta)
    return ""


def _call(part: Any) -> ToolCall:
    try:
        args = plain(part.args_as_dict())
    except Exception:  # arguments that are no JSON object
        args = None
    if not isinstance(args, dict):
        return ToolCall(part.tool_name, {}, part.tool_call_id, {"arguments": str(part.args)})
    return ToolCall(part.tool_name, args, part.tool_call_id)


def _as_json(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)
