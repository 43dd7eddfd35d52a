"""Compiled graphs of LangGraph whose state has `messages`."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any, TypeAlias

from evaldesk.agents.agent import CALL_OPTIONS, is_from
from evaldesk.agents.message_events import events_of_message, parse_message
from evaldesk.agents.shared_loop import EventStream, OnSharedLoop, SendEvent
from evaldesk.agents.tools.frameworks import (
    CURRENT_CALLS,
    begin_tool_calls,
    call_limit_event,
    pause,
    take_paused_turn,
    tool_result,
    translate_errors,
    waiting_events,
)
from evaldesk.agents.tools.time_limit import ToolFailedError
from evaldesk.errors import AgentError
from evaldesk.integrations.langgraph.interrupts import (
    INTERRUPT,
    PausedTurn,
    restore_thread,
    resumption,
    thread_snapshot,
    waiting_of,
)
from evaldesk.llm import with_cost
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Event,
    JsonObject,
    JsonValue,
    Session,
    ToolCall,
    ToolDescription,
    Usage,
)
from evaldesk.model.chat import chat_messages, user_messages
from evaldesk.model.decisions import Decided
from evaldesk.transcripts.messages.turns import TurnEvents
from evaldesk.wire import plain_json, plain_object, to_json

_CALL_BLOCKS = ("tool_use", "tool_call", "function_call", "server_tool_call", "invalid_tool_call", "input_json_delta")


Namespace: TypeAlias = tuple[str, ...]
"""The nodes around a step, from the outermost, each as `node:task`."""

_TOOL_BY_TASK: ContextVar[dict[str, str] | None] = ContextVar("tool_by_task", default=None)
"""The tools that run in the tasks of tool nodes, for the graphs that they play."""


class EventSender:
    """Sends the messages of a graph's nodes, each once, and copies the graph's state into `state`.

    A subgraph as a node is an agent with the name of its node. A graph that a tool plays is inside of the tool;
    `tool_nodes` are the names of the graph's nodes that play tools.
    """

    def __init__(
        self, send: SendEvent, state: dict[str, JsonValue], *, model: str, tool_nodes: Collection[str] = ()
    ) -> None:
        self._send = send
        self._state = state
        self._model = model
        self._message_ids: set[str] = set()
        self.interrupts: list[Any] | None = None
        self.graph_state: dict[str, Any] = {}
        self._turn = TurnEvents()
        self._tool_nodes = tool_nodes
        self.tool_by_task: dict[str, str] = {}
        self._turn_by_tool: dict[str, TurnEvents] = {}

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls of this turn that have no result yet."""
        return list(self._turn.open_calls.values())

    @property
    def message_ids(self) -> list[str]:
        """The ids of the sent messages."""
        return sorted(self._message_ids)

    def resume(self, message_ids: Iterable[str], calls: Iterable[ToolCall]) -> None:
        """Restore a paused turn: the ids of its sent messages, and its calls without a result."""
        self._message_ids.update(message_ids)
        self._turn.open_calls.update((call.id or call.name, call) for call in calls)

    def skip_past(self, messages: Iterable[Any]) -> None:
        """Mark messages of earlier turns as sent."""
        self._message_ids.update(message.id for message in messages if getattr(message, "id", None))

    async def send_updates(self, step: Any, namespace: Namespace = ()) -> None:
        """Send the messages of each node of a step, and store its interrupts."""
        if INTERRUPT in step and not namespace:
            self.interrupts = [*(self.interrupts or ()), *step[INTERRUPT]]
        for node, updates in step.items():
            for update in updates if isinstance(updates, list) else [updates]:
                await self._messages(_fields(update).get(MESSAGES), node, namespace)

    def take_state(self, graph_state: Any, namespace: Namespace = ()) -> None:
        """Copy the state of the graph after a step, as reduced by the graph."""
        if namespace:
            return
        self.graph_state = _fields(graph_state)
        own = {key: plain_json(value) for key, value in self.graph_state.items() if key != MESSAGES}
        self._state.update({key: value for key, value in own.items() if not key.startswith("__")})

    async def send_piece(self, chunk: Any, about: Any, namespace: Namespace = ()) -> None:
        """Send a piece of a streamed answer, but for one inside of a tool."""
        if not self._tool(namespace) and type(chunk).__name__ == "AIMessageChunk" and (text := _text(chunk)):
            await self._send(Event("agent_message", author=about.get("langgraph_node", ""), text=text, is_partial=True))

    def _tool(self, namespace: Namespace) -> str:
        """The tool that plays the graph of a step; empty where no tool does."""
        if not namespace or namespace[0].partition(":")[0] not in self._tool_nodes:
            return ""
        open_calls = [call.name for call in self.open_calls]
        return self.tool_by_task.get(namespace[0], "") or (open_calls[-1] if open_calls else "")

    async def _messages(self, value: Any, node: str, namespace: Namespace) -> None:
        nodes, tool = [each.partition(":")[0] for each in namespace], self._tool(namespace)
        # The node of a subgraph gives its messages once more, with the ids that it gave to those without.
        is_repeated = bool(namespace) and not (tool and len(namespace) == 1)
        agent, above = (nodes[-1], nodes[-2] if len(nodes) > 1 else "") if nodes and not tool else (node, "")
        for message in _messages_of(value):
            message_id = getattr(message, "id", None)
            if message_id in self._message_ids or (is_repeated and not message_id):
                continue
            if message_id:
                self._message_ids.add(message_id)
            if getattr(message, "type", "") in ("ai", "tool"):
                author = message.name or agent if message.type == "ai" else agent
                await self._report(message, author, above if above != author else "", tool)

    async def _report(self, message: Any, author: str, parent: str, tool: str) -> None:
        (event_or_message,) = parse_message(_plain_message(message))
        if isinstance(event_or_message, Event):
            await self._send(replace(event_or_message, within=tool))
            return
        turn = self._turn_by_tool.setdefault(tool, TurnEvents()) if tool else self._turn
        if getattr(message, "usage_metadata", None):
            event_or_message = replace(event_or_message, usage=self._usage(message))
        for event in events_of_message(turn, event_or_message, author):
            await self._send(replace(event, parent=parent, within=tool))

    def _usage(self, message: Any) -> Usage:
        metadata = message.usage_metadata
        model = str(message.response_metadata.get("model_name") or self._model or "unknown")
        input_details, output_details = (
            metadata.get("input_token_details") or {},
            metadata.get("output_token_details") or {},
        )
        ends = (message.response_metadata.get(name) for name in ("finish_reason", "stop_reason", "done_reason"))
        is_cut = any(str(end).lower() in {"length", "max_tokens"} for end in ends)
        usage = Usage(
            model,
            tokens_in=metadata["input_tokens"],
            tokens_out=metadata["output_tokens"],
            tokens_cached=input_details.get("cache_read") or 0,
            tokens_reasoning=output_details.get("reasoning") or 0,
            is_cut=is_cut,
        )
        return with_cost(usage)


def _fields(value: Any) -> dict[str, Any]:
    """The keys of an update or a state: a dict, a dataclass, or a model of pydantic."""
    if isinstance(value, dict):
        return value
    names = getattr(value, "__dataclass_fields__", None) or getattr(type(value), "model_fields", None) or ()
    return {name: getattr(value, name) for name in names}


def _messages_of(value: Any) -> list[Any]:
    """The messages of a node's update: LangChain messages, dicts, pairs of role and text, or texts of the user."""
    from langchain_core.messages.utils import convert_to_messages

    items = value if isinstance(value, list) else [value]
    return list(convert_to_messages([each for each in items if each is not None]))


def langchain_messages(messages: Iterable[JsonObject]) -> list[Any]:
    """Messages in OpenAI's shape as LangChain's, with ids of their own, and results with the names of their tools."""
    from langchain_core.messages.utils import convert_to_messages

    past = convert_to_messages(list(messages))
    name_by_id: dict[str, str] = {}
    for number, message in enumerate(past):
        message.id = f"before-{number}"
        name_by_id.update((str(call["id"]), call["name"]) for call in getattr(message, "tool_calls", ()))
        if message.type == "tool" and not message.name:
            message.name = name_by_id.get(message.tool_call_id)
    return list(past)


def _plain_message(message: Any) -> dict[str, JsonValue]:
    """The message in the chat form, without content blocks that repeat its tool calls."""
    content = message.content
    if isinstance(content, list):
        content = [part for part in content if not (isinstance(part, dict) and part.get("type") in _CALL_BLOCKS)]
    calls = [*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())]
    return {
        "role": message.type,
        "content": plain_json(content),
        "tool_calls": [
            {"id": call["id"], "name": call["name"] or "", "args": plain_json(call["args"])} for call in calls
        ],
        "tool_call_id": getattr(message, "tool_call_id", None),
        "name": message.name,
        "error": getattr(message, "status", "") == "error",
    }


def _text(message: Any) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else str(part.get("text", "")) for part in content)


MEMORY = "langgraph"
MESSAGES = "messages"
SETTINGS = ("model", "temperature", "top_p", "max_tokens", "reasoning_effort", "base_url")


def adapt(candidate: object, ref: AgentRef) -> GraphAgent | None:
    """The agent around a compiled graph; None for anything else. Raises AgentError for an uncompiled graph."""
    if not is_from(candidate, "langgraph"):
        return None
    if hasattr(candidate, "compile") and not hasattr(candidate, "astream"):
        raise AgentError(f"{ref.target} is a graph that is not compiled; give graph.compile()")
    if not hasattr(candidate, "astream"):
        return None
    watch_tool_nodes(candidate)
    return GraphAgent(candidate, ref)


@dataclass(frozen=True, slots=True)
class GraphAgent(OnSharedLoop):
    """A graph. The session state is the graph's state without `messages`; a session is a thread of the checkpointer."""

    graph: Any
    ref: AgentRef
    _names: set[str] = field(default_factory=set, compare=False, repr=False)

    def describe(self) -> AgentDescription:
        """Its name, and the tools of its tool nodes."""
        name, configurable = self.graph.get_name(), self._configurable()
        return AgentDescription(
            name=self.ref.id if name in {"LangGraph", "Pregel"} else name,
            kind="langgraph",
            description=f"A graph with the nodes {', '.join(node for node in self.graph.nodes if node[:2] != '__')}.",
            tools=tuple(_tools(self.graph)),
            takes_instruction="instruction" in configurable,
            unused_options=tuple(each for each in CALL_OPTIONS if each != "max_turns" and each not in configurable),
        )

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the graph to its end. Raises AgentError when its state has no messages, or no model can be chosen."""
        if MESSAGES not in self._input_names():
            raise AgentError(f"the state of {self.ref.target} has no `messages`; wrap the graph in a function")
        return EventStream(lambda send: self._begin(session, message, send))

    def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """Resume the interrupts of the graph with the decisions. Raises AgentError without a checkpointer."""
        return EventStream(lambda send: self._resume(session, decided, send))

    async def _begin(self, session: Session, message: str, send: SendEvent) -> None:
        sender = self._sender(session, send)
        before = self._past_messages(session)
        sender.skip_past(before)
        graph_input = {**self._input_state(session), MESSAGES: [*before, *user_messages(message, session.media)]}
        await self._run(session, graph_input, sender, send)

    async def _resume(self, session: Session, decided: Sequence[Decided], send: SendEvent) -> None:
        if not self.graph.checkpointer:
            raise AgentError(
                f"{self.ref.target} has no checkpointer, so LangGraph cannot go on after an interrupt; "
                "compile it with one, such as InMemorySaver()"
            )
        paused_turn = take_paused_turn(session) or await restore_thread(self.graph.checkpointer, session.paused)
        session.memory["thread"] = paused_turn.thread
        sender = self._sender(session, send)
        sender.resume(paused_turn.message_ids, paused_turn.calls)
        await self._run(session, resumption(decided, self._edits(session, paused_turn)), sender, send)

    def _sender(self, session: Session, send: SendEvent) -> EventSender:
        return EventSender(
            send,
            session.state,
            model=session.model or "",
            tool_nodes=[name for name, node in self.graph.nodes.items() if _is_tool_node(getattr(node, "bound", None))],
        )

    def _edits(self, session: Session, paused_turn: PausedTurn) -> dict[str, Any]:
        """The keys of the state that a person changed during the pause."""
        names = self._input_names()
        return {
            key: value
            for key, value in session.state.items()
            if key in names and key != MESSAGES and paused_turn.state.get(key) != value
        }

    async def _run(self, session: Session, graph_input: Any, sender: EventSender, send: SendEvent) -> None:
        from langgraph.errors import GraphRecursionError

        calls = begin_tool_calls(session, send)
        modes = ["updates", "values", *(["messages"] if session.is_streaming else [])]
        config = self._config(session)
        sees_subgraphs = (
            "subgraphs" in signature(self.graph.astream).parameters
        )  # older versions stream no steps of them
        options = {"stream_mode": modes, **({"subgraphs": True} if sees_subgraphs else {})}
        _TOOL_BY_TASK.set(sender.tool_by_task)
        try:
            with translate_errors(calls, session.model or self.ref.id, but=GraphRecursionError):
                async for *inside, mode, chunk in self.graph.astream(graph_input, config, **options):
                    namespace: Namespace = inside[0] if inside else ()
                    if mode == "updates":
                        await sender.send_updates(chunk, namespace)
                    elif mode == "values":
                        sender.take_state(chunk, namespace)
                    else:
                        piece, about = chunk
                        await sender.send_piece(piece, about, namespace)
        except GraphRecursionError as error:
            await send(call_limit_event(session, str(error).partition("\n")[0]))
        calls.check()
        end_state = {**session.state, **sender.graph_state}
        if sender.open_calls:  # no model takes messages with a call that has no result
            end_state.pop(MESSAGES, None)
        session.memory[MEMORY] = (len(session.turns) + 1, end_state)
        if sender.interrupts is not None:
            paused_turn = PausedTurn(
                str(session.memory["thread"]), sender.message_ids, sender.open_calls, dict(session.state)
            )
            snapshot = await thread_snapshot(self.graph.checkpointer, paused_turn)
            pause(session, paused_turn, lambda: snapshot)
            for event in waiting_events(waiting_of(sender.interrupts, sender.open_calls, calls.calls_by_question)):
                await send(event)

    def _end_state(self, session: Session) -> dict[str, Any] | None:
        """The graph's state after the last turn, with its own objects; None in another process."""
        memory_entry: Any = session.memory.get(MEMORY)
        return memory_entry[1] if memory_entry and memory_entry[0] == len(session.turns) else None

    def _past_messages(self, session: Session) -> list[Any]:
        """The messages of earlier turns; none if the graph's own checkpointer has them."""
        end_state = self._end_state(session)
        if end_state is not None and self.graph.checkpointer:
            return []
        return (end_state or {}).get(MESSAGES) or langchain_messages(chat_messages(session.turns))

    def _input_state(self, session: Session) -> dict[str, Any]:
        """The state to pass as input; with a checkpointer only changed keys, or reducers would apply twice."""
        names, end_state = self._input_names(), self._end_state(session) or {}
        input_state = {key: value for key, value in session.state.items() if key in names and key != MESSAGES}
        unchanged_objects = {
            key: end_state[key]
            for key, value in input_state.items()
            if key in end_state and plain_json(end_state[key]) == value
        }
        return (
            {key: input_state[key] for key in input_state if key not in unchanged_objects}
            if self.graph.checkpointer
            else input_state | unchanged_objects
        )

    def _config(self, session: Session) -> dict[str, Any]:
        options = session.model_options
        thread = session.memory.setdefault("thread", f"{session.id}/{len(session.turns)}")
        all_settings = {"model": session.model, "max_retries": options.n_retries, "instruction": options.instruction}
        all_settings |= {name: getattr(options, name) for name in SETTINGS[1:]}
        settings = {name: value for name, value in all_settings.items() if value is not None}
        config: dict[str, Any] = {"configurable": {"thread_id": thread, **settings}}
        if options.max_turns:
            config["recursion_limit"] = 2 * options.max_turns  # the model's node and that of its tools
        if session.model or options.base_url:
            self._check_configurable(session.model, options.base_url)
        return config

    def _input_names(self) -> set[str]:
        """The input keys of the graph, cached: pydantic takes 30 ms to build the schema."""
        if not self._names:
            self._names.update(_input_names(self.graph))
        return self._names

    def _configurable(self) -> dict[str, Any]:
        """The names that its config or context schema declares."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # later versions have a context in place of the config
            names = _properties(_properties(_schema(self.graph.get_config_jsonschema)).get("configurable", {}))
            return {**names, **_properties(_schema(self.graph.get_context_jsonschema))}

    def _check_configurable(self, model: str | None, base_url: str | None) -> None:
        configurable = self._configurable()
        for name, value in (("model", model), ("base_url", base_url)):
            if value and name not in configurable:
                raise AgentError(
                    f"the graph has its model built in: it names no configurable {name!r}, so it cannot be asked for "
                    f"{value}; read it from config['configurable'] and name it in the config or context schema"
                )


def _schema(make_schema: Callable[[], Any]) -> Any:
    """The graph's schema; empty if pydantic cannot build it, as of `typing.TypedDict` on Python 3.11."""
    from pydantic.errors import PydanticUserError

    try:
        return make_schema() or {}
    except PydanticUserError:
        return {}


def _input_names(graph: Any) -> frozenset[str]:
    """The input keys of the graph; without a schema all of its own channels."""
    properties = _properties(_schema(graph.get_input_jsonschema))
    if properties:
        return frozenset(properties)
    return frozenset(name for name in graph.channels if not name.startswith(("__", "branch:")))


def _properties(schema: Any) -> dict[str, Any]:
    raw_properties = schema.get("properties") if isinstance(schema, dict) else None
    definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    properties = dict(raw_properties) if isinstance(raw_properties, dict) else {}
    for name, value in properties.items():
        reference = value.get("$ref", "") if isinstance(value, dict) else ""
        properties[name] = definitions.get(reference.rpartition("/")[2], value)
    return properties


def _tools(graph: Any) -> Iterator[ToolDescription]:
    for node in graph.nodes.values():
        for tool in getattr(getattr(node, "bound", None), "tools_by_name", {}).values():
            schema = tool.tool_call_schema.model_json_schema() if hasattr(tool, "tool_call_schema") else {}
            yield ToolDescription(tool.name, tool.description or "", plain_object(schema))


_MARK = "_is_watched"


def _note_task(tool: str) -> None:
    """Note which tool runs in the task of its node, in a graph that is streamed with its subgraphs."""
    from langgraph.config import get_config

    table = _TOOL_BY_TASK.get()
    if table is not None:
        with suppress(RuntimeError):  # no graph runs the tool node
            table[str(get_config()["configurable"].get("checkpoint_ns", "")).rpartition("|")[2]] = tool


def watch_tool_nodes(graph: Any) -> None:
    """Give the tool nodes of the graph, and of its subgraphs, doubles and the time limit of tools.

    A double sees the state of the graph and cannot change it. Not covered: tools called by a node of the user's own,
    and tools of a node with a synchronous wrapper.
    """
    for node in graph.nodes.values():
        node_runnable = getattr(node, "bound", None)
        if _is_tool_node(node_runnable) and hasattr(node_runnable, "_awrap_tool_call"):
            _watch(node_runnable)
        elif hasattr(node_runnable, "nodes") and node_runnable is not graph:
            watch_tool_nodes(node_runnable)


def _is_tool_node(node_runnable: Any) -> bool:
    return hasattr(node_runnable, "tools_by_name")


def _watch(node: Any) -> None:
    # Private: a ToolNode takes a wrapper in its constructor only, and the user has built it already.
    own = node._awrap_tool_call
    if getattr(own, _MARK, False) or (own is None and node._wrap_tool_call is not None):
        return

    async def call_tool_with_double(request: Any, execute: Any) -> Any:
        from langgraph.errors import GraphInterrupt

        name, call_id = request.tool_call["name"], request.tool_call["id"]
        _note_task(name)
        call = partial(own, request, execute) if own else partial(execute, request)
        state = dict(request.state) if isinstance(request.state, dict) else {}
        try:
            result = await tool_result(name, dict(request.tool_call["args"]), state, call)
        except ToolFailedError as error:
            return _message(str(error), name, call_id, status="error")
        except GraphInterrupt as error:
            calls, asking = CURRENT_CALLS.get(), ToolCall(name, plain_object(request.tool_call["args"]), call_id)
            for interrupt in error.args[0]:
                if calls:  # the calls of one node ask by one id: the first one ends it
                    calls.calls_by_question.setdefault(getattr(interrupt, "id", ""), asking)
            raise
        return _message(result, name, call_id) if _is_plain(result) else result

    setattr(call_tool_with_double, _MARK, True)
    node._awrap_tool_call = call_tool_with_double


def _message(result: Any, name: str, call_id: str, *, status: str = "success") -> Any:
    from langchain_core.messages import ToolMessage

    content = result if isinstance(result, str) else to_json(result).decode()
    return ToolMessage(content=content, name=name, tool_call_id=call_id, status=status)


def _is_plain(value: Any) -> bool:
    """Whether the result is plain JSON, as of a double; a tool node returns messages and commands."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | dict)
