"""Compiled graphs of LangGraph whose state has `messages`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from evaldesk.agents.agent import is_from
from evaldesk.agents.langgraph.interrupts import (
    INTERRUPT,
    Waited,
    frozen_thread,
    restored,
    resumption,
    waiting_of,
)
from evaldesk.agents.message_events import events_of_message, readable
from evaldesk.agents.shared_loop import OnSharedLoop, SendEvent, SentEvents
from evaldesk.agents.tools.frameworks import (
    CURRENT_CALLS,
    awaiting,
    in_our_words,
    never_answered,
    pause,
    paused,
    tool_result,
    watched,
)
from evaldesk.agents.tools.time_limit import ToolFailedError
from evaldesk.errors import AgentError
from evaldesk.llm import priced
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
from evaldesk.model.chat import chat_messages, user_message
from evaldesk.model.decisions import Decided
from evaldesk.transcripts.messages.turns import TurnEvents
from evaldesk.wire import plain, plain_object, to_json

_CALL_BLOCKS = ("tool_use", "tool_call", "function_call", "server_tool_call", "invalid_tool_call", "input_json_delta")


class EventSender:
    """Reports the messages of a graph's nodes, each once, and keeps `state` equal to the graph's."""

    def __init__(self, send: SendEvent, state: dict[str, JsonValue], *, model: str) -> None:
        self._send = send
        self._state = state
        self._model = model
        self._seen: set[str] = set()
        self.interrupts: list[Any] | None = None
        self.found: dict[str, Any] = {}
        self._turn = TurnEvents()

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls of this turn that have no result yet."""
        return list(self._turn.open_calls.values())

    @property
    def seen(self) -> list[str]:
        """The ids of the messages that were told."""
        return sorted(self._seen)

    def go_on(self, seen: Iterable[str], calls: Iterable[ToolCall]) -> None:
        """Begin where a turn waited: these messages were told, and these calls have no result yet."""
        self._seen.update(seen)
        self._turn.open_calls.update((call.id or call.name, call) for call in calls)

    def know(self, messages: Iterable[Any]) -> None:
        """These messages were said before this turn."""
        self._seen.update(message.id for message in messages if getattr(message, "id", None))

    async def updates(self, found: Any) -> None:
        """Report the messages of each node of a step, and note an interrupt."""
        if INTERRUPT in found:
            self.interrupts = [*(self.interrupts or ()), *found[INTERRUPT]]
        for node, changed in found.items():
            for update in changed if isinstance(changed, list) else [changed]:
                await self._messages(_fields(update).get(MESSAGES), node)

    def values(self, found: Any) -> None:
        """Take over the state of the graph after a step, as its reducers made it."""
        self.found = _fields(found)
        own = {key: plain(value) for key, value in self.found.items() if key != MESSAGES}
        self._state.update({key: value for key, value in own.items() if not key.startswith("__")})

    async def piece(self, chunk: Any, about: Any) -> None:
        """Tell a piece of a streamed answer."""
        if type(chunk).__name__ == "AIMessageChunk" and (text := _text(chunk)):
            await self._send(Event("agent_message", author=about.get("langgraph_node", ""), text=text, is_partial=True))

    async def _messages(self, found: Any, node: str) -> None:
        for message in _messages_of(found):
            message_id = getattr(message, "id", None)
            if message_id in self._seen:
                continue
            if message_id:
                self._seen.add(message_id)
            if getattr(message, "type", "") in ("ai", "tool"):
                await self._report(message, message.name or node if message.type == "ai" else node)

    async def _report(self, message: Any, author: str) -> None:
        (found,) = readable(_plain_message(message))
        if isinstance(found, Event):
            await self._send(found)
            return
        if getattr(message, "usage_metadata", None):
            found = replace(found, usage=self._usage(message))
        for event in events_of_message(self._turn, found, author):
            await self._send(event)

    def _usage(self, message: Any) -> Usage:
        spent = message.usage_metadata
        model = str(message.response_metadata.get("model_name") or self._model or "unknown")
        read, made = spent.get("input_token_details") or {}, spent.get("output_token_details") or {}
        ends = (message.response_metadata.get(name) for name in ("finish_reason", "stop_reason", "done_reason"))
        is_cut = any(str(end).lower() in {"length", "max_tokens"} for end in ends)
        usage = Usage(
            model,
            tokens_in=spent["input_tokens"],
            tokens_out=spent["output_tokens"],
            tokens_cached=read.get("cache_read") or 0,
            tokens_reasoning=made.get("reasoning") or 0,
            is_cut=is_cut,
        )
        return priced(usage)


def _fields(found: Any) -> dict[str, Any]:
    """The keys of an update or a state: a dict, a dataclass, or a model of pydantic."""
    if isinstance(found, dict):
        return found
    names = getattr(found, "__dataclass_fields__", None) or getattr(type(found), "model_fields", None) or ()
    return {name: getattr(found, name) for name in names}


def _messages_of(found: Any) -> list[Any]:
    """The messages that a node gives: LangChain's own, dicts, pairs of role and text, or texts of the user."""
    from langchain_core.messages.utils import convert_to_messages

    given = found if isinstance(found, list) else [found]
    return list(convert_to_messages([each for each in given if each is not None]))


def past_messages(messages: Iterable[JsonObject]) -> list[Any]:
    """Messages in OpenAI's shape as LangChain's, with ids of their own."""
    from langchain_core.messages.utils import convert_to_messages

    found = convert_to_messages(list(messages))
    for number, message in enumerate(found):
        message.id = f"before-{number}"
    return list(found)


def _plain_message(message: Any) -> dict[str, JsonValue]:
    """The message as chat messages are written; blocks of its content that repeat its tool calls are left out."""
    content = message.content
    if isinstance(content, list):
        content = [part for part in content if not (isinstance(part, dict) and part.get("type") in _CALL_BLOCKS)]
    calls = [*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())]
    return {
        "role": message.type,
        "content": plain(content),
        "tool_calls": [{"id": call["id"], "name": call["name"] or "", "args": plain(call["args"])} for call in calls],
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


def adapt(found: object, ref: AgentRef) -> GraphAgent | None:
    """The agent around a compiled graph; None for anything else. Raises AgentError for one that is not compiled."""
    if not is_from(found, "langgraph"):
        return None
    if hasattr(found, "compile") and not hasattr(found, "astream"):
        raise AgentError(f"{ref.target} is a graph that is not compiled; give graph.compile()")
    if not hasattr(found, "astream"):
        return None
    watch_tool_nodes(found)
    return GraphAgent(found, ref)


@dataclass(frozen=True, slots=True)
class GraphAgent(OnSharedLoop):
    """A graph. The session state has the other keys of its state; each session is a thread of its checkpointer."""

    graph: Any
    ref: AgentRef
    _names: set[str] = field(default_factory=set, compare=False, repr=False)

    def describe(self) -> AgentDescription:
        """Its name, and the tools of its tool nodes."""
        name = self.graph.get_name()
        return AgentDescription(
            name=self.ref.id if name in {"LangGraph", "Pregel"} else name,
            kind="langgraph",
            description=f"A graph with the nodes {', '.join(node for node in self.graph.nodes if node[:2] != '__')}.",
            tools=tuple(_tools(self.graph)),
        )

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the graph to its end. Raises AgentError when its state has no messages, or no model can be chosen."""
        if MESSAGES not in self._input_names():
            raise AgentError(f"the state of {self.ref.target} has no `messages`; wrap the graph in a function")
        return SentEvents(lambda send: self._begin(session, message, send))

    def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """Resume the interrupts of the graph with what a person decided. Raises AgentError without a checkpointer."""
        return SentEvents(lambda send: self._go_on(session, decided, send))

    async def _begin(self, session: Session, message: str, send: SendEvent) -> None:
        sender = EventSender(send, session.state, model=session.model or "")
        before = self._before(session)
        sender.know(before)
        given = {**self._own_state(session), MESSAGES: [*before, user_message(message, session.media)]}
        await self._run(session, given, sender, send)

    async def _go_on(self, session: Session, decided: Sequence[Decided], send: SendEvent) -> None:
        if not self.graph.checkpointer:
            raise AgentError(
                f"{self.ref.target} has no checkpointer, so LangGraph cannot go on after an interrupt; "
                "compile it with one, such as InMemorySaver()"
            )
        waited = paused(session) or await restored(self.graph.checkpointer, session.paused)
        session.memory["thread"] = waited.thread
        sender = EventSender(send, session.state, model=session.model or "")
        sender.go_on(waited.seen, waited.calls)
        await self._run(session, resumption(decided, self._edits(session, waited)), sender, send)

    def _edits(self, session: Session, waited: Waited) -> dict[str, Any]:
        """The keys of the state that a person changed while the turn waited."""
        known = self._input_names()
        return {
            key: value
            for key, value in session.state.items()
            if key in known and key != MESSAGES and waited.state.get(key) != value
        }

    async def _run(self, session: Session, given: Any, sender: EventSender, send: SendEvent) -> None:
        from langgraph.errors import GraphRecursionError

        calls = watched(session, send)
        modes = ["updates", "values", *(["messages"] if session.is_streaming else [])]
        config = self._config(session)
        try:
            with in_our_words(calls, session.model or self.ref.id, but=GraphRecursionError):
                async for mode, found in self.graph.astream(given, config, stream_mode=modes):
                    if mode == "updates":
                        await sender.updates(found)
                    elif mode == "values":
                        sender.values(found)
                    else:
                        await sender.piece(*found)
        except GraphRecursionError as error:
            await send(never_answered(session, str(error).partition("\n")[0]))
        calls.check()
        left = {**session.state, **sender.found}
        if sender.open_calls:  # no model takes messages with a call that has no result
            left.pop(MESSAGES, None)
        session.memory[MEMORY] = (len(session.turns) + 1, left)
        if sender.interrupts is not None:
            waited = Waited(str(session.memory["thread"]), sender.seen, sender.open_calls, dict(session.state))
            frozen = await frozen_thread(self.graph.checkpointer, waited)
            pause(session, waited, lambda: frozen)
            for event in awaiting(waiting_of(sender.interrupts, sender.open_calls, calls.asked)):
                await send(event)

    def _left(self, session: Session) -> dict[str, Any] | None:
        """The state as the graph left it in the last turn, with its own objects; None in another process."""
        known: Any = session.memory.get(MEMORY)
        return known[1] if known and known[0] == len(session.turns) else None

    def _before(self, session: Session) -> list[Any]:
        """The messages until now; none where the graph's own checkpointer has them."""
        left = self._left(session)
        if left is not None and self.graph.checkpointer:
            return []
        return (left or {}).get(MESSAGES) or past_messages(chat_messages(session.turns))

    def _own_state(self, session: Session) -> dict[str, Any]:
        """The keys of the state to begin with; those that the checkpointer has would go through its reducers again."""
        known, left = self._input_names(), self._left(session) or {}
        given = {key: value for key, value in session.state.items() if key in known and key != MESSAGES}
        same = {key: left[key] for key, value in given.items() if key in left and plain(left[key]) == value}
        return {key: given[key] for key in given if key not in same} if self.graph.checkpointer else given | same

    def _config(self, session: Session) -> dict[str, Any]:
        asked = session.model_options
        thread = session.memory.setdefault("thread", f"{session.id}/{len(session.turns)}")
        wanted = {"model": session.model, "max_retries": asked.n_retries}
        wanted |= {name: getattr(asked, name) for name in SETTINGS[1:]}
        given = {name: value for name, value in wanted.items() if value is not None}
        config: dict[str, Any] = {"configurable": {"thread_id": thread, **given}}
        if asked.max_turns:
            config["recursion_limit"] = 2 * asked.max_turns  # the model's node and that of its tools
        if session.model or asked.base_url:
            self._refuse_what_is_built_in(session.model, asked.base_url)
        return config

    def _input_names(self) -> set[str]:
        """The keys that the graph takes, asked once: it makes a schema by pydantic each time, in 30 ms."""
        if not self._names:
            self._names.update(_input_names(self.graph))
        return self._names

    def _refuse_what_is_built_in(self, model: str | None, base_url: str | None) -> None:
        known = _properties(_properties(_schema(self.graph.get_config_jsonschema)).get("configurable", {}))
        known |= _properties(_schema(self.graph.get_context_jsonschema))
        for name, value in (("model", model), ("base_url", base_url)):
            if value and name not in known:
                raise AgentError(
                    f"the graph has its model built in: it names no configurable {name!r}, so it cannot be asked for "
                    f"{value}; read it from config['configurable'] and name it in the config or context schema"
                )


def _schema(read: Callable[[], Any]) -> Any:
    """The schema that a graph gives; empty where pydantic cannot make one, as of `typing.TypedDict` on Python 3.11."""
    from pydantic.errors import PydanticUserError

    try:
        return read() or {}
    except PydanticUserError:
        return {}


def _input_names(graph: Any) -> frozenset[str]:
    """The keys of the state that the graph takes; without a schema all of its own channels."""
    named = _properties(_schema(graph.get_input_jsonschema))
    if named:
        return frozenset(named)
    return frozenset(name for name in graph.channels if not name.startswith(("__", "branch:")))


def _properties(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    properties = dict(found) if isinstance(found, dict) else {}
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


def watch_tool_nodes(graph: Any) -> None:
    """Let the tool nodes of the graph, and of the graphs inside it, use doubles, and end their calls in time.

    A double sees the state of the graph and cannot change it. Tools that a node of the user's calls by itself are not
    seen, nor those of a node with a synchronous wrapper.
    """
    for node in graph.nodes.values():
        bound = getattr(node, "bound", None)
        if hasattr(bound, "tools_by_name") and hasattr(bound, "_awrap_tool_call"):
            _watch(bound)
        elif hasattr(bound, "nodes") and bound is not graph:
            watch_tool_nodes(bound)


def _watch(node: Any) -> None:
    own = node._awrap_tool_call
    if getattr(own, _MARK, False) or (own is None and node._wrap_tool_call is not None):
        return

    async def seen(request: Any, execute: Any) -> Any:
        from langgraph.errors import GraphInterrupt

        name, call_id = request.tool_call["name"], request.tool_call["id"]
        call = partial(own, request, execute) if own else partial(execute, request)
        state = dict(request.state) if isinstance(request.state, dict) else {}
        try:
            found = await tool_result(name, dict(request.tool_call["args"]), state, call)
        except ToolFailedError as error:
            return _message(str(error), name, call_id, status="error")
        except GraphInterrupt as error:
            calls, asking = CURRENT_CALLS.get(), ToolCall(name, plain_object(request.tool_call["args"]), call_id)
            for asked in error.args[0]:
                if calls:  # the calls of one node ask by one id: the first one ends it
                    calls.asked.setdefault(getattr(asked, "id", ""), asking)
            raise
        return _message(found, name, call_id) if _is_plain(found) else found

    setattr(seen, _MARK, True)
    node._awrap_tool_call = seen


def _message(found: Any, name: str, call_id: str, *, status: str = "success") -> Any:
    from langchain_core.messages import ToolMessage

    content = found if isinstance(found, str) else to_json(found).decode()
    return ToolMessage(content=content, name=name, tool_call_id=call_id, status=status)


def _is_plain(found: Any) -> bool:
    """Whether it is the result of a double; a tool node itself gives messages and commands."""
    if isinstance(found, list):
        return all(map(_is_plain, found))
    return found is None or isinstance(found, str | int | float | dict)
