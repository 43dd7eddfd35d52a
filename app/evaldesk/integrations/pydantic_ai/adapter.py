"""Agents of pydantic-ai, run node by node."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from importlib.util import find_spec
from inspect import signature
from typing import Any

from evaldesk.agents.agent import ModelCaller, is_from
from evaldesk.agents.dependencies import Dependencies, dependencies_of, note_state, state_of
from evaldesk.agents.message_events import events_of_message, unreadable_note
from evaldesk.agents.own.model_calls import endpoint_client
from evaldesk.agents.shared_loop import EventStream, OnSharedLoop, SendEvent
from evaldesk.agents.tools.doubles import CURRENT_DOUBLES
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
from evaldesk.agents.tools.time_limit import TOOL_LIMIT, ToolFailedError
from evaldesk.errors import FormatError
from evaldesk.llm import missing_keys, only_litellm_prices, with_cost
from evaldesk.llm.client import open_litellm
from evaldesk.llm.client_wrapping import wrap_once
from evaldesk.llm.context import context_value
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Event,
    JsonValue,
    ModelOptions,
    Session,
    ToolDescription,
    TurnRecord,
    Usage,
    Waiting,
)
from evaldesk.model.decisions import ANSWER, APPROVAL, Decided
from evaldesk.model.media import Media, split
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.messages.pydantic import read_pydantic_message
from evaldesk.transcripts.messages.turns import TurnEvents
from evaldesk.wire import plain_json, plain_object

MEMORY = "pydantic_ai"


def adapt(candidate: object, ref: AgentRef) -> PydanticAgent | None:
    """The agent around a `pydantic_ai.Agent`; None for anything else."""
    if not is_from(candidate, "pydantic_ai"):
        return None
    try:
        from pydantic_ai.agent import AbstractAgent
    except ImportError:  # a package of the user's may have the same name
        return None
    return PydanticAgent(candidate, ref, dependencies_of(ref)) if isinstance(candidate, AbstractAgent) else None


@dataclass(frozen=True, slots=True)
class PydanticAgent(ModelCaller, OnSharedLoop):
    """An agent of pydantic-ai. Its `deps` are the session state, or the object from `dependencies`."""

    agent: Any
    ref: AgentRef
    dependencies: Dependencies

    def describe(self) -> AgentDescription:
        """Name, instructions, model, and function tools."""
        model = _model_name(self.agent)
        return AgentDescription(
            name=self.agent.name or self.ref.id,
            kind="pydantic_ai",
            instruction=_instruction(self.agent),
            model=model or None,
            tools=tuple(_tools(self.agent)),
            missing=missing_keys(model, os.environ) if isinstance(self.agent.model, str) else (),
            takes_instruction=_takes_instruction(self.agent),
            makes_instruction=any(callable(each) for each in getattr(self.agent, "_instructions", ())),
        )

    def model_fault(self, model: str) -> str:
        """The reason of pydantic-ai why it makes no model of the name."""
        try:
            model_of(model, ModelOptions(), self.agent.model, own=_model_name(self.agent))
        except Exception as error:  # of pydantic-ai or of a provider's package, with several classes
            return str(error).partition("\n")[0]
        return ""

    def warm(self, session: Session) -> None:
        """Import LiteLLM if only its price list has the model; pydantic-ai calls its models itself."""
        if only_litellm_prices(session.model or _model_name(self.agent)) and find_spec("litellm"):
            open_litellm()

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the agent. A structured output becomes an answer in JSON. Raises ModelError."""
        return EventStream(lambda send: self._run(session, message, send))

    def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """Resume from the messages of the turn, with the results of its deferred calls."""
        return EventStream(lambda send: self._run(session, message, send, decided))

    async def _run(
        self, session: Session, message: str, send: SendEvent, decided: Sequence[Decided] | None = None
    ) -> None:
        from pydantic_ai import DeferredToolRequests, UsageLimitExceeded, UsageLimits

        calls = begin_tool_calls(session, send)
        model = session.model or _model_name(self.agent)
        sender = EventSender(send, author=self.agent.name or self.ref.id, model=model, resumes=decided is not None)
        model_options = session.model_options
        history = self._history(session) if decided is None else _paused_messages(session)
        deps = await self.dependencies.bind(session, resumes=decided is not None)
        options: dict[str, Any] = {
            "user_prompt": _prompt(message, session.media) if decided is None else None,
            "deferred_tool_results": None if decided is None else _results(decided),
            "message_history": history,
            "deps": deps,
            "model_settings": settings_of(model_options),
        }
        if model_options.max_turns:
            options["usage_limits"] = UsageLimits(request_limit=model_options.max_turns)
        try:
            with translate_errors(calls, model or "the model", but=UsageLimitExceeded, deps=deps):
                options |= model_of(session.model, model_options, self.agent.model, own=_model_name(self.agent))
                with _with_instruction(self.agent, model_options.instruction), with_watched_tools(self.agent):
                    # The sender is set inside, so that this run is no delegation of itself.
                    async with self.agent.iter(**options) as run, _delegations_to(sender):
                        async for node in run:
                            sender.tools = run.ctx.deps.tool_manager.tools or {}
                            await sender.node(node, run.ctx if session.is_streaming else None)
        except UsageLimitExceeded as error:
            if "request_limit" not in str(error):  # another limit of its author: of tokens, or of tool calls
                raise
            await send(call_limit_event(session, error))
            return
        await self.dependencies.keep(session, deps)
        calls.check()
        if isinstance(run.result.output, DeferredToolRequests):
            messages = run.result.all_messages()
            pause(session, messages, lambda: _messages_snapshot(messages))
            for event in waiting_events(_requests(run.result.output)):
                await send(event)
            return
        output = plain_json(_as_json(run.result.output))
        answer = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        if not _is_last_text(
            output, sender.last_text
        ):  # of an output tool, or made of the text by a validator or a function
            await send(Event("agent_message", author=sender.author, text=answer))
        session.memory[MEMORY] = (len(session.turns) + 1, run.result.all_messages())

    def _history(self, session: Session) -> list[Any]:
        memory_entry: Any = session.memory.get(MEMORY)
        is_known = memory_entry and memory_entry[0] == len(session.turns)
        return (
            list(memory_entry[1])
            if is_known
            else [message for turn in session.turns for message in _messages_of_turn(turn)]
        )


def _requests(requests: Any) -> Iterator[Waiting]:
    """The pending calls: for an approval, or for an external result."""
    for calls, choices in ((requests.approvals, APPROVAL), (requests.calls, ANSWER)):
        for call in calls:
            yield Waiting(call.tool_call_id, call.tool_name, plain_object(call.args_as_dict()), choices)


def _results(decided: Sequence[Decided]) -> Any:
    from pydantic_ai import DeferredToolResults, ToolDenied

    approvals: dict[str, Any] = {}
    calls: dict[str, Any] = {}
    for request, decision in decided:
        if decision.decision == "answer":
            calls[request.id] = decision.answer
        elif decision.decision == "approve":
            approvals[request.id] = True
        else:
            approvals[request.id] = ToolDenied(decision.reason) if decision.reason else ToolDenied()
    return DeferredToolResults(approvals=approvals, calls=calls)


def _messages_snapshot(messages: list[Any]) -> JsonValue:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    snapshot: JsonValue = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return snapshot


def _paused_messages(session: Session) -> list[Any]:
    """The messages of the paused turn: from memory, or from the stored snapshot. Raises AgentError."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    memory_entry = take_paused_turn(session)
    if memory_entry is not None:
        return list(memory_entry)
    if not isinstance(session.paused, list):
        raise lost_turn_error()
    return list(ModelMessagesTypeAdapter.validate_python(session.paused))


def _model_name(agent: Any) -> str:
    """The name of the agent's model as `provider/name`; empty without a model."""
    model = agent.model
    if model is None:
        return ""
    return str(model).replace(":", "/", 1) if isinstance(model, str) else str(model.model_name)


def _instruction(agent: Any) -> str:
    """The instruction texts, with a placeholder for each instruction function."""
    # Private: pydantic-ai has no public list of them.
    instructions = [*getattr(agent, "_instructions", ()), *getattr(agent, "_system_prompts", ())]
    texts = [item if isinstance(item, str) else "(made by a function when a turn begins)" for item in instructions]
    return "\n\n".join(texts)


def _takes_instruction(agent: Any) -> bool:
    """Whether its instructions can be overridden: older versions cannot, and system prompts are none."""
    return "instructions" in signature(agent.override).parameters and not getattr(agent, "_system_prompts", ())


def _with_instruction(agent: Any, instruction: str | None) -> AbstractContextManager[Any]:
    """The agent with the instruction of a run, if that has one."""
    return nullcontext() if instruction is None else agent.override(instructions=instruction)


def _tools(agent: Any) -> list[ToolDescription]:
    return [_tool(tool) for toolset in agent.toolsets for tool in getattr(toolset, "tools", {}).values()]


def _tool(tool: Any) -> ToolDescription:
    definition = getattr(tool, "tool_def", tool)
    schema = plain_object(getattr(definition, "parameters_json_schema", None))
    return ToolDescription(definition.name, definition.description or "", schema)


def _is_last_text(output: JsonValue, text: str) -> bool:
    """Whether the output is the last text of the model: verbatim, or as JSON, as with `NativeOutput`."""
    with suppress(ValueError):
        return output == text or (not isinstance(output, str) and bool(json.loads(text) == output))
    return False


def _as_json(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)


def settings_of(options: ModelOptions) -> dict[str, Any]:
    """`model_settings` of a run."""
    settings: dict[str, Any] = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_tokens": options.max_tokens,
        "openai_reasoning_effort": options.reasoning_effort,
        "extra_body": dict(options.extra) or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


RESPONSES = "openai-responses"


def model_of(name: str | None, options: ModelOptions, own_model: Any, *, own: str) -> dict[str, Any]:
    """`model` of a run; empty if the agent's `own_model` is an object. Raises ModelError.

    An endpoint of the run is called by the Responses API if the prefix of the name, or the agent's own model, is of it.
    """
    provider, slash, model_name = (name or own).partition("/")
    if not options.base_url:
        from pydantic_ai.models import infer_model

        model_or_name = (f"{provider}:{model_name}" if slash else provider) if name else own_model
        return {"model": infer_model(model_or_name)} if isinstance(model_or_name, str) else {}
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model_spec = name or own
    api = next((each for each in (RESPONSES, "openai-chat") if model_spec.startswith((f"{each}/", f"{each}:"))), "")
    client, model = endpoint_client(model_spec[len(api) + 1 :] if api else model_spec, options)
    is_responses = api == RESPONSES if api else isinstance(own_model, OpenAIResponsesModel)
    kind = OpenAIResponsesModel if is_responses else OpenAIChatModel
    return {"model": kind(model, provider=OpenAIProvider(openai_client=client))}


def with_watched_tools(agent: Any) -> AbstractContextManager[Any]:
    """A context with doubles and time limit for the agent's tools; a null context in a turn with neither."""
    if TOOL_LIMIT.get() is None and CURRENT_DOUBLES.get() is None:
        return nullcontext()
    override: AbstractContextManager[Any] = agent.override(
        toolsets=[_watched_toolset_class()(toolset) for toolset in agent.toolsets], tools=[]
    )
    return override


@cache
def _watched_toolset_class() -> Any:
    from pydantic_ai import ModelRetry
    from pydantic_ai.toolsets import WrapperToolset

    class WatchedToolset(WrapperToolset[Any]):  # type: ignore[misc] # the package may be missing
        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
            call = partial(super().call_tool, name, tool_args, ctx, tool)
            try:
                return await tool_result(name, dict(tool_args), state_of(ctx.deps), call)
            except ToolFailedError as error:
                raise ModelRetry(str(error)) from error
            finally:
                await note_state(ctx.deps)

    return WatchedToolset


class EventSender:
    """Sends the events of a run's nodes; a sender that `resumes` skips the first response, sent before the pause."""

    def __init__(
        self,
        send: SendEvent,
        *,
        author: str,
        model: str,
        resumes: bool = False,
        parent: str = "",
        within: str = "",
    ) -> None:
        self.author = author
        self._parent = parent
        self._within = within
        self._skips_response = resumes
        self._send = send
        self._model = model
        self._turn = TurnEvents()
        self._request_start_s = time.perf_counter()
        self.last_text = ""
        self.tools: Mapping[str, Any] = {}

    async def node(self, node: Any, context: Any) -> None:
        """Send the results before a request, and the response after it; with a `context` also its streamed pieces."""
        kind = type(node).__name__
        if kind == "ModelRequestNode":
            result_parts = [part for part in node.request.parts if part.part_kind in RESULTS]
            await self._report("request", result_parts)
            self._request_start_s = time.perf_counter()
            if context is not None:
                await self._pieces(node, context)
        elif kind == "CallToolsNode" and self._skips_response:
            self._skips_response = False
        elif kind == "CallToolsNode":
            await self._send_event(Event("usage", author=self.author, usage=self._usage(node.model_response)))
            await self._report("response", node.model_response.parts)

    async def delegation(self, run: Any) -> None:
        """Send the messages of a finished run of another agent, which were not timed, and its output."""
        self.tools = run.ctx.deps.tool_manager.tools or {}
        for message in run.new_messages():
            if message.kind == "request":
                await self._report("request", [part for part in message.parts if part.part_kind in RESULTS])
            else:
                usage = replace(self._usage(message), duration_ms=0.0)
                await self._send_event(Event("usage", author=self.author, usage=usage))
                await self._report("response", message.parts)
        output = plain_json(_as_json(run.result.output)) if run.result else None
        if output is not None and not _is_last_text(output, self.last_text):
            text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
            await self._send_event(Event("agent_message", author=self.author, text=text))

    def inside(self, agent: Any) -> EventSender:
        """The sender of a run of another agent, which a tool of this run started."""
        open_calls = [call.name for call in self._turn.open_calls.values()]
        tool = _running_tool() or (open_calls[-1] if open_calls else "")
        return EventSender(self._send, author=agent.name or "", model="", parent=self.author, within=tool)

    async def _send_event(self, event: Event) -> None:
        parent = self._parent if self._parent != event.author else ""
        await self._send(replace(event, parent=parent, within=self._within))

    async def _pieces(self, node: Any, context: Any) -> None:
        async with node.stream(context) as stream:
            async for event in stream:
                text = _piece(event)
                if text:
                    await self._send(Event("agent_message", author=self.author, text=text, is_partial=True))

    async def _report(self, kind: str, parts: Iterable[Any]) -> None:
        """Send the parts of a message, but for output tools: their output is the answer at the end of the run."""
        outputs = {name for name, tool in self.tools.items() if tool.tool_def.kind == "output"}
        plain_parts = [_plain_part(part) for part in parts if getattr(part, "tool_name", None) not in outputs]
        raw: Any = {"kind": kind, "parts": plain_parts}
        try:
            messages = list(read_pydantic_message(JsonPosition(Document(raw)), raw, Notes()))
        except FormatError as error:
            await self._send(unreadable_note(error))
            return
        took_ms = (time.perf_counter() - self._request_start_s) * 1000
        for message in messages:
            self.last_text = message.text
            timed = replace(message, duration_ms=took_ms) if kind == "request" and not self._within else message
            for event in events_of_message(self._turn, timed, self.author):
                await self._send_event(event)

    def _usage(self, response: Any) -> Usage:
        model = self._model or str(response.model_name or "unknown")
        sdk_usage = response.usage
        usage = Usage(
            model,
            tokens_in=sdk_usage.input_tokens,
            tokens_out=sdk_usage.output_tokens,
            tokens_cached=getattr(sdk_usage, "cache_read_tokens", 0),  # older versions do not say
            tokens_reasoning=(sdk_usage.details or {}).get("reasoning_tokens", 0),
            duration_ms=(time.perf_counter() - self._request_start_s) * 1000,
            is_cut=getattr(response, "finish_reason", None) == "length",
        )
        return with_cost(usage)


RESULTS = ("tool-return", "retry-prompt")

_SENDER: ContextVar[EventSender | None] = ContextVar("sender", default=None)
"""The sender of the run under way in this context, of an agent or of one to which it delegates."""


@asynccontextmanager
async def _delegations_to(sender: EventSender) -> AsyncIterator[None]:
    """Let runs of other agents, started inside by tools, send their events as inner ones."""
    from pydantic_ai import Agent

    wrap_once(Agent, "iter", _watch_runs, "_is_watched")
    with context_value(_SENDER, sender):
        yield


def _watch_runs(iterate: Callable[..., AbstractAsyncContextManager[Any]]) -> Callable[..., Any]:
    # There is no public hook for the runs of all agents but their spans, which need an OpenTelemetry SDK.
    @wraps(iterate)
    def watched(agent: Any, *args: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        outer, run = _SENDER.get(), iterate(agent, *args, **options)
        return run if outer is None else _watched_run(agent, run, outer)

    return watched


@asynccontextmanager
async def _watched_run(agent: Any, opened: AbstractAsyncContextManager[Any], outer: EventSender) -> AsyncIterator[Any]:
    sender = outer.inside(agent)
    async with opened as run:
        try:
            with context_value(_SENDER, sender):
                yield run
        finally:
            sender.author = agent.name or sender.author or "agent"  # some are named when they run
            await sender.delegation(run)


def _running_tool() -> str:
    """The tool whose function runs in this context; empty where the package does not tell."""
    try:
        from pydantic_ai._run_context import get_current_run_context
    except ImportError:
        return ""
    context = get_current_run_context()
    return str(context.tool_name or "") if context else ""


def _plain_part(part: Any) -> dict[str, Any]:
    """The part as JSON of pydantic-ai; a retry prompt has the text for the model."""
    words = {"content": part.model_response()} if part.part_kind == "retry-prompt" and part.tool_name else {}
    return {**plain_object(_as_json(part)), **words}


def _messages_of_turn(turn: TurnRecord) -> Iterator[Any]:
    """The turn as pydantic-ai's messages."""
    from pydantic_ai import messages

    yield messages.ModelRequest(parts=[messages.UserPromptPart(_prompt(turn.query, turn.media))])
    events = [event for event in turn.events if not event.within and not event.is_partial]
    answered_ids = {event.call.id for event in events if event.kind == "tool_result" and event.call}
    for event in events:
        call = event.call
        if event.kind == "agent_message":
            yield messages.ModelResponse(parts=[messages.TextPart(event.text)])
        elif event.kind == "tool_call" and call and call.id in answered_ids:
            yield messages.ModelResponse(parts=[messages.ToolCallPart(call.name, dict(call.args), call.id or "")])
        elif event.kind == "tool_result" and call:
            yield messages.ModelRequest(parts=[messages.ToolReturnPart(call.name, event.result, call.id or "")])


def _prompt(text: str, media: Sequence[Media]) -> Any:
    """The user's message: text, or a list of parts with its media."""
    return [_prompt_part(part) for part in split(text, media)] if media else text


def _prompt_part(part: str | Media) -> Any:
    from pydantic_ai import messages

    if isinstance(part, str):
        return part
    if not part.uri:
        return messages.BinaryContent(part.content(), media_type=part.mime_type)
    urls = {"image": messages.ImageUrl, "audio": messages.AudioUrl, "video": messages.VideoUrl}
    return urls.get(part.kind, messages.DocumentUrl)(url=part.uri)


def _piece(event: Any) -> str:
    if event.event_kind == "part_start" and event.part.part_kind == "text":
        return str(event.part.content)
    if event.event_kind == "part_delta" and event.delta.part_delta_kind == "text":
        return str(event.delta.content_delta)
    return ""
