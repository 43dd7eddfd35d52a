"""The models of google-adk's agents: LiteLLM on our event loop, and the replacement models of a run."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from typing import Any

from evaldesk.agents.agent import breadth_first
from evaldesk.llm import litellm_endpoint, litellm_response
from evaldesk.model import ModelOptions

EFFORT: ContextVar[str | None] = ContextVar("reasoning_effort", default=None)
"""The run's reasoning effort for models behind LiteLLM; ADK has no field for it."""


def use_shared_loop(root: Any) -> None:
    """Let every LiteLlm of the tree call LiteLLM on our event loop, with our usage and retries."""
    for agent in agents_of(root):
        model = getattr(agent, "model", None)
        if isinstance(model, str) and is_litellm(model):
            agent.model = _litellm_class()(model=model, llm_client=_client())
        elif model is not None and type(getattr(model, "llm_client", None)).__name__ == "LiteLLMClient":
            model.llm_client = _client()


def agents_of(root: Any) -> list[Any]:
    """The agent, its sub-agents and its agent tools, each once."""
    return breadth_first(root, lambda agent: (other for other, _ in agents_below(agent)))


def agents_below(agent: Any) -> Iterator[tuple[Any, str]]:
    """The agents under `agent`, and the nodes of a workflow, each with its relation to it."""
    for other in (*getattr(agent, "sub_agents", ()), *nodes_below(agent)):
        yield other, type(other).__name__.lstrip("_")
    for tool in getattr(agent, "tools", ()):
        if hasattr(tool, "agent"):
            yield tool.agent, "AgentTool"


def nodes_below(node: Any) -> list[Any]:
    """The nodes of a workflow, and the node that a parallel worker runs; none of an agent and of older versions."""
    if hasattr(node, "sub_agents") or not hasattr(node, "_iter_static_children"):
        return []
    # Private, but the only way to the node inside of a parallel worker.
    return list(node._iter_static_children())


def parents_of(root: Any) -> dict[str, str]:
    """The agent above each sub-agent and agent tool, by name; the first one where there are several."""
    parents: dict[str, str] = {}
    for agent in agents_of(root):
        for other, _ in agents_below(agent):
            parents.setdefault(str(other.name), str(agent.name))
    return parents


def with_model(root: Any, model: str | None, options: ModelOptions) -> Any:
    """A copy of the tree whose agents with a model of their own use the run's model, or the run's endpoint.

    Agents with another instruction in the run have that one.
    """
    if options.instruction is not None:
        name = str(root.name)
        options = replace(options, instructions={name: options.instruction, **options.instructions}, instruction=None)
    return _copy_node(root, model, options, {})


def model_name(agent: Any) -> str:
    """The name of the agent's own model; empty for an inherited model."""
    model = getattr(agent, "model", None)
    return str(model if isinstance(model, str) else getattr(model, "model", "") or "")


def is_litellm(name: str) -> bool:
    """Whether google-adk resolves the model name to LiteLLM."""
    from google.adk.models.registry import LLMRegistry

    try:
        return bool(LLMRegistry.resolve(name).__name__ == "LiteLlm")
    except ValueError:
        return False


def _copy_node(node: Any, model: str | None, options: ModelOptions, copies: dict[int, Any]) -> Any:
    """The agent with other models; of a workflow a copy with such agents, of any other node the node itself."""
    if hasattr(node, "clone"):
        return _copy_agent(node, model, options, copies, is_root=True)
    if id(node) in copies:
        return copies[id(node)]
    copies[id(node)] = node_copy = node
    graph = getattr(node, "graph", None)
    if graph is not None:
        ends = [
            {name: _copy_node(getattr(edge, name), model, options, copies) for name in ("from_node", "to_node")}
            for edge in graph.edges
        ]
        edges = [edge.model_copy(update=each) for edge, each in zip(graph.edges, ends, strict=True)]
        new_graph = type(graph)(edges=edges)
        new_graph.validate_graph()
        node_copy = node.model_copy(update={"graph": new_graph, "edges": edges})
    elif nodes_below(node):  # a parallel worker, which keeps its node under a private name
        node_copy = node.model_copy()
        node_copy._node = _copy_node(node._node, model, options, copies)
    copies[id(node)] = node_copy
    return node_copy


def _copy_agent(
    agent: Any, model: str | None, options: ModelOptions, copies: dict[int, Any], *, is_root: bool = False
) -> Any:
    from google.adk.agents.base_agent import BaseAgent

    if id(agent) in copies:
        return copies[id(agent)]
    update: dict[str, Any] = {
        "sub_agents": [_copy_agent(sub_agent, model, options, copies) for sub_agent in agent.sub_agents]
    }
    own = model_name(agent)
    instruction = options.instruction_of(str(agent.name))
    if instruction is not None and hasattr(agent, "instruction"):
        update["instruction"] = instruction
    if hasattr(agent, "model") and (own or is_root) and (model or options.base_url):
        update["model"] = _replacement_model(model or own, options)
    if getattr(agent, "tools", None):
        update["tools"] = [_copy_tool(tool, model, options, copies) for tool in agent.tools]
    for name in type(agent).model_fields:
        value = getattr(agent, name)
        if name != "parent_agent" and isinstance(value, BaseAgent):
            update[name] = _copy_agent(value, model, options, copies)
    copies[id(agent)] = agent.clone(update=update)
    return copies[id(agent)]


def _copy_tool(tool: Any, model: str | None, options: ModelOptions, copies: dict[int, Any]) -> Any:
    if not hasattr(tool, "agent"):
        return tool
    tool_copy = copy.copy(tool)
    tool_copy.agent = _copy_agent(tool.agent, model, options, copies, is_root=True)
    return tool_copy


def _replacement_model(name: str, options: ModelOptions) -> Any:
    if name.startswith("gemini-") and not options.base_url:
        return name
    return _litellm_class()(**litellm_endpoint(name, options), llm_client=_client())


def _litellm_class() -> Any:
    from evaldesk.llm.client import open_litellm

    open_litellm()
    from google.adk.models.lite_llm import LiteLlm

    return LiteLlm


@cache
def _client() -> Any:
    from google.adk.models.lite_llm import LiteLLMClient

    class SharedLoopClient(LiteLLMClient):  # type: ignore[misc] # the package may be missing
        async def acompletion(self, model: Any, messages: Any, tools: Any, **options: Any) -> Any:
            effort = EFFORT.get()
            call_options = {**options, **({"reasoning_effort": effort} if effort else {})}
            return await litellm_response({**call_options, "model": model, "messages": messages, "tools": tools})

    return SharedLoopClient()
