"""Agents of Google's ADK, played by google-adk's own runner with its services in memory."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from evaldesk.agents.agent import is_from
from evaldesk.agents.artifacts import artifact_event
from evaldesk.agents.discovery import FACTORY
from evaldesk.agents.own.instruction import placeholders
from evaldesk.agents.tools.frameworks import call_limit_event, lost_turn_error, pause, take_paused_turn, waiting_events
from evaldesk.agents.tools.time_limit import TOOL_LIMIT
from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.errors import AgentError
from evaldesk.integrations.adk import live
from evaldesk.integrations.adk.live import LiveConnection, LiveSilentError
from evaldesk.integrations.adk.loading import app_of, fail_import_early, part_of, reset_data_of, yaml_agent
from evaldesk.integrations.adk.models import (
    EFFORT,
    agents_below,
    is_litellm,
    model_name,
    nodes_below,
    parents_of,
    use_shared_loop,
    with_model,
)
from evaldesk.integrations.adk.plugin import plugin_class
from evaldesk.integrations.adk.toolsets import toolset_error, watch_toolsets
from evaldesk.integrations.adk.translation import events_of_adk
from evaldesk.integrations.adk.witness import Witness
from evaldesk.llm import missing_keys, model_error, model_fault
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    ErrorRecord,
    Event,
    JsonObject,
    JsonValue,
    ModelOptions,
    Session,
    ToolCall,
    ToolDescription,
    TurnRecord,
)
from evaldesk.model.decisions import Decided
from evaldesk.model.media import Media, split
from evaldesk.model.transcript import UNKNOWN
from evaldesk.run_options import LIVE_TIMEOUT_S
from evaldesk.transcripts.adk import function_response, kept_state, person_results
from evaldesk.wire import plain_object, to_json


def adapt_any(candidate: object, ref: AgentRef) -> AdkAgent | FactoryAgent | None:
    """As `adapt`, or a FactoryAgent around the function `get_agent_async`."""
    if callable(candidate) and ref.target.endswith(f":{FACTORY}"):
        return FactoryAgent(candidate, ref)
    return adapt(candidate, ref)


def adapt(candidate: object, ref: AgentRef) -> AdkAgent | None:
    """The agent around a BaseAgent, a workflow or an App of google-adk; None for anything else."""
    if candidate is None and ref.kind == "adk":
        candidate = yaml_agent(ref)
    if not is_from(candidate, "google.adk"):
        return None
    app = app_of(candidate, ref)
    if app is not None and ref.part:
        app = app.model_copy(update={"root_agent": part_of(app.root_agent, ref.part)})
    return AdkAgent(app, ref) if app is not None else None


@dataclass(slots=True)
class AdkAgent:
    """An App of google-adk. Each session has services of its own; the agents and plugins are the user's objects."""

    app: Any
    ref: AgentRef
    _variants: dict[bytes, Any] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        use_shared_loop(self.app.root_agent)
        fail_import_early()

    def describe(self) -> AgentDescription:
        """The root agent with its sub-agents as a tree."""
        return _describe_tree(self.app.root_agent, "adk", depth=0)

    def model_fault(self, model: str) -> str:
        """The reason why no provider can answer for `model`; only Google knows the names of its own."""
        return _fault_of(model)

    async def reply(self, session: Session, message: str) -> AsyncGenerator[Event]:
        """Play one invocation.

        Raises ModelError for a refusal of the model's provider, and the exceptions of the agent.
        """
        from google.genai import types

        conversation, is_new = await open_conversation(session, session.app_name or self.ref.id, self.app)
        if is_new and not session.turns:
            await reset_data_of(self.ref)
        content = types.Content(role="user", parts=_parts(message, session.media, types))
        play = self._talk if session.model_options.live else self._invoke
        async with aclosing(play(session, conversation, content)) as events:
            async for event in events:
                yield event

    async def _talk(self, session: Session, conversation: Conversation, content: Any) -> AsyncGenerator[Event]:
        """One turn over the live connection of the session."""
        options = session.model_options
        if session.media:
            yield Event("error", error=ErrorRecord("live_sound", NO_SOUND))
            return
        connection, witness = await self._live_connection(session, conversation)
        TOOL_LIMIT.set(session.limits.tool_timeout_s)
        timeout_s = options.live_timeout_s or LIVE_TIMEOUT_S
        is_complete = False
        try:
            turn, tells_usage = _live_events(connection.turn(content, timeout_s)), False
            async with aclosing(_events_of(turn, witness, session, conversation)) as events:
                async for event in events:
                    tells_usage = tells_usage or event.usage is not None
                    yield event
            if not tells_usage:
                yield Event("usage", usage=replace(UNKNOWN, model=witness.model or UNKNOWN.model))
            is_complete = True
        except LiveSilentError as error:
            yield Event("error", error=ErrorRecord("live_silent", str(error)))
        except Exception as error:
            failure = witness.answers.failure or model_error(error, witness.model)
            if failure:
                raise failure from error
            raise
        finally:
            if not is_complete:  # what is still to come of this turn would be that of the next one
                connection.close()
                session.memory.pop(live.MEMORY, None)
            await conversation.keep(session)

    async def _live_connection(self, session: Session, conversation: Conversation) -> tuple[LiveConnection, Witness]:
        """The open connection of the session, or a new one, which is sent the turns before."""
        known_connection, known_witness = session.memory.get(live.MEMORY), session.memory.get(live.WITNESS)
        if (
            isinstance(known_connection, LiveConnection)
            and known_connection.is_open
            and isinstance(known_witness, Witness)
        ):
            return known_connection, known_witness
        options = session.model_options
        app = self._app(session.model, options)
        witness = Witness(
            session.id, options, model=model_name(app.root_agent), parents=parents_of(self.app.root_agent)
        )
        runner, requests = conversation.runner(app, plugin_class()(witness)), live.request_queue()
        run = runner.run_live(
            user_id=session.user_id,
            session_id=session.id,
            live_request_queue=requests,
            run_config=live.run_config(),
        )
        connection = LiveConnection(run, requests, asyncio.get_running_loop())
        connection.start()
        session.memory[live.MEMORY], session.memory[live.WITNESS] = connection, witness
        return connection, witness

    async def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncGenerator[Event]:
        """Send the decisions as function responses to the pending calls, as ADK's own clients do."""
        from google.genai import types

        conversation, calls = await _paused_conversation(session, session.app_name or self.ref.id)
        for event in person_results(calls, decided):
            yield event
        parts = [types.Part(function_response=types.FunctionResponse(**function_response(*each))) for each in decided]
        content = types.Content(role="user", parts=parts)
        async with aclosing(self._invoke(session, conversation, content, calls)) as events:
            async for event in events:
                yield event

    async def _invoke(
        self, session: Session, conversation: Conversation, content: Any, calls: Mapping[str, ToolCall] | None = None
    ) -> AsyncGenerator[Event]:
        """The events of one invocation; `calls` are the earlier calls of the turn."""
        from google.adk.agents.run_config import RunConfig, StreamingMode

        options = session.model_options
        witness = Witness(session.id, options, calls=dict(calls or {}), parents=parents_of(self.app.root_agent))
        TOOL_LIMIT.set(session.limits.tool_timeout_s)
        EFFORT.set(options.reasoning_effort)
        config: dict[str, Any] = {"max_llm_calls": options.max_turns} if options.max_turns else {}
        if session.is_streaming:
            config["streaming_mode"] = StreamingMode.SSE
        lost_toolsets = watch_toolsets()
        runner = conversation.runner(self._app(session.model, options), plugin_class()(witness))
        invocation = runner.run_async(
            user_id=session.user_id,
            session_id=session.id,
            new_message=content,
            run_config=RunConfig(**config),
        )
        try:
            async with aclosing(_events_of(invocation, witness, session, conversation)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            for event in witness.take_inner_events():
                yield event
            is_bound = type(error).__name__ == "LlmCallsLimitExceededError"
            failure = witness.answers.failure or model_error(error, witness.model)
            if failure:
                raise failure from error
            if not is_bound:
                raise
            yield call_limit_event(session, error)
        finally:
            await conversation.keep(session)
        if lost_toolsets:
            yield Event("error", error=toolset_error(lost_toolsets))
            return
        if witness.requests:
            adk_session = await conversation.find_adk_session(session)
            pause(session, witness.calls, lambda: _snapshot(adk_session.events, witness.calls))
            for event in waiting_events(witness.requests.values()):
                yield event

    def _app(self, model: str | None, options: ModelOptions) -> Any:
        """The app, with models and instructions of its agents replaced if the run or chat names other ones."""
        has_instruction = options.instruction is not None or options.instructions
        if model is None and options.base_url is None and not has_instruction:
            return self.app
        own = [options.instruction, options.instructions]
        key = to_json([model, options.base_url, options.api_key_env, options.extra, options.n_retries, *own])
        # Trials in several threads ask for the same variant at once: decision 003.
        with self._lock:
            if key not in self._variants:
                self._variants[key] = self.app.model_copy(
                    update={"root_agent": with_model(self.app.root_agent, model, options)}
                )
            return self._variants[key]


async def _live_events(turn: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
    """The events of a live turn, with transcripts as text."""
    async with aclosing(turn) as events:
        async for event in events:
            yield live.as_text(event)


async def _events_of(
    invocation: Any, witness: Witness, session: Session, conversation: Conversation
) -> AsyncGenerator[Event]:
    """The events of an invocation. An error event is delayed, because a later exception has more detail."""
    pending_error: Event | None = None
    async with aclosing(invocation) as events:
        async for adk_event in events:
            if pending_error:
                yield pending_error
            session.state.update(kept_state((adk_event.actions and adk_event.actions.state_delta) or {}))
            for event in (
                *witness.take_inner_events(),
                *events_of_adk(adk_event, witness, is_streaming=session.is_streaming),
            ):
                if event.error:
                    pending_error = event
                else:
                    yield event
            for name, version in ((adk_event.actions and adk_event.actions.artifact_delta) or {}).items():
                yield await conversation.find_artifact(session, name, version)
    if witness.answers.failure:
        raise witness.answers.failure
    if pending_error:
        yield pending_error


@dataclass(frozen=True, slots=True)
class FactoryAgent:
    """An agent that a factory function, `make`, builds for each turn."""

    make: Callable[[], Awaitable[Any]]
    ref: AgentRef

    def describe(self) -> AgentDescription:
        """The description of a newly built agent. Exceptions of `make` pass through."""
        # `asyncio.run` needs a thread without a running loop, and the caller may have one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._describe()).result()

    def model_fault(self, model: str) -> str:
        """The reason why no provider can answer for `model`, as of AdkAgent."""
        return _fault_of(model)

    async def reply(self, session: Session, message: str) -> AsyncGenerator[Event]:
        """Build the agent and play one invocation, as AdkAgent does."""
        async with self._open_agent() as agent, aclosing(agent.reply(session, message)) as events:
            async for event in events:
                yield event

    async def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncGenerator[Event]:
        """Build the agent again and resume the turn, as AdkAgent does."""
        async with self._open_agent() as agent, aclosing(agent.resume(session, message, decided)) as events:
            async for event in events:
                yield event

    async def _describe(self) -> AgentDescription:
        async with self._open_agent() as agent:
            return agent.describe()

    @asynccontextmanager
    async def _open_agent(self) -> AsyncIterator[AdkAgent]:
        factory_result = await self.make()
        candidate, exit_stack = (
            factory_result if isinstance(factory_result, tuple) and len(factory_result) == 2 else (factory_result, None)
        )
        try:
            agent = adapt(candidate, self.ref)
            if agent is None:
                raise AgentError(f"{self.ref.target} gave a {type(candidate).__name__}, not an agent of google-adk")
            yield agent
        finally:
            if exit_stack is not None:
                await exit_stack.aclose()


def _fault_of(model: str) -> str:
    return "" if model.startswith("gemini-") else model_fault(model)


MEMORY = "adk"
NO_SOUND = "a message with sounds or pictures is not played live yet; run its case without live"


@dataclass(slots=True)
class Conversation:
    """Services of google-adk that hold one session, and its contents at the end of the last turn."""

    app_name: str
    sessions: Any
    artifacts: Any
    memory: Any
    n_turns: int = 0
    state: dict[str, JsonValue] = field(default_factory=dict)

    def runner(self, app: Any, plugin: Any) -> Any:
        """A runner of `app` on this session, with `plugin` before the app's own."""
        from google.adk.runners import Runner

        return Runner(
            app=app.model_copy(update={"name": self.app_name, "plugins": [plugin, *app.plugins]}),
            session_service=self.sessions,
            artifact_service=self.artifacts,
            memory_service=self.memory,
        )

    async def find_adk_session(self, session: Session, **options: Any) -> Any:
        """The session of google-adk; None after its deletion."""
        place = {"app_name": self.app_name, "user_id": session.user_id, "session_id": session.id}
        return await self.sessions.get_session(**place, **options)

    async def find_artifact(self, session: Session, name: str, version: int) -> Event:
        """The event of a file that was saved."""
        place = {"app_name": self.app_name, "user_id": session.user_id, "session_id": session.id}
        part = await self.artifacts.load_artifact(**place, filename=name, version=version)
        data = part.inline_data.data if part and part.inline_data else None
        return artifact_event(name, data if data is not None else (part and part.text) or "")

    async def keep(self, session: Session) -> None:
        """Store the state and the number of turns for the next turn. Events stay in the service: a copy takes long."""
        from google.adk.sessions.base_session_service import GetSessionConfig

        adk_session = await self.find_adk_session(session, config=GetSessionConfig(num_recent_events=0))
        if adk_session is not None:
            session.state.clear()
            session.state.update(kept_state(adk_session.state))
        self.state = dict(session.state)
        self.n_turns = len(session.turns) + 1


async def open_conversation(session: Session, app_name: str, app: Any) -> tuple[Conversation, bool]:
    """The conversation, and whether it is new.

    A conversation is reused from turn to turn. A new worker, or an edit of the state by a person, rebuilds it from the
    turns of the session.
    """
    memory_entry = session.memory.get(MEMORY)
    if (
        isinstance(memory_entry, Conversation)
        and memory_entry.n_turns == len(session.turns)
        and memory_entry.state == session.state
    ):
        return memory_entry, False
    conversation, adk_session = await _begin_conversation(session, app_name)
    for number, turn in enumerate(session.turns, start=1):
        for event in _past_events(turn, f"turn-{number}", app.root_agent.name):
            await conversation.sessions.append_event(adk_session, event)
    session.memory[MEMORY] = conversation
    return conversation, True


async def _begin_conversation(session: Session, app_name: str) -> tuple[Conversation, Any]:
    """An empty conversation, and its session of google-adk."""
    from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
    from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
    from google.adk.sessions.in_memory_session_service import InMemorySessionService

    conversation = Conversation(app_name, InMemorySessionService(), InMemoryArtifactService(), InMemoryMemoryService())
    adk_session = await conversation.sessions.create_session(
        app_name=app_name, user_id=session.user_id, session_id=session.id, state=dict(session.state)
    )
    return conversation, adk_session


async def _paused_conversation(session: Session, app_name: str) -> tuple[Conversation, dict[str, ToolCall]]:
    """The conversation of the paused turn, and its calls: from memory, or from the stored snapshot.

    Raises AgentError without either.
    """
    from google.adk.events.event import Event as AdkEvent
    from google.adk.events.event_actions import EventActions

    memory_entry, calls = session.memory.get(MEMORY), take_paused_turn(session)
    if isinstance(memory_entry, Conversation) and calls is not None:
        edits = {key: value for key, value in session.state.items() if memory_entry.state.get(key) != value}
        if edits:
            adk_session = await memory_entry.find_adk_session(session)
            await memory_entry.sessions.append_event(
                adk_session, AdkEvent(author="user", actions=EventActions(state_delta=edits))
            )
        return memory_entry, calls
    snapshot: Any = session.paused
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("events"), list):
        raise lost_turn_error()
    conversation, adk_session = await _begin_conversation(session, app_name)
    for raw in snapshot["events"]:
        event = AdkEvent.model_validate(raw)
        delta = event.actions.state_delta
        event.actions.state_delta = {key: each for key, each in delta.items() if key not in kept_state(delta)}
        await conversation.sessions.append_event(adk_session, event)
    session.memory[MEMORY] = conversation
    return conversation, {key: ToolCall(*each) for key, each in snapshot["calls"].items()}


def _snapshot(events: Iterable[Any], calls: Mapping[str, ToolCall]) -> JsonValue:
    """Snapshot of the events of a session of google-adk and of the calls of its last turn, for another process."""
    return {
        "events": [event.model_dump(mode="json", exclude_none=True) for event in events],
        "calls": {key: [call.name, dict(call.args), call.id] for key, call in calls.items()},
    }


def _past_events(turn: TurnRecord, invocation_id: str, root_name: str) -> Iterator[Any]:
    """A finished turn as events of google-adk, without calls that have no result."""
    from google.adk.events.event import Event as AdkEvent
    from google.genai import types

    def new_event(author: str, role: str, *parts: Any) -> Any:
        return AdkEvent(author=author, invocation_id=invocation_id, content=types.Content(role=role, parts=list(parts)))

    yield new_event("user", "user", *_parts(turn.query, turn.media, types))
    events = [event for event in turn.events if not event.within]
    answered_ids = {event.call.id for event in events if event.kind == "tool_result" and event.call}
    for (kind, author), group in groupby(
        _replayable_events(events, answered_ids), key=lambda event: (event.kind, event.author)
    ):
        role = "user" if kind == "tool_result" else "model"
        yield new_event(author or root_name, role, *(_part(event, types) for event in group))


def _parts(text: str, media: Iterable[Media], types: Any) -> list[Any]:
    """The user's message as parts of google-genai."""
    return [_media_part(part, types) for part in split(text, media)] or [types.Part(text=text)]


def _media_part(part: str | Media, types: Any) -> Any:
    if isinstance(part, str):
        return types.Part(text=part)
    name = part.name or None
    if part.uri:
        return types.Part(file_data=types.FileData(file_uri=part.uri, mime_type=part.mime_type, display_name=name))
    return types.Part(inline_data=types.Blob(data=part.content(), mime_type=part.mime_type, display_name=name))


def _replayable_events(events: Iterable[Event], answered_ids: set[str | None]) -> Iterator[Event]:
    for event in events:
        is_answered_call = event.kind == "tool_call" and event.call and event.call.id in answered_ids
        is_reply = event.kind in {"agent_message", "tool_result"} and not event.is_partial
        if is_answered_call or is_reply:
            yield event


def _part(event: Event, types: Any) -> Any:
    call = event.call
    if call is None:
        return types.Part(text=event.text)
    if event.kind == "tool_call":
        return types.Part(function_call=types.FunctionCall(name=call.name, args=dict(call.args), id=call.id))
    result = event.result if isinstance(event.result, dict) else {"result": event.result}
    return types.Part(function_response=types.FunctionResponse(name=call.name, id=call.id, response=result))


MAX_DEPTH = 8


def _describe_tree(agent: Any, kind: str, depth: int) -> AgentDescription:
    """The agent and its sub-agents; the initial state has every key that an instruction needs, empty."""
    instruction = _instruction(agent)
    model = model_name(agent)
    below = [_describe_tree(other, how, depth + 1) for other, how in agents_below(agent)] if depth < MAX_DEPTH else []
    state: JsonObject = dict.fromkeys(placeholders(instruction), "")
    for other in below:
        state = {**other.initial_state, **state}
    missing_variables = dict.fromkeys(
        [*_missing_variables(agent), *(name for other in below for name in other.missing)]
    )
    return AgentDescription(
        name=str(agent.name),
        kind=kind,
        description=str(getattr(agent, "description", "") or ""),
        instruction=instruction,
        model=model or None,
        tools=tuple(_tool(tool) for tool in (*getattr(agent, "tools", ()), *_tools_of_nodes(agent))),
        is_demo=model.startswith(DEMO_PREFIX),
        initial_state=state,
        sub_agents=tuple(below),
        missing=tuple(missing_variables),
        takes_instruction=hasattr(agent, "instruction") and hasattr(agent, "clone"),
        makes_instruction=callable(getattr(agent, "instruction", "")),
    )


def _tools_of_nodes(workflow: Any) -> Iterator[Any]:
    """The tools that are nodes of a workflow."""
    return (node.tool for node in nodes_below(workflow) if hasattr(node, "tool"))


def _missing_variables(agent: Any) -> tuple[str, ...]:
    """The missing key variables of its model; none for a model with a key, an address or a client set in code."""
    model = getattr(agent, "model", None)
    is_named = isinstance(model, str) and (is_litellm(model) or model.startswith("gemini-"))
    # Private: a LiteLlm keeps the keys and addresses of its constructor nowhere else.
    is_bare = type(model).__name__ == "LiteLlm" and getattr(model, "_additional_args", None) == {}
    return missing_keys(model_name(agent), os.environ) if is_named or is_bare else ()


def _instruction(agent: Any) -> str:
    instruction = getattr(agent, "instruction", "")
    if callable(instruction):
        return f"made by {getattr(instruction, '__name__', 'a function')} when a turn begins"
    return str(instruction or "")


def _tool(tool: Any) -> ToolDescription:
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.adk.tools.function_tool import FunctionTool

    if isinstance(tool, BaseToolset):
        return ToolDescription(type(tool).__name__, "A toolset; its tools are known once it is connected.")
    adk_tool = tool if isinstance(tool, BaseTool) else FunctionTool(tool)
    try:
        declaration = adk_tool._get_declaration()  # the methods by which each kind of tool declares its parameters
    except Exception as error:  # a signature that ADK cannot put into a schema
        return ToolDescription(adk_tool.name, f"{adk_tool.description}\n(its schema cannot be made: {error})")
    if declaration is None:
        return ToolDescription(adk_tool.name, adk_tool.description)
    return ToolDescription(adk_tool.name, declaration.description or adk_tool.description, _schema(declaration))


def _schema(declaration: Any) -> JsonObject:
    schema = getattr(declaration, "parameters_json_schema", None)
    if schema is None and declaration.parameters is not None:
        schema = _lower_types(declaration.parameters.model_dump(mode="json", exclude_none=True))
    return plain_object(schema)


def _lower_types(schema: Any) -> Any:
    """The schema with lower-case types; Google writes OBJECT, STRING."""
    if isinstance(schema, list):
        return [_lower_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _lower_types(value)
        for key, value in schema.items()
    }
