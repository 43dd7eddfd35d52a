"""Events of google-adk as ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from evaldesk.agents.adk_answers import REPLAYED
from evaldesk.model import ErrorRecord, Event, JsonObject, ToolCall, Usage
from evaldesk.wire import plain

if TYPE_CHECKING:
    from evaldesk.agents.adk_plugin import Witness


def translated(found: Any, witness: Witness, *, within: str = "", is_streaming: bool = False) -> Iterator[Event]:
    """What an event of google-adk says: usage, text, calls, results, and the error that ends a turn.

    Thoughts of a model are left out. `within` names the tool inside of which it happened.
    """
    parts = list((found.content.parts if found.content else None) or ())
    text = "".join(part.text for part in parts if part.text and not part.thought)
    if found.partial:
        if is_streaming and text:
            yield Event("agent_message", author=found.author, text=text, is_partial=True)
        return
    if found.usage_metadata:
        yield Event("usage", author=found.author, within=within, usage=_usage(found, witness))
    if text and found.author != "user":
        yield Event("agent_message", author=found.author, within=within, text=text)
    for part in parts:
        yield from _part(part, found.author, witness, within)
    if found.error_code or found.error_message:
        yield _error(found, within)


def _part(part: Any, author: str, witness: Witness, within: str) -> Iterator[Event]:
    if part.function_call:
        call = call_of(part.function_call)
        witness.calls[call.id or call.name] = call
        yield Event("tool_call", author=author, within=within, call=call)
    elif part.function_response:
        response = part.function_response
        result = plain(response.response)
        if isinstance(result, dict) and set(result) == {"result"}:  # so ADK wraps what is no object
            result = result["result"]
        yield Event(
            "tool_result",
            author=author,
            within=within,
            call=witness.calls.get(response.id or response.name) or ToolCall(response.name or "", id=response.id),
            result=result,
            is_error=isinstance(result, dict) and "error" in result,
            duration_ms=witness.took_ms.get(response.id or ""),
        )
    elif part.executable_code:
        yield Event("log", author=author, within=within, text=f"runs code:\n{part.executable_code.code}")
    elif part.code_execution_result:
        yield Event("log", author=author, within=within, text=f"code gave:\n{part.code_execution_result.output}")


def call_of(found: Any) -> ToolCall:
    """A function call of google-genai as a ToolCall."""
    args = plain(dict(found.args or {}))
    arguments: JsonObject = args if isinstance(args, dict) else {}
    return ToolCall(found.name or "", arguments, found.id)


def _usage(found: Any, witness: Witness) -> Usage:
    from evaldesk.llm import price

    spent = found.usage_metadata
    tokens_in = (spent.prompt_token_count or 0) + (spent.tool_use_prompt_token_count or 0)
    tokens_out = (spent.candidates_token_count or 0) + (spent.thoughts_token_count or 0)
    model = witness.models.get(found.author) or found.model_version or witness.model
    is_replayed = bool((found.custom_metadata or {}).get(REPLAYED))
    return Usage(
        model,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=0.0 if is_replayed else price(model, tokens_in, tokens_out),
        is_replayed=is_replayed,
        duration_ms=witness.took_ms.get(found.author, 0.0),
    )


def _error(found: Any, within: str) -> Event:
    said = ": ".join(str(part) for part in (found.error_code, found.error_message) if part)
    if within:
        return Event("log", author=found.author, within=within, text=said)
    return Event("error", author=found.author, error=ErrorRecord("model", said))
