"""Compiled graphs of LangGraph whose state has `messages`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from evaldesk.agents.framework_tools import watched
from evaldesk.agents.frameworks import is_from
from evaldesk.agents.history import chat_messages
from evaldesk.agents.langgraph_messages import Teller, past_messages
from evaldesk.agents.langgraph_tools import watch_tool_nodes
from evaldesk.agents.shared_loop import Tell, events_told
from evaldesk.errors import AgentError
from evaldesk.llm import model_error
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, Session, ToolDescription
from evaldesk.wire import plain

MEMORY = "langgraph"
MESSAGES = "messages"
SETTINGS = ("model", "temperature", "top_p", "max_tokens", "base_url")


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
class GraphAgent:
    """A graph. The session state has the other keys of its state; each session is a thread of its checkpointer."""

    graph: Any
    ref: AgentRef

    def describe(self) -> AgentDescription:
        """Its name, and the tools of its tool nodes."""
        name = self.graph.get_name()
        return AgentDescription(
            name=self.ref.id if name in {"LangGraph", "Pregel"} else name,
            kind="langgraph",
            description=f"A graph with the nodes {', '.join(_node_names(self.graph))}.",
            tools=tuple(_tools(self.graph)),
        )

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the graph to its end. Raises AgentError when its state has no messages, or no model can be chosen."""
        if MESSAGES not in _properties(self.graph.get_input_jsonschema()):
            raise AgentError(f"the state of {self.ref.target} has no `messages`; wrap the graph in a function")
        async for event in events_told(lambda tell: self._run(session, message, tell)):
            yield event

    async def _run(self, session: Session, message: str, tell: Tell) -> None:
        from langgraph.errors import GraphRecursionError

        calls = watched(session, tell)
        teller = Teller(tell, session.state, model=session.model or "")
        before = self._before(session)
        teller.know(before)
        modes = ["updates", "messages"] if session.is_streaming else ["updates"]
        given = {**self._own_state(session), MESSAGES: [*before, {"role": "user", "content": message}]}
        config = self._config(session)
        try:
            async for mode, found in self.graph.astream(given, config, stream_mode=modes):
                if mode == "updates":
                    await teller.updates(found)
                else:
                    await teller.piece(*found)
        except GraphRecursionError as error:
            kind = "max_turns" if session.model_options.max_turns else "max_iterations"
            said = str(error).partition("\n")[0]
            await tell(Event("error", error=ErrorRecord(kind, f"the agent never answered: {said}")))
        except Exception as error:
            calls.check()
            refused = model_error(error, session.model or self.ref.id)
            if refused:
                raise refused from error
            raise
        calls.check()
        session.memory[MEMORY] = len(session.turns) + 1

    def _before(self, session: Session) -> list[Any]:
        """The messages until now; none where the graph's own checkpointer has them."""
        is_kept = self.graph.checkpointer and session.memory.get(MEMORY) == len(session.turns)
        return [] if is_kept else past_messages(chat_messages(session.turns))

    def _own_state(self, session: Session) -> dict[str, Any]:
        known = _properties(self.graph.get_input_jsonschema())
        return {key: value for key, value in session.state.items() if key in known and key != MESSAGES}

    def _config(self, session: Session) -> dict[str, Any]:
        asked = session.model_options
        thread = session.memory.setdefault("thread", f"{session.id}/{len(session.turns)}")
        wanted = {"model": session.model, "max_retries": asked.n_retries}
        wanted |= {name: getattr(asked, name) for name in SETTINGS[1:]}
        given = {name: value for name, value in wanted.items() if value is not None}
        config: dict[str, Any] = {"configurable": {"thread_id": thread, **given}}
        if asked.max_turns:
            config["recursion_limit"] = 2 * asked.max_turns  # the model's node and that of its tools
        self._refuse_what_is_built_in(session.model, asked.base_url)
        return config

    def _refuse_what_is_built_in(self, model: str | None, base_url: str | None) -> None:
        known = _properties(_properties(self.graph.get_config_jsonschema()).get("configurable", {}))
        known |= _properties(self.graph.get_context_jsonschema() or {})
        for name, value in (("model", model), ("base_url", base_url)):
            if value and name not in known:
                raise AgentError(
                    f"the graph has its model built in: it names no configurable {name!r}, so it cannot be asked for "
                    f"{value}; read it from config['configurable'] and name it in the config or context schema"
                )


def _properties(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    properties = dict(found) if isinstance(found, dict) else {}
    for name, value in properties.items():
        reference = value.get("$ref", "") if isinstance(value, dict) else ""
        properties[name] = definitions.get(reference.rpartition("/")[2], value)
    return properties


def _node_names(graph: Any) -> list[str]:
    return [name for name in graph.nodes if not name.startswith("__")]


def _tools(graph: Any) -> Iterator[ToolDescription]:
    for node in graph.nodes.values():
        for tool in getattr(getattr(node, "bound", None), "tools_by_name", {}).values():
            schema = plain(tool.tool_call_schema.model_json_schema() if hasattr(tool, "tool_call_schema") else {})
            yield ToolDescription(tool.name, tool.description or "", schema if isinstance(schema, dict) else {})
