"""Messages of LangChain as events, and the messages of earlier turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evaldesk.agents.shared_loop import Tell
from evaldesk.llm import price
from evaldesk.model import Event, JsonObject, JsonValue, ToolCall, Usage
from evaldesk.wire import plain

MESSAGES = "messages"


class Teller:
    """Tells what the nodes of a graph gave, each message once, and keeps `state` as the graph's."""

    def __init__(self, tell: Tell, state: dict[str, JsonValue], *, model: str) -> None:
        self._tell = tell
        self._state = state
        self._model = model
        self._seen: set[str] = set()
        self._calls: dict[str, ToolCall] = {}

    def know(self, messages: Iterable[Any]) -> None:
        """These messages were said before this turn."""
        self._seen.update(message.id for message in messages if getattr(message, "id", None))

    async def updates(self, found: Any) -> None:
        """Tell what each node of a step changed."""
        for node, changed in found.items():
            for update in changed if isinstance(changed, list) else [changed]:
                if isinstance(update, dict):
                    self._state.update({key: plain(value) for key, value in update.items() if key != MESSAGES})
                    await self._messages(update.get(MESSAGES), node)

    async def piece(self, chunk: Any, about: Any) -> None:
        """Tell a piece of a streamed answer."""
        if type(chunk).__name__ == "AIMessageChunk" and (text := _text(chunk)):
            await self._tell(Event("agent_message", author=about.get("langgraph_node", ""), text=text, is_partial=True))

    async def _messages(self, found: Any, node: str) -> None:
        for message in found if isinstance(found, list) else [found]:
            message_id = getattr(message, "id", None)
            if message is None or message_id in self._seen:
                continue
            if message_id:
                self._seen.add(message_id)
            kind = getattr(message, "type", "")
            if kind == "ai":
                await self._said(message, message.name or node)
            elif kind == "tool":
                await self._gave(message, node)

    async def _said(self, message: Any, author: str) -> None:
        if message.usage_metadata:
            await self._tell(Event("usage", author=author, usage=self._usage(message)))
        if text := _text(message):
            await self._tell(Event("agent_message", author=author, text=text))
        for found in message.tool_calls:
            args = plain(found["args"])
            call = ToolCall(found["name"], args if isinstance(args, dict) else {}, found["id"])
            self._calls[call.id or ""] = call
            await self._tell(Event("tool_call", author=author, call=call))

    async def _gave(self, message: Any, author: str) -> None:
        call = self._calls.get(message.tool_call_id) or ToolCall(message.name or "", id=message.tool_call_id)
        is_error = message.status == "error"
        result = plain(message.content)
        await self._tell(Event("tool_result", author=author, call=call, result=result, is_error=is_error))

    def _usage(self, message: Any) -> Usage:
        spent = message.usage_metadata
        model = str(message.response_metadata.get("model_name") or self._model or "unknown")
        tokens_in, tokens_out = int(spent["input_tokens"]), int(spent["output_tokens"])
        return Usage(model, tokens_in=tokens_in, tokens_out=tokens_out, cost=price(model, tokens_in, tokens_out))


def past_messages(messages: Iterable[JsonObject]) -> list[Any]:
    """Messages in OpenAI's shape as LangChain's, with ids of their own."""
    from langchain_core.messages.utils import convert_to_messages

    found = convert_to_messages(list(messages))
    for number, message in enumerate(found):
        message.id = f"before-{number}"
    return list(found)


def _text(message: Any) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else str(part.get("text", "")) for part in content)
