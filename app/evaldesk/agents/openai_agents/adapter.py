"""Agents of the OpenAI Agents SDK, run by its own runner."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from itertools import chain
from types import new_class
from typing import Any, cast

from evaldesk.agents.agent import is_from, walked
from evaldesk.agents.dependencies import Dependencies, dependencies_of, note_state, state_of
from evaldesk.agents.message_events import events_of_message, readable
from evaldesk.agents.own.model_calls import endpoint_client
from evaldesk.agents.shared_loop import OnSharedLoop, SendEvent, SentEvents
from evaldesk.agents.tools.frameworks import (
    awaiting,
    gone,
    in_our_words,
    never_answered,
    pause,
    paused,
    tool_result,
    watched,
)
from evaldesk.agents.tools.time_limit import ToolFailedError
from evaldesk.errors import AgentError, ModelError
from evaldesk.llm import missing_keys, priced
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Event,
    JsonValue,
    ModelOptions,
    Session,
    ToolCall,
    ToolDescription,
    Usage,
    Waiting,
)
from evaldesk.model.chat import chat_messages, user_message
from evaldesk.model.decisions import APPROVAL, Decided
from evaldesk.transcripts.messages.chat import ITEMS, tool_call
from evaldesk.transcripts.messages.turns import Message, TurnEvents
from evaldesk.wire import plain, plain_object

MEMORY = "openai_agents"
MAX_DEPTH = 8
REJECTED = "Tool execution was not approved."


def adapt(found: object, ref: AgentRef) -> OpenAIAgent | None:
    """The agent around an `agents.Agent`; None for anything else."""
    if not is_from(found, "agents"):
        return None
    try:
        from agents import Agent, Runner  # noqa: F401 - a package of the user's may have the same name
    except ImportError:
        return None
    if not isinstance(found, Agent):
        return None
    for agent in walked(found, _with_those_in_tools):
        agent.tools = [seen(tool) for tool in agent.tools]
        _see_servers(agent)
    return OpenAIAgent(found, ref, dependencies_of(ref))


@dataclass(frozen=True, slots=True)
class OpenAIAgent(OnSharedLoop):
    """An agent of the SDK with its handoffs. The session state, or what `dependencies` make of it, is its context."""

    found: Any
    ref: AgentRef
    dependencies: Dependencies

    def describe(self) -> AgentDescription:
        """The agent, and those it hands over to as a tree."""
        return _described(self.found, "openai_agents", depth=0, seen=set())

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the agent that spoke last. Raises ModelError for a refusal of the provider."""
        return SentEvents(lambda send: self._run(session, message, send))

    def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """Run the state in which the SDK left the turn, with its calls approved or rejected."""
        return SentEvents(lambda send: self._run(session, message, send, decided))

    async def _run(
        self, session: Session, message: str, send: SendEvent, decided: Sequence[Decided] | None = None
    ) -> None:
        from agents import MaxTurnsExceeded, RunConfig, Runner
        from agents.run import DEFAULT_MAX_TURNS

        known = paused(session) if decided is not None else None
        calls = watched(session, send)
        deps = await self.dependencies.bind(session, resumes=decided is not None)
        starting, items = self._before(session)
        given: Any = [*items, *_items(dict(user_message(message, session.media)))]
        if decided is not None:
            starting, given = self.found, known or await self._restored(session, deps)
            await _decide(given, decided, send)
        model = model_of(session, starting)
        options = {
            "starting_agent": starting,
            "input": given,
            "context": deps,
            "max_turns": session.model_options.max_turns or DEFAULT_MAX_TURNS,
            "hooks": _hooks_class()(send, session.model),
            "run_config": RunConfig(tracing_disabled=True, **model),
        }
        named = session.model or model_name(starting) or "openai"
        try:
            with in_our_words(calls, named, but=MaxTurnsExceeded, deps=deps):
                if session.is_streaming:
                    result = Runner.run_streamed(**options)
                    async for event in result.stream_events():
                        if getattr(getattr(event, "data", None), "type", "") == "response.output_text.delta":
                            await send(Event("agent_message", text=event.data.delta, is_partial=True))
                else:
                    result = await Runner.run(**options)
        except MaxTurnsExceeded as error:
            await send(never_answered(session, error))
            return
        await self.dependencies.keep(session, deps)
        calls.check()
        interruptions = getattr(result, "interruptions", ())  # older versions have no approvals
        if interruptions:
            state = result.to_state()
            pause(session, state, lambda: _frozen(state))
            for event in awaiting(_waiting(item) for item in interruptions):
                await send(event)
            return
        output, author = result.final_output, result.last_agent.name
        text = output if isinstance(output, str) else json.dumps(plain(as_json(output)), ensure_ascii=False)
        if result.new_items and result.new_items[-1].type == "tool_call_output_item":  # by `tool_use_behavior`
            await send(Event("agent_message", author=author, text=text))
        elif text is not output:
            await send(Event("log", author=author, text=f"final output: {text}"))
        session.memory[MEMORY] = (len(session.turns) + 1, result.last_agent, result.to_input_list())

    async def _restored(self, session: Session, deps: Any) -> Any:
        """The state of the turn from what was stored of it. Raises AgentError where nothing was."""
        from agents import RunContextWrapper, RunState

        if not isinstance(session.paused, dict):
            raise gone()
        return await RunState.from_json(self.found, session.paused, context_override=RunContextWrapper(deps))

    def _before(self, session: Session) -> tuple[Any, list[Any]]:
        """The agent that spoke last, and the conversation until now."""
        known: Any = session.memory.get(MEMORY)
        if known and known[0] == len(session.turns):
            return known[1], known[2]
        authors = [event.author for turn in session.turns for event in turn.events if event.kind == "agent_message"]
        named = {agent.name: agent for agent in walked(self.found, _successors)}
        items = [item for message in chat_messages(session.turns) for item in _items(dict(message))]
        return named.get(authors[-1], self.found) if authors else self.found, items


def _waiting(item: Any) -> Waiting:
    fields = plain_object(as_json(item.raw_item))
    name = str(item.tool_name or fields.get("name") or "tool")
    call = tool_call(name, fields.get("arguments") or "{}", None)
    return Waiting(_call_id(item), name, call.args, APPROVAL)


def _call_id(item: Any) -> str:
    """The id of the call that an approval is about: of a function, or of a server of MCP."""
    raw = plain_object(as_json(item.raw_item))
    return str(raw.get("call_id") or raw.get("id") or item.tool_name)


def _frozen(state: Any) -> JsonValue:
    found: JsonValue = state.to_json(context_serializer=lambda _: {})  # the context is made anew of the session state
    return found


async def _decide(state: Any, decided: Sequence[Decided], send: SendEvent) -> None:
    """Approve and reject; the SDK tells of a rejected call to the model alone, so its result is told here."""
    items = {_call_id(item): item for item in state.get_interruptions()}
    for waiting, decision in decided:
        item = items.get(waiting.id)
        if item is None:
            raise AgentError(f"{waiting.tool} does not wait any more")
        if decision.decision == "approve":
            state.approve(item)
            continue
        words = decision.reason or REJECTED
        try:
            state.reject(item, rejection_message=words)
        except TypeError:  # older versions have words of their own
            state.reject(item)
        call = ToolCall(waiting.tool, waiting.args, waiting.id)
        await send(Event("tool_result", call=call, result=words, is_error=True))


def _described(agent: Any, kind: str, depth: int, seen: set[int]) -> AgentDescription:
    seen = {*seen, id(agent)}
    below = [
        _described(other, "handoff", depth + 1, seen)
        for other in agent.handoffs
        if hasattr(other, "instructions") and depth < MAX_DEPTH and id(other) not in seen
    ]
    named = [
        AgentDescription(name=str(other.agent_name), kind="handoff")
        for other in agent.handoffs
        if hasattr(other, "agent_name")
    ]
    model = model_name(agent)
    is_made = callable(agent.instructions)
    return AgentDescription(
        name=str(agent.name),
        kind=kind,
        description=str(agent.handoff_description or ""),
        instruction="made by a function when a turn begins" if is_made else str(agent.instructions or ""),
        model=model,
        tools=tuple(_tool(tool) for tool in agent.tools),
        sub_agents=(*below, *named),
        missing=_missing(agent, model),
    )


def _missing(agent: Any, model: str) -> tuple[str, ...]:
    """The keys that its model lacks; none where its code gave the SDK a key, a client, or a model of its own."""
    from agents.models import _openai_shared

    is_named = agent.model is None or isinstance(agent.model, str)
    is_configured = _openai_shared.get_default_openai_key() or _openai_shared.get_default_openai_client()
    return missing_keys(model, os.environ) if is_named and not is_configured else ()


def _tool(tool: Any) -> ToolDescription:
    description = str(getattr(tool, "description", "") or "")
    return ToolDescription(str(tool.name), description, plain_object(getattr(tool, "params_json_schema", None)))


def model_name(agent: Any) -> str:
    """The name of the agent's model; the SDK's default where it names none."""
    found = agent.model
    if found is None:
        from agents.models.default_models import get_default_model

        return str(get_default_model())
    return str(found if isinstance(found, str) else getattr(found, "model", type(found).__name__))


def as_json(value: Any) -> Any:
    """A pydantic model as a plain object, anything else as it is."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


@cache
def _hooks_class() -> Any:
    from agents import RunHooks

    return new_class("Hooks", (_EventHooks, RunHooks))


class _EventHooks:
    """Hooks of a run that report events; `model` is the one that the run asks in place of the agents' own."""

    def __init__(self, send: SendEvent, model: str | None) -> None:
        self._send = send
        self._model = model
        self._turn = TurnEvents()
        self._started: dict[str, float] = {}
        self._asked = 0.0

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._asked = time.perf_counter()

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        took_ms = (time.perf_counter() - self._asked) * 1000
        usage = _usage(self._model or model_name(agent), response.usage, took_ms)
        await self._send(Event("usage", author=agent.name, usage=usage))
        for item in response.output:
            if item.type in ("message", *ITEMS):
                for found in readable(plain(as_json(item))):
                    await self._report(agent, found)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._started[getattr(context, "tool_call_id", "")] = time.perf_counter()

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        call_id = getattr(context, "tool_call_id", "")
        await self._gave(agent, call_id, tool.name, plain(as_json(result)))

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        tools, opened = {tool.name for tool in from_agent.tools}, reversed(self._turn.open_calls.values())
        call = next((found for found in opened if found.name not in tools), None)
        if call is not None:
            await self._gave(from_agent, call.id or "", call.name, f"handed over to {to_agent.name}")

    async def _gave(self, agent: Any, call_id: str, name: str, result: Any) -> None:
        begun = self._started.get(call_id)  # of a handoff the SDK tells no beginning
        took_ms = None if begun is None else (time.perf_counter() - begun) * 1000
        is_error = isinstance(result, str) and result.startswith(FAILED)
        found = Message("tool", "", name, call_id=call_id, result=result, is_error=is_error, duration_ms=took_ms)
        await self._report(agent, found)

    async def _report(self, agent: Any, found: Message | Event) -> None:
        events = [found] if isinstance(found, Event) else events_of_message(self._turn, found, agent.name)
        for event in events:
            await self._send(event)


def _usage(model: str, spent: Any, took_ms: float) -> Usage:
    usage = Usage(
        model,
        tokens_in=spent.input_tokens or 0,
        tokens_out=spent.output_tokens or 0,
        duration_ms=took_ms,
        tokens_cached=getattr(spent.input_tokens_details, "cached_tokens", 0) or 0,
        tokens_reasoning=getattr(spent.output_tokens_details, "reasoning_tokens", 0) or 0,
    )
    return priced(usage)


def model_of(session: Session, agent: Any) -> dict[str, Any]:
    """The fields of a RunConfig that say which model is asked, where and how. Raises ModelError."""
    from agents import ModelSettings

    asked = session.model_options
    settings = {"temperature": asked.temperature, "top_p": asked.top_p, "max_tokens": asked.max_tokens}
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if asked.reasoning_effort:
        from openai.types.shared import Reasoning

        given["reasoning"] = Reasoning(effort=cast("Any", asked.reasoning_effort))
    if asked.extra:
        given["extra_body"] = dict(asked.extra)
    fields: dict[str, Any] = {"model_settings": ModelSettings(**given)} if given else {}
    if session.model or asked.base_url:
        fields |= _model(session.model or "", asked, agent)
    return fields


def _model(name: str, asked: ModelOptions, agent: Any) -> dict[str, Any]:
    from agents import OpenAIProvider

    provider, slash, bare = name.partition("/")
    if asked.base_url:
        if not (name or agent.model is None or isinstance(agent.model, str)):
            raise ModelError("name the model of the endpoint, too: --model NAME", kind="unknown_model", is_fatal=True)
        client, model = endpoint_client(name, asked)
        # without a name, each agent asks for its own there
        named = {"model": model} if model else {}
        return {"model_provider": OpenAIProvider(openai_client=client, use_responses=False), **named}
    if not slash or provider == "openai":
        return {"model": bare or name}
    from agents.extensions.models.litellm_model import LitellmModel

    from evaldesk.llm.client import open_litellm

    open_litellm()
    return {"model": LitellmModel(name)}


def _content_part(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a chat message in the shape of the Responses API."""
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    if part["type"] == "image_url":
        return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}
    if part["type"] == "file":
        return {"type": "input_file", **part["file"]}
    return part


def _items(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        return
    content = message.get("content")
    if content:
        parts = [_content_part(part) for part in content] if isinstance(content, list) else content
        yield {"role": message["role"], "content": parts}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield {
            "type": "function_call",
            "call_id": call["id"],
            "name": function["name"],
            "arguments": function["arguments"],
        }


FAILED = "An error occurred while running the tool"
"""The start of the text by which the SDK tells a model of a failed tool."""

_MARK = "_is_watched"


def _successors(agent: Any) -> Iterator[Any]:
    """The agents that it can hand over to."""
    return (target for handoff in agent.handoffs if (target := _target(handoff)) is not None)


def _target(handoff: Any) -> Any:
    """The agent that a handoff leads to; None where only the SDK knows it."""
    if hasattr(handoff, "instructions"):
        return handoff
    reference = getattr(handoff, "_agent_ref", None)
    return reference() if callable(reference) else None


def _with_those_in_tools(agent: Any) -> Iterator[Any]:
    """The agents that it can hand over to, and those that it uses as tools."""
    inside = (getattr(tool, "_agent_instance", None) for tool in agent.tools)
    return chain(_successors(agent), (each for each in inside if each is not None))


def _see_servers(agent: Any) -> None:
    """Let the tools of its servers of MCP be seen, which the SDK lists anew for each call of a model."""
    listed = getattr(agent, "get_mcp_tools", None)
    if not getattr(agent, "mcp_servers", ()) or listed is None or hasattr(listed, _MARK):
        return

    async def get_mcp_tools(*given: Any) -> list[Any]:
        return [seen(tool) for tool in await listed(*given)]

    setattr(get_mcp_tools, _MARK, True)
    agent.get_mcp_tools = get_mcp_tools


def seen(tool: Any) -> Any:
    """The tool, answered by its double and ended in time; hosted tools, and agents used as tools, as they are."""
    invoke = getattr(tool, "on_invoke_tool", None)
    if invoke is None or getattr(tool, "_is_agent_tool", False) or hasattr(invoke, _MARK):
        return tool

    @wraps(invoke)
    async def on_invoke_tool(context: Any, arguments: str) -> Any:
        args, call = dict(tool_call(tool.name, arguments, None).args), partial(invoke, context, arguments)
        try:
            return await tool_result(tool.name, args, state_of(context.context), call)
        except ToolFailedError as error:
            return f"{FAILED}: {error}"
        finally:
            await note_state(context.context)

    setattr(on_invoke_tool, _MARK, True)
    return replace(tool, on_invoke_tool=on_invoke_tool)
