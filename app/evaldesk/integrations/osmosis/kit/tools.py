"""Helper functions for tool calls and messages in agent loops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from evaldesk.agents.tools.doubles import double_of
from evaldesk.agents.tools.time_limit import ToolLateError, call_in_time
from evaldesk.integrations.osmosis.kit.exceptions import ToolArgumentError

__all__ = [
    "count_messages_by_role",
    "create_tool_error_result",
    "create_tool_result",
    "execute_tool_calls",
    "get_message_content",
    "get_message_role",
    "get_tool_call_info",
    "is_assistant_message",
    "is_tool_message",
    "is_user_message",
    "parse_tool_arguments",
    "parse_tool_calls",
    "serialize_tool_result",
]

Message: TypeAlias = dict[str, Any]


def create_tool_result(tool_call_id: str, content: str) -> dict[str, str]:
    """The tool message with a result."""
    return {"role": "tool", "content": content, "tool_call_id": tool_call_id}


def create_tool_error_result(tool_call_id: str, error_message: str) -> dict[str, str]:
    """The tool message with an error."""
    return create_tool_result(tool_call_id, f"Error: {error_message}")


def serialize_tool_result(result: Any) -> str:
    """A result as text: text and numbers unchanged, anything else as JSON."""
    if isinstance(result, str):
        return result
    if isinstance(result, int | float) and not isinstance(result, bool):
        return str(result)
    return json.dumps(result)


def parse_tool_arguments(arguments: str | dict[str, Any]) -> dict[str, Any]:
    """Arguments as an object. Raises ToolArgumentError."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except json.JSONDecodeError as error:
            raise ToolArgumentError(f"Invalid JSON arguments: {error}") from error
    if not isinstance(arguments, dict):
        raise ToolArgumentError(f"Expected arguments that are an object, got {type(arguments).__name__}")
    return arguments


def get_tool_call_info(tool_call: Message) -> tuple[str, str, dict[str, Any]]:
    """Id, name and arguments of a requested call. Raises ToolArgumentError naming the call."""
    call_id = tool_call.get("id", "unknown")
    function = tool_call.get("function", {})
    name = function.get("name", "")
    try:
        return call_id, name, parse_tool_arguments(function.get("arguments", {}))
    except ToolArgumentError as error:
        raise ToolArgumentError(str(error), tool_call_id=call_id, tool_name=name) from error


async def execute_tool_calls(
    tool_calls: Sequence[Message], executor: Callable[[Message], Awaitable[Message]]
) -> list[Message]:
    """Run the calls concurrently, and return their results in order; calls with a double are not executed."""
    return list(await asyncio.gather(*(_execute(call, executor) for call in tool_calls)))


async def _execute(call: Message, executor: Callable[[Message], Awaitable[Message]]) -> Message:
    try:
        call_id, name, args = get_tool_call_info(call)
    except ToolArgumentError:
        return await executor(call)
    outcome = await double_of(name, args, {})
    if outcome is None:
        try:
            return await call_in_time(name, partial(executor, call))
        except ToolLateError as error:
            return create_tool_error_result(call_id, str(error))
    make_message = create_tool_error_result if outcome.is_error else create_tool_result
    return make_message(call_id, serialize_tool_result(outcome.result))


def parse_tool_calls(message: Message) -> list[Message]:
    """The tool calls of a message of the model."""
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def get_message_role(message: Message) -> str:
    """The role of the message; `unknown` without one."""
    return str(message.get("role", "unknown"))


def get_message_content(message: Message) -> str:
    """The text of the message; parts of a list are joined."""
    content = message.get("content") or ""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return str(content)


def is_assistant_message(message: Message) -> bool:
    """Whether the role is `assistant`."""
    return message.get("role") == "assistant"


def is_tool_message(message: Message) -> bool:
    """Whether the role is `tool`."""
    return message.get("role") == "tool"


def is_user_message(message: Message) -> bool:
    """Whether the role is `user`."""
    return message.get("role") == "user"


def count_messages_by_role(messages: Sequence[Message]) -> dict[str, int]:
    """The number of messages of each role."""
    counts: dict[str, int] = {}
    for message in messages:
        role = get_message_role(message)
        counts[role] = counts.get(role, 0) + 1
    return counts
