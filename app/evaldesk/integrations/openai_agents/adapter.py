"""Agents of the OpenAI Agents SDK, run by its own runner."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from itertools import chain
from types import new_class
from typing import Any, cast

from evaldesk.agents.agent import breadth_first, is_from
from evaldesk.agents.dependencies import Dependencies, dependencies_of, note_state, state_of
from evaldesk.agents.message_events import events_of_message, parse_message
from evaldesk.agents.own.model_calls import endpoint_client
from evaldesk.agents.shared_loop import EventStream, OnSharedLoop, SendEvent
from evaldesk.agents.tools.frameworks import (
    begin_tool_calls,
    call_limit_event,
    lost_turn_error,
    pause,
    take_paused_turn,
    tool_result,
    translate_errors,
    waiting_events,
)
from evaldesk.agents.tools.time_limit import ToolFailedError
from evaldesk.errors import AgentError, ModelError
from evaldesk.llm import missing_keys, model_fault, with_cost
from evaldesk.llm.context import context_value
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
from evaldesk.model.chat import chat_messages, user_messages
from evaldesk.model.decisions import APPROVAL, Decided
from evaldesk.transcripts.messages.chat import ITEMS, tool_call
from evaldesk.transcripts.messages.turns import Message, TurnEvents
from evaldesk.wire import plain_json, plain_object

MEMORY = "openai_agents"
MAX_DEPTH = 8
REJECTED = "Tool execution was not approved."


def adapt(candidate: object, ref: AgentRef) -> OpenAIAgent | None:
    """The agent around an `agents.Agent`; None for anything else."""
    if not is_from(candidate, "agents"):
        return None
    try:
        from agents import Agent, Runner  # noqa: F401 - a package of the user's may have the same name
    except ImportError:
        return None
    if not isinstance(candidate, Agent):
        return None
    agents = [*breadth_first(candidate, _related_agents)]
    for agent in agents:
        agent.tools = [_watch_agent_tool(agent, tool) or watch_tool(tool) for tool in agent.tools]
        _watch_servers(agent)
        if not isinstance(agent.hooks, _inner_hooks_class()):
            agent.hooks = _inner_hooks_class()(agent.hooks)
    return OpenAIAgent(candidate, ref, dependencies_of(ref))


@dataclass(frozen=True, slots=True)
class OpenAIAgent(OnSharedLoop):
    """An agent of the SDK with its handoffs. Its context is the session state, or the object from `dependencies`."""

    sdk_agent: Any
    ref: AgentRef
    dependencies: Dependencies

    def describe(self) -> AgentDescription:
        """The agent and its handoffs as a tree."""
        return _describe_tree(self.sdk_agent, "openai_agents", depth=0, ancestor_ids=set())

    def model_fault(self, model: str) -> str:
        """The reason why no provider can answer for `model`; only OpenAI knows the names of its own."""
        provider, slash, _ = model.partition("/")
        return model_fault(model) if slash and provider != "openai" else ""

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the last active agent. Raises ModelError for a refusal of the provider."""
        return EventStream(lambda send: self._run(session, message, send))

    def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """Resume the saved run state of the SDK, with its calls approved or rejected."""
        return EventStream(lambda send: self._run(session, message, send, decided))

    async def _run(
        self, session: Session, message: str, send: SendEvent, decided: Sequence[Decided] | None = None
    ) -> None:
        from agents import MaxTurnsExceeded, RunConfig, Runner
        from agents.run import DEFAULT_MAX_TURNS

        saved_state = take_paused_turn(session) if decided is not None else None
        calls = begin_tool_calls(session, send)
        deps = await self.dependencies.bind(session, resumes=decided is not None)
        starting, items = self._starting_point(session)
        root = self._root(session)
        run_input: Any = [
            *items,
            *(item for each in user_messages(message, session.media) for item in _items(dict(each))),
        ]
        if decided is not None:
            starting, run_input = root, saved_state or await self._restore_state(session, deps)
            await _decide(run_input, decided, send)
        model = model_of(session, starting)
        options = {
            "starting_agent": starting,
            "input": run_input,
            "context": deps,
            "max_turns": session.model_options.max_turns or DEFAULT_MAX_TURNS,
            "hooks": _hooks_class()(send, session.model),
            "run_config": RunConfig(tracing_disabled=True, **model),
        }
        model_label = session.model or model_name(starting) or "openai"
        _RUN_HOOKS.set(options["hooks"])
        try:
            with translate_errors(calls, model_label, but=MaxTurnsExceeded, deps=deps):
                if session.is_streaming:
                    result = Runner.run_streamed(**options)
                    async for event in result.stream_events():
                        if getattr(getattr(event, "data", None), "type", "") == "response.output_text.delta":
                            await send(Event("agent_message", text=event.data.delta, is_partial=True))
                else:
                    result = await Runner.run(**options)
        except MaxTurnsExceeded as error:
            await send(call_limit_event(session, error))
            return
        await self.dependencies.keep(session, deps)
        calls.check()
        interruptions = getattr(result, "interruptions", ())  # older versions have no approvals
        if interruptions:
            state = result.to_state()
            pause(session, state, lambda: _state_snapshot(state))
            for event in waiting_events(_request(item) for item in interruptions):
                await send(event)
            return
        output, author = result.final_output, result.last_agent.name
        text = output if isinstance(output, str) else json.dumps(plain_json(as_json(output)), ensure_ascii=False)
        if result.new_items and result.new_items[-1].type == "tool_call_output_item":  # by `tool_use_behavior`
            await send(Event("agent_message", author=author, text=text))
        elif text is not output:
            await send(Event("log", author=author, text=f"final output: {text}"))
        session.memory[MEMORY] = (len(session.turns) + 1, result.last_agent, result.to_input_list())

    async def _restore_state(self, session: Session, deps: Any) -> Any:
        """The run state from the stored snapshot. Raises AgentError without a snapshot."""
        from agents import RunContextWrapper, RunState

        if not isinstance(session.paused, dict):
            raise lost_turn_error()
        return await RunState.from_json(self._root(session), session.paused, context_override=RunContextWrapper(deps))

    def _starting_point(self, session: Session) -> tuple[Any, list[Any]]:
        """The last active agent, and the conversation so far."""
        memory_entry: Any = session.memory.get(MEMORY)
        if memory_entry and memory_entry[0] == len(session.turns):
            return memory_entry[1], memory_entry[2]
        authors = [event.author for turn in session.turns for event in turn.events if event.kind == "agent_message"]
        root = self._root(session)
        agents_by_name = {agent.name: agent for agent in breadth_first(root, _successors)}
        items = [item for message in chat_messages(session.turns) for item in _items(dict(message))]
        return agents_by_name.get(authors[-1], root) if authors else root, items

    def _root(self, session: Session) -> Any:
        """The agent; with other instructions a copy of its tree, which the session keeps."""
        options = session.model_options
        if options.instruction is None and not options.instructions:
            return self.sdk_agent
        if _ROOT not in session.memory:
            session.memory[_ROOT] = _with_instructions(self.sdk_agent, options, {}, is_root=True)
        return session.memory[_ROOT]


_ROOT = "agent with other instructions"


def _with_instructions(agent: Any, options: ModelOptions, copies: dict[int, Any], *, is_root: bool = False) -> Any:
    """A copy of the agent and of the agents that it hands over to, with the instructions of a run."""
    if id(agent) in copies:
        return copies[id(agent)]
    text = options.instruction_of(str(agent.name), is_root=is_root)
    copies[id(agent)] = agent_copy = agent.clone() if text is None else agent.clone(instructions=text)
    agent_copy.handoffs = [
        _with_instructions(other, options, copies) if hasattr(other, "instructions") else other
        for other in agent.handoffs
    ]
    return agent_copy


def _request(item: Any) -> Waiting:
    fields = plain_object(as_json(item.raw_item))
    name = str(item.tool_name or fields.get("name") or "tool")
    call = tool_call(name, fields.get("arguments") or "{}", None)
    return Waiting(_call_id(item), name, call.args, APPROVAL)


def _call_id(item: Any) -> str:
    """The id of the call to approve: of a function, or of an MCP server."""
    raw = plain_object(as_json(item.raw_item))
    return str(raw.get("call_id") or raw.get("id") or item.tool_name)


def _state_snapshot(state: Any) -> JsonValue:
    snapshot: JsonValue = state.to_json(
        context_serializer=lambda _: {}
    )  # the context is made anew of the session state
    return snapshot


async def _decide(state: Any, decided: Sequence[Decided], send: SendEvent) -> None:
    """Approve and reject calls; a rejected call gets its result event here, as the SDK only informs the model."""
    items = {_call_id(item): item for item in state.get_interruptions()}
    for request, decision in decided:
        item = items.get(request.id)
        if item is None:
            raise AgentError(f"{request.tool} does not wait any more")
        if decision.decision == "approve":
            state.approve(item)
            continue
        words = decision.reason or REJECTED
        try:
            state.reject(item, rejection_message=words)
        except TypeError:  # older versions have words of their own
            state.reject(item)
        call = ToolCall(request.tool, request.args, request.id)
        await send(Event("tool_result", call=call, result=words, is_error=True))


def _describe_tree(agent: Any, kind: str, depth: int, ancestor_ids: set[int]) -> AgentDescription:
    ancestor_ids = {*ancestor_ids, id(agent)}
    below = [
        _describe_tree(other, "handoff", depth + 1, ancestor_ids)
        for other in agent.handoffs
        if hasattr(other, "instructions") and depth < MAX_DEPTH and id(other) not in ancestor_ids
    ]
    handoffs = [
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
        sub_agents=(*below, *handoffs),
        missing=_missing_variables(agent, model),
        takes_instruction=True,
        makes_instruction=is_made,
    )


def _missing_variables(agent: Any, model: str) -> tuple[str, ...]:
    """The missing key variables of its model; none if the code gave the SDK a key, a client, or a model object."""
    from agents.models import _openai_shared

    is_named = agent.model is None or isinstance(agent.model, str)
    # Private: the SDK has setters for its default key and client, and no public getters.
    is_configured = _openai_shared.get_default_openai_key() or _openai_shared.get_default_openai_client()
    return missing_keys(model, os.environ) if is_named and not is_configured else ()


def _tool(tool: Any) -> ToolDescription:
    description = str(getattr(tool, "description", "") or "")
    return ToolDescription(str(tool.name), description, plain_object(getattr(tool, "params_json_schema", None)))


def model_name(agent: Any) -> str:
    """The name of the agent's model; the SDK's default for an agent without one."""
    model = agent.model
    if model is None:
        from agents.models.default_models import get_default_model

        return str(get_default_model())
    return str(model if isinstance(model, str) else getattr(model, "model", type(model).__name__))


def as_json(value: Any) -> Any:
    """A pydantic model as a plain object, anything else as it is."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


@cache
def _hooks_class() -> Any:
    from agents import RunHooks

    return new_class("Hooks", (_EventHooks, RunHooks))


class _EventHooks:
    """Hooks that send the events of a run; `model` replaces the agents' own models.

    Those of an agent tool are `within` it, and its first agent is below `caller`.
    """

    def __init__(self, send: SendEvent, model: str | None, within: str = "", caller: str = "") -> None:
        self._send = send
        self._model = model
        self._within = within
        self._caller = caller
        self._turn = TurnEvents()
        self._tool_start_s: dict[str, float] = {}
        self._request_start_s = 0.0
        self._parents: dict[str, str] = {}
        """The agent that first handed over to each."""

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._request_start_s = time.perf_counter()

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        took_ms = (time.perf_counter() - self._request_start_s) * 1000
        model = model_name(agent) if self._within else self._model or model_name(agent)
        usage = _usage(model, response.usage, took_ms)
        event = Event("usage", author=agent.name, parent=self._parent(agent), within=self._within, usage=usage)
        await self._send(event)
        for item in response.output:
            if item.type in ("message", *ITEMS):
                for event_or_message in parse_message(plain_json(as_json(item))):
                    await self._report(agent, event_or_message)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._tool_start_s[getattr(context, "tool_call_id", "")] = time.perf_counter()

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        call_id = getattr(context, "tool_call_id", "")
        await self._report_result(agent, call_id, tool.name, plain_json(as_json(result)))

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self._parent(from_agent)
        self._parents.setdefault(to_agent.name, from_agent.name)
        tools, open_calls = {tool.name for tool in from_agent.tools}, reversed(self._turn.open_calls.values())
        call = next((open_call for open_call in open_calls if open_call.name not in tools), None)
        if call is not None:
            await self._report_result(from_agent, call.id or "", call.name, f"handed over to {to_agent.name}")

    async def _report_result(self, agent: Any, call_id: str, name: str, result: Any) -> None:
        start = self._tool_start_s.get(call_id)  # of a handoff the SDK tells no beginning
        took_ms = None if start is None else (time.perf_counter() - start) * 1000
        is_error = isinstance(result, str) and result.startswith(TOOL_FAILURE_PREFIX)
        message = Message("tool", "", name, call_id=call_id, result=result, is_error=is_error, duration_ms=took_ms)
        await self._report(agent, message)

    async def _report(self, agent: Any, event_or_message: Message | Event) -> None:
        events = (
            [event_or_message]
            if isinstance(event_or_message, Event)
            else events_of_message(self._turn, event_or_message, agent.name)
        )
        for event in events:
            await self._send(replace(event, parent=self._parent(agent), within=self._within))

    def inside(self, tool: str, caller: str) -> _EventHooks:
        """The hooks of the run inside an agent tool."""
        return _hooks_class()(self._send, self._model, tool, caller)  # type: ignore[no-any-return] # a class of the SDK

    def _parent(self, agent: Any) -> str:
        """The agent above `agent`: none above the one that began."""
        return self._parents.setdefault(agent.name, self._caller)


_RUN_HOOKS: ContextVar[_EventHooks | None] = ContextVar("run_hooks", default=None)
_INNER_HOOKS: ContextVar[_EventHooks | None] = ContextVar("inner_hooks", default=None)
"""The hooks of the agent tool that runs: the SDK gives hooks of a run to no run inside of it."""


def _watch_agent_tool(caller: Any, tool: Any) -> Any:
    """An agent tool of `caller` whose run is seen; None for another tool."""
    invoke = getattr(tool, "on_invoke_tool", None)
    if invoke is None or not getattr(tool, "_is_agent_tool", False) or hasattr(invoke, _MARK):
        return None if invoke is None or not hasattr(invoke, _MARK) else tool

    @wraps(invoke)
    async def on_invoke_tool(context: Any, arguments: str) -> Any:
        outer = _INNER_HOOKS.get() or _RUN_HOOKS.get()
        with context_value(_INNER_HOOKS, outer.inside(tool.name, caller.name) if outer else None):
            return await invoke(context, arguments)

    setattr(on_invoke_tool, _MARK, True)
    watched_tool = copy(tool)  # `replace` would lose what `as_tool` noted on it
    watched_tool.on_invoke_tool = on_invoke_tool
    return watched_tool


@cache
def _inner_hooks_class() -> Any:
    from agents import AgentHooks

    return new_class("InnerHooks", (_InnerHooks, AgentHooks))


class _InnerHooks:
    """The hooks of an agent: its own ones, and those of the agent tool in which it runs."""

    def __init__(self, own: Any) -> None:
        self._own = own

    async def on_start(self, context: Any, agent: Any) -> None:
        await self._call_own("on_start", context, agent)

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        await self._call_own("on_end", context, agent, output)

    async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
        await self._call_own("on_handoff", context, agent, source)
        if inner := _INNER_HOOKS.get():
            await inner.on_handoff(context, source, agent)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        await self._call_own("on_tool_start", context, agent, tool)
        if inner := _INNER_HOOKS.get():
            await inner.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        await self._call_own("on_tool_end", context, agent, tool, result)
        if inner := _INNER_HOOKS.get():
            await inner.on_tool_end(context, agent, tool, result)

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        await self._call_own("on_llm_start", context, agent, system_prompt, input_items)
        if inner := _INNER_HOOKS.get():
            await inner.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        await self._call_own("on_llm_end", context, agent, response)
        if inner := _INNER_HOOKS.get():
            await inner.on_llm_end(context, agent, response)

    async def _call_own(self, name: str, *arguments: Any) -> None:
        hook = getattr(self._own, name, None)
        if hook is not None:
            await hook(*arguments)


def _usage(model: str, sdk_usage: Any, took_ms: float) -> Usage:
    usage = Usage(
        model,
        tokens_in=sdk_usage.input_tokens or 0,
        tokens_out=sdk_usage.output_tokens or 0,
        duration_ms=took_ms,
        tokens_cached=getattr(sdk_usage.input_tokens_details, "cached_tokens", 0) or 0,
        tokens_reasoning=getattr(sdk_usage.output_tokens_details, "reasoning_tokens", 0) or 0,
    )
    return with_cost(usage)


def model_of(session: Session, agent: Any) -> dict[str, Any]:
    """The fields of a RunConfig for the model, its endpoint and its settings. Raises ModelError."""
    from agents import ModelSettings

    options = session.model_options
    settings = {"temperature": options.temperature, "top_p": options.top_p, "max_tokens": options.max_tokens}
    model_settings: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if options.reasoning_effort:
        from openai.types.shared import Reasoning

        model_settings["reasoning"] = Reasoning(effort=cast("Any", options.reasoning_effort))
    if options.extra:
        model_settings["extra_body"] = dict(options.extra)
    fields: dict[str, Any] = {"model_settings": ModelSettings(**model_settings)} if model_settings else {}
    if session.model or options.base_url:
        fields |= _model(session.model or "", options, agent)
    return fields


def _model(name: str, options: ModelOptions, agent: Any) -> dict[str, Any]:
    from agents import OpenAIProvider

    provider, slash, model_name = name.partition("/")
    if options.base_url:
        if not (name or agent.model is None or isinstance(agent.model, str)):
            raise ModelError("name the model of the endpoint, too: --model NAME", kind="unknown_model", is_fatal=True)
        client, model = endpoint_client(name, options)
        # without a name, each agent asks for its own there
        model_field = {"model": model} if model else {}
        return {"model_provider": OpenAIProvider(openai_client=client, use_responses=False), **model_field}
    if not slash or provider == "openai":
        return {"model": model_name or name}
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


TOOL_FAILURE_PREFIX = "An error occurred while running the tool"
"""The start of the SDK's text for the model about a failed tool."""

_MARK = "_is_watched"


def _successors(agent: Any) -> Iterator[Any]:
    """The targets of its handoffs."""
    return (target for handoff in agent.handoffs if (target := _target(handoff)) is not None)


def _target(handoff: Any) -> Any:
    """The target agent of a handoff; None where only the SDK can resolve it."""
    if hasattr(handoff, "instructions"):
        return handoff
    reference = getattr(handoff, "_agent_ref", None)  # private: `handoff()` keeps its agent only there
    return reference() if callable(reference) else None


def _related_agents(agent: Any) -> Iterator[Any]:
    """The targets of its handoffs, and its agent tools."""
    inside = (getattr(tool, "_agent_instance", None) for tool in agent.tools)  # private, set by `as_tool`
    return chain(_successors(agent), (each for each in inside if each is not None))


def _watch_servers(agent: Any) -> None:
    """Wrap the listing of its MCP tools, because the SDK lists them again for each model call."""
    list_tools = getattr(agent, "get_mcp_tools", None)
    if not getattr(agent, "mcp_servers", ()) or list_tools is None or hasattr(list_tools, _MARK):
        return

    async def get_mcp_tools(*arguments: Any) -> list[Any]:
        return [watch_tool(tool) for tool in await list_tools(*arguments)]

    setattr(get_mcp_tools, _MARK, True)
    agent.get_mcp_tools = get_mcp_tools


def watch_tool(tool: Any) -> Any:
    """The tool with its double and its time limit; hosted tools and agent tools stay unchanged."""
    invoke = getattr(tool, "on_invoke_tool", None)
    if invoke is None or getattr(tool, "_is_agent_tool", False) or hasattr(invoke, _MARK):
        return tool

    @wraps(invoke)
    async def on_invoke_tool(context: Any, arguments: str) -> Any:
        args, call = dict(tool_call(tool.name, arguments, None).args), partial(invoke, context, arguments)
        try:
            return await tool_result(tool.name, args, state_of(context.context), call)
        except ToolFailedError as error:
            return f"{TOOL_FAILURE_PREFIX}: {error}"
        finally:
            await note_state(context.context)

    setattr(on_invoke_tool, _MARK, True)
    return replace(tool, on_invoke_tool=on_invoke_tool)
